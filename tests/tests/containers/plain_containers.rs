//! Containers without Kubernetes (docs/operations.md): podman starts them in a grant of the manager by the grant's CDI device, or
//! by `vcuda docker-args`, and the grant's quota holds.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use vcuda_tests::runc::{inside, open_machine};
use vcuda_tests::{Door, Fixture, GIB, app, eventually, podman, succeeded, text};

const DEVICE: &str = "--device=vcuda.io/grant=web";

fn file(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.cdi().join(format!("vcuda.io-grant-{name}.json"))
}

fn in_container(fixture: &Fixture, options: &[&str], args: &[&str]) -> Option<Output> {
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    podman::run_with(fixture, &options, args)
}

/// Checks that a container with these options has exactly this memory of one GPU; false if podman does not work.
fn has_limit(fixture: &Fixture, options: &[&str], bytes: u64) -> bool {
    let quota = inside(&app("quota", Door::Dlsym));
    let Some(held) = in_container(fixture, options, &[&quota, &bytes.to_string()]) else {
        return false;
    };
    assert!(succeeded(&held).contains("passed"));
    let smi = in_container(fixture, options, &["vcuda", "smi", "--json"]).unwrap();
    let smi: Value = serde_json::from_str(&succeeded(&smi)).unwrap();
    assert_eq!(smi["gpus"].as_array().unwrap().len(), 1, "{smi}");
    assert_eq!(smi["gpus"][0]["tenants"][0]["memory_limit_bytes"], bytes, "{smi}");
    true
}

#[test]
fn two_commands_start_a_limited_container() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    open_machine(&fixture);
    let _manager = fixture.manager_for_containers("cdi");
    let said = fixture.grant("web", &["--memory", "4GiB", "--cores", "30"]);
    assert!(said.contains("podman run --device vcuda.io/grant=web IMAGE"), "{said}");
    if !has_limit(&fixture, &[DEVICE], 4 * GIB) {
        return;
    }
    let found = in_container(
        &fixture,
        &[DEVICE],
        &[
            "sh",
            "-c",
            "echo $NVIDIA_VISIBLE_DEVICES /dev/nvidia[0-9]*; rm -f /etc/vcuda/limits; ls /etc/vcuda",
        ],
    );
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    assert!(found.starts_with("void /dev/nvidia") && found.contains("limits"), "{found}");

    // A released grant's device is gone, and the next grant of that name has its own limits.
    fixture.stdout(["grant", "release", "web"]);
    assert!(!file(&fixture, "web").exists());
    let refused = in_container(&fixture, &[DEVICE], &["true"]).unwrap();
    assert!(text(&refused).contains("vcuda.io/grant=web"), "{}", text(&refused));
    assert!(!refused.status.success());
    fixture.grant("web", &["--memory", "2GiB"]);
    assert!(has_limit(&fixture, &[DEVICE], 2 * GIB));
}

#[test]
fn a_killed_manager_makes_the_devices_right_at_its_start() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    open_machine(&fixture);
    let mut manager = fixture.manager_for_containers("cdi");
    for name in ["web", "batch"] {
        fixture.grant(name, &["--memory", "2GiB", "--cores", "10"]);
    }
    manager.kill();
    let web = fs::read_to_string(file(&fixture, "web")).unwrap();
    // What a manager leaves that is killed as it releases a grant, and a device that is lost.
    let gone = web.replace("web-", "gone-").replace("\"web\"", "\"gone\"");
    fs::write(file(&fixture, "gone"), gone).unwrap();
    fs::remove_file(file(&fixture, "batch")).unwrap();
    manager.start_again();
    assert!(!file(&fixture, "gone").exists());
    assert_eq!(fs::read_to_string(file(&fixture, "web")).unwrap(), web);
    eventually("the lost device is there again", Duration::from_secs(20), || {
        file(&fixture, "batch").exists()
    });
    has_limit(&fixture, &["--device=vcuda.io/grant=batch"], 2 * GIB);
}

#[test]
fn docker_args_are_all_that_an_engine_without_cdi_needs() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    open_machine(&fixture);
    let _manager = fixture.manager_for_containers("cdi");
    fixture.grant("web", &["--memory", "3GiB", "--cores", "30"]);
    let said = fixture.stdout(["docker-args", "web"]);
    let options: Vec<&str> = said.split_whitespace().collect();
    assert!(!said.contains("vcuda.io/grant"), "{said}");
    has_limit(&fixture, &options, 3 * GIB);
    let unknown = fixture.output(["docker-args", "nobody"]);
    assert_eq!(unknown.status.code(), Some(64), "{}", text(&unknown));
}

#[test]
fn the_toolkit_is_told_the_gpus_where_it_brings_the_driver() {
    let fixture = Fixture::with_gpus(1, "24GiB");
    let _manager = fixture.manager_for_containers("toolkit-env");
    let created = fixture.grant("web", &["--memory", "3GiB"]);
    let device = fs::read_to_string(file(&fixture, "web")).unwrap();
    let gpu = created.split_whitespace().find(|word| word.starts_with("GPU-")).unwrap();
    let gpu = gpu.trim_end_matches(';');
    for said in [device, fixture.stdout(["docker-args", "web"])] {
        assert!(said.contains(&format!("NVIDIA_VISIBLE_DEVICES={gpu}")), "{said}");
        assert!(!said.contains("libcuda.so") && !said.contains("/dev/nvidia"), "{said}");
    }
}
