//! Tests of `vcuda run` and of the tenants that it makes.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use vcuda_tests::{Door, Fixture, GIB, Running, app, eventually, release_dir, skip, text};

use crate::{refused, sleeper};

#[test]
fn run_becomes_the_command() {
    let fixture = Fixture::new();
    let shell = |script: &str| fixture.output(["run", "--sim", "--memory", "1Gi", "--", "sh", "-c", script]);
    assert_eq!(shell("exit 7").status.code(), Some(7));
    let mut cat = fixture.tenant(&[], "cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(cat.wait_with_output().unwrap().stdout, b"through");
    let mut command = fixture.vcuda(["run", "--sim", "--", "sh", "-c", "echo $$"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim(), pid);

    let mut command = fixture.vcuda(["run", "--sim", "--name", "named", "--gpu", "0", "--", "env"]);
    let output = command
        .env("LD_PRELOAD", "libof-the-fixture.so")
        .env("LD_LIBRARY_PATH", "/of/the/user")
        .output()
        .unwrap();
    let variables = String::from_utf8(output.stdout).unwrap();
    let value = |name: &str| {
        let line = variables.lines().find(|line| line.starts_with(&format!("{name}=")));
        line.unwrap_or_else(|| panic!("no {name} in {variables}")).split_once('=').unwrap().1.to_owned()
    };
    let shim = release_dir().join("libvcuda_shim.so");
    assert_eq!(value("LD_PRELOAD"), format!("libof-the-fixture.so:{}", shim.display()));
    assert_eq!(Path::new(&value("VCUDA_DIR")), fixture.runtime().join("vcuda/containers").join("named"));
    assert_eq!(Path::new(&value("VCUDA_SIM")), fixture.machine());
    let search = value("LD_LIBRARY_PATH");
    let [front, links, rest] = search.split(':').collect::<Vec<_>>()[..] else {
        panic!("{search}");
    };
    assert_eq!(rest, "/of/the/user");
    assert!(Path::new(front).join("libcuda.so.1").is_file());
    for (name, library) in
        [("libcuda.so.1", "libvcuda_simulator_cuda.so"), ("libnvidia-ml.so.1", "libvcuda_simulator_nvml.so")]
    {
        assert_eq!(fs::read_link(Path::new(links).join(name)).unwrap(), release_dir().join(library));
    }
    assert_eq!(value("CUDA_VISIBLE_DEVICES"), "0");
    assert_eq!(value("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
}

#[test]
fn visible_devices_are_left_alone_without_the_option() {
    let fixture = Fixture::new();
    let mut command = fixture.vcuda(["run", "--sim", "--", "sh", "-c", "echo \"<$CUDA_VISIBLE_DEVICES>\""]);
    let output = command.env("CUDA_VISIBLE_DEVICES", "0").output().unwrap();
    assert_eq!(output.stdout, b"<0>\n");
}

#[test]
fn what_cannot_be_executed_is_126_or_127() {
    let fixture = Fixture::new();
    let text = fixture.home().join("text");
    fs::write(&text, "no program").unwrap();
    let text = text.to_str().unwrap();
    for command in [["run", "--sim", "--"].as_slice(), &["sim", "--"]] {
        refused(&fixture, &[command, &["no-such-command"]].concat(), 127, "no-such-command");
        refused(&fixture, &[command, &["./no/such/file"]].concat(), 127, "./no/such/file");
        refused(&fixture, &[command, &[text]].concat(), 126, text);
        refused(&fixture, &[command, &["/"]].concat(), 126, "/");
    }
}

#[test]
fn a_run_inside_a_run_is_refused() {
    let fixture = Fixture::new();
    let vcuda = release_dir().join("vcuda");
    let inner = format!("{} run --sim --memory 2Gi -- true", vcuda.display());
    let output = fixture.output(["run", "--sim", "--memory", "1Gi", "--", "sh", "-c", &inner]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("already a tenant"), "{output:?}");
}

#[test]
fn runs_of_one_name_share_one_quota() {
    let fixture = Fixture::new();
    let _first = sleeper(&fixture, &["--memory", "2Gi", "--cores", "30"], "jobs");
    fn join<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
        [&["run", "--sim", "--name", "jobs"], arguments, &["--", "true"]].concat()
    }
    assert!(fixture.output(join(&[])).status.success());
    assert!(fixture.output(join(&["--memory", "2048Mi"])).status.success());
    refused(&fixture, &join(&["--memory", "3Gi"]), 64, "--name jobs: it runs already with --memory 2 GiB");
    refused(&fixture, &join(&["--cores", "40"]), 64, "--cores 30 %");
    refused(&fixture, &join(&["--policy", "burst"]), 64, "--policy fixed");
    refused(&fixture, &join(&["--weight", "2"]), 64, "--weight 300");
    refused(&fixture, &join(&["--priority", "high"]), 64, "--priority normal");
    assert!(fixture.output(join(&["--weight", "300", "--priority", "normal"])).status.success());
    let tenants = fixture.json(["smi", "--json"])["gpus"][0]["tenants"].clone();
    assert_eq!(tenants.as_array().unwrap().len(), 1);
    assert_eq!(tenants[0]["name"], "jobs");
}

#[test]
fn set_changes_a_running_tenant() {
    let fixture = Fixture::new();
    let _tenant = sleeper(&fixture, &["--memory", "2Gi", "--cores", "30"], "live");
    let told = fixture.stdout(["set", "live", "--memory", "1.5GiB", "--cores", "12.5"]);
    assert_eq!(told, "live resized to 1.5 GiB, 12.5 % fixed\n");
    let tenant = fixture.json(["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    assert_eq!(tenant["memory_limit_bytes"], 3_u64 << 29);
    assert_eq!(tenant["core_limit_permille"], 125);
    assert_eq!(tenant["policy"], "fixed");
    fixture.stdout(["set", "live", "--policy", "burst"]);
    let tenant = fixture.json(["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    let cores = |tenant: &serde_json::Value| {
        ["core_guarantee_permille", "core_limit_permille", "weight"].map(|key| tenant[key].as_u64().unwrap())
    };
    assert_eq!(tenant["policy"], "burst");
    assert_eq!(cores(&tenant), [125, 1000, 125]);
    assert_eq!(tenant["memory_limit_bytes"], 3_u64 << 29);
    fixture.stdout(["set", "live", "--cores-max", "50", "--weight", "7", "--priority", "low"]);
    let tenant = fixture.json(["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    assert_eq!(cores(&tenant), [125, 500, 7]);
    assert_eq!(tenant["priority"], "low");
    assert!(fixture.stdout(["smi"]).contains("low priority, weight 7"));
    assert!(fixture.stdout(["smi"]).contains("/ 12.5-50 %"));
    refused(&fixture, &["set", "live", "--cores", "60"], 64, "--cores-max 50 %");
    refused(&fixture, &["set", "live", "--policy", "fixed", "--cores-max", "50"], 64, "--policy burst");
    refused(&fixture, &["set", "live", "--cores", "0"], 64, "--policy best-effort");
    fixture.stdout(["set", "live", "--policy", "best-effort"]);
    let tenant = fixture.json(["smi", "--json"])["gpus"][0]["tenants"][0].clone();
    assert_eq!(cores(&tenant), [0, 125, 7]);
    refused(&fixture, &["set", "live", "--memory", "100Gi"], 64, "80 GiB");
    refused(&fixture, &["set", "dead", "--memory", "1Gi"], 64, "running are: live");
    // Several at once, or none.
    let _other = sleeper(&fixture, &["--memory", "2Gi"], "other");
    refused(&fixture, &["set", "live", "dead", "--memory", "3Gi"], 64, "set dead");
    let told = fixture.stdout(["set", "live", "other", "--memory", "3Gi"]);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.ends_with("other resized to 3 GiB, no guarantee (what is left)\n"), "{told}");
}

#[test]
fn a_small_quota_is_warned_of() {
    let fixture = Fixture::new();
    let said = |memory: &str| text(&fixture.tenant(&["--memory", memory], "true").output().unwrap());
    assert!(said("128MiB").contains("--memory 128 MiB: a CUDA context alone"), "{}", said("128MiB"));
    assert!(!said("1073741824B").contains("vcuda: "), "{}", said("1073741824B"));
}

#[test]
fn without_a_gpu_it_says_what_to_do() {
    let fixture = Fixture::new();
    if fixture.output(["run", "--memory", "1GiB", "--", "true"]).status.success() {
        return skip("without_a_gpu_it_says_what_to_do: this machine has a GPU");
    }
    refused(&fixture, &["run", "--memory", "1GiB", "--", "true"], 64, "--sim");
    let _manager = fixture.manager();
    fixture.grant("web", &["--memory", "1GiB"]);
    refused(&fixture, &["run", "--grant", "web", "--", "true"], 64, "--sim");
}

#[test]
fn the_doctor_tries_a_command_as_a_tenant() {
    let output = Fixture::new().output(["doctor", "--sim", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("limit seen by CUDA") && !said.contains("probe"), "{said}");
}

#[test]
fn the_environment_only_lowers() {
    let fixture = Fixture::new();
    for (limit, wanted, bytes) in [("4GiB", "1GiB", GIB), ("1GiB", "8GiB", 2 * GIB)] {
        let mut command = fixture.tenant(&["--memory", limit], "env");
        command.arg(format!("VCUDA_MEMORY={wanted}")).arg(app("hold", Door::Dlsym));
        let mut held = Running::start(command.arg(bytes.to_string()));
        assert_eq!(held.wait_for("holding"), "holding 0 denied 1", "{wanted} of {limit}");
    }
}

#[test]
fn the_doctor_notes_more_time_than_there_is_and_no_missing_driver() {
    let fixture = Fixture::new();
    let long = "a-tenant-with-a-name-of-a-pipeline-that-is-long";
    let _one = sleeper(&fixture, &["--memory", "1Gi", "--cores", "60"], long);
    let _two = sleeper(&fixture, &["--memory", "1Gi", "--cores", "70"], "two");
    // VCUDA_SIM is set: the simulated machine takes the place of the driver.
    let doctor = || String::from_utf8(fixture.output(["doctor"]).stdout).unwrap();
    let told = doctor();
    assert!(!told.contains("NVIDIA driver"), "{told}");
    assert!(told.contains("the guarantees of its tenants add up to 130 % of its time"), "{told}");
    assert!(told.contains(&format!("tenant {long}  GPU-")), "{told}");
    assert!(fixture.stdout(["doctor", "two"]).contains("add up to 130 % of its time"), "of one tenant, too");
    // Without promises there is nothing to note.
    fixture.stdout(["set", long, "two", "--policy", "best-effort"]);
    assert!(!doctor().contains("guarantees"));
}

#[test]
fn help_and_version_are_commands_too() {
    let fixture = Fixture::new();
    assert_eq!(fixture.stdout(["version"]), fixture.stdout(["--version"]));
    assert_eq!(fixture.stdout(["help", "run"]), fixture.stdout(["run", "--help"]));
    refused(&fixture, &["smo"], 64, "'smi'");
}

#[test]
fn dead_directories_are_removed_by_the_next_command() {
    let fixture = Fixture::new();
    assert!(fixture.output(["run", "--sim", "--name", "gone", "--", "true"]).status.success());
    assert!(fixture.runtime().join("vcuda/containers").join("gone").exists());
    fixture.stdout(["smi", "--json"]);
    assert!(!fixture.runtime().join("vcuda/containers").join("gone").exists());
}

#[test]
fn inside_a_tenant_smi_shows_that_tenant() {
    let fixture = Fixture::new();
    let _other = sleeper(&fixture, &["--memory", "1Gi"], "other");
    let vcuda = release_dir().join("vcuda");
    let output = fixture.output([
        "run",
        "--sim",
        "--memory",
        "2Gi",
        "--name",
        "own",
        "--",
        vcuda.to_str().unwrap(),
        "smi",
        "--json",
    ]);
    let inside: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gpu = &inside["gpus"][0];
    assert_eq!(gpu["memory_total_bytes"], 2_u64 << 30);
    assert_eq!(gpu["tenants"].as_array().unwrap().len(), 1);
    assert_eq!(gpu["tenants"][0]["name"], "own");
}

#[test]
fn damaged_limits_are_found_by_the_doctor() {
    let fixture = Fixture::new();
    let _tenant = sleeper(&fixture, &["--memory", "1Gi"], "hurt");
    let limits = fixture.runtime().join("vcuda/containers").join("hurt/limits");
    let mut document = Value::Null;
    // Each two seconds the manager looks at the file, and mends it.
    eventually("the doctor sees it before", Duration::from_secs(20), || {
        fs::write(&limits, "rubbish").unwrap();
        let output = fixture.output(["doctor", "--sim", "--json"]);
        document = serde_json::from_slice(&output.stdout).unwrap();
        output.status.code() == Some(1)
    });
    let findings = document["findings"].as_array().unwrap();
    let broken = findings.iter().filter(|finding| finding["health"] == "broken");
    let links: Vec<&str> = broken.clone().map(|finding| finding["link"].as_str().unwrap()).collect();
    assert_eq!(links, ["tenant hurt"], "{findings:?}");
    assert!(broken.clone().next().unwrap()["remedy"].as_str().unwrap().contains("vcuda events"));
}
