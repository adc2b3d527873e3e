//! Conditions that the manager looks at before a suspension, and `vcuda doctor NAME`, which tells them. Those of memory and of
//! other processes have tests beside their code (`manager/src/suspend/checks/`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;
use vcuda_tests::{Door, Fixture, app, release_dir, text};

use super::{Program, SMALL, create, done, refused, state, suspendable};

/// The finding of `vcuda doctor NAME` about a condition.
#[track_caller]
fn finding(fixture: &Fixture, name: &str, link: &str) -> Value {
    let output = fixture.output(["doctor", name, "--json"]);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    let findings = document["findings"].as_array().unwrap();
    let is_broken = findings.iter().any(|one| one["health"] == "broken");
    assert_eq!(output.status.success(), !is_broken, "{document}");
    let found = findings.iter().find(|one| one["link"] == link);
    found.unwrap_or_else(|| panic!("no {link} in {document}")).clone()
}

/// The suspension is refused with these words, `doctor` says the same, and the tenant goes on.
#[track_caller]
fn is_refused(fixture: &Fixture, program: &mut Program, link: &str, why: &str, remedy: &str) {
    let said = refused(fixture, "suspend", "a");
    assert!(said.contains("a-1 is not suspended") && said.contains(why) && said.contains(remedy), "{said}");
    let found = finding(fixture, "a", link);
    assert_eq!(found["health"], "broken", "{found}");
    assert!(found["seen"].as_str().unwrap().contains(why), "{found}");
    assert!(found["remedy"].as_str().unwrap().contains(remedy), "{found}");
    assert_eq!(finding(fixture, "a", "suspension")["health"], "broken");
    assert_eq!((state(fixture, "a-1"), program.ask("all")), ("running".into(), "0 intact".into()));
}

#[test]
fn a_driver_or_gpu_that_would_lose_a_process_is_refused() {
    for (setting, link, why, remedy) in [
        ("driver_version = \"565.57.01\"", "driver", "driver 565.57.01 has no checkpoints", "570 or later"),
        ("driver_version = \"610.57.04\"", "driver", "driver 610.57.04 ends processes", "another release"),
        ("driver_version = \"575.51.03\"", "device files", "no device file of GPU", "575.57.08 or later"),
        ("persistence = false", "persistence mode", "is off", "nvidia-smi -pm 1"),
    ] {
        let fixture = Fixture::with_config(&format!("{SMALL}{setting}\n"));
        let _manager = fixture.manager();
        suspendable(&fixture, "a");
        let mut program = Program::in_grant(&fixture, "a", Door::Link);
        is_refused(&fixture, &mut program, link, why, remedy);
    }
}

/// A manager with this script as its `vcuda-checkpoint`, or none, refuses a suspension before anything is touched.
fn a_checkpoint_program_is_refused(script: Option<&str>, why: &str, remedy: &str) {
    let fixture = Fixture::with_config(SMALL);
    let folder = fixture.home().join("bin");
    fs::create_dir(&folder).unwrap();
    fs::copy(release_dir().join("vcuda-manager"), folder.join("vcuda-manager")).unwrap();
    if let Some(script) = script {
        let program = folder.join("vcuda-checkpoint");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let _manager = fixture.manager_of(&folder, &[]);
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    is_refused(&fixture, &mut program, "vcuda-checkpoint", why, remedy);
}

/// Its `vcuda-checkpoint` ends as the real one does where no libcuda.so.1 is found (`checkpoint.rs`).
#[test]
fn a_manager_that_finds_no_driver_refuses_before_anything_is_touched() {
    let script = "#!/bin/sh\nexit 69\n";
    a_checkpoint_program_is_refused(Some(script), "finds no driver with checkpoints", "cuda_library");
}

#[test]
fn a_missing_helper_is_named() {
    a_checkpoint_program_is_refused(None, "bin/vcuda-checkpoint is missing", "beside vcuda-manager");
}

#[test]
fn a_client_of_mps_is_refused() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut command = fixture.in_grant("a", app("suspended", Door::Link));
    command.env("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps");
    let mut program = Program::start(&mut command);
    is_refused(&fixture, &mut program, "MPS", "uses MPS", "without it");
}

/// A library of this name takes NCCL's place.
#[test]
fn processes_with_nccl_are_refused_unless_one_is_alone() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    let (source, library) = (fixture.home().join("nccl.c"), fixture.home().join("libnccl.so.2"));
    fs::write(&source, "int ncclGetVersion(int *version) { return *version = 0; }\n").unwrap();
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.unwrap().success());
    let start = || {
        let mut command = fixture.vcuda(["run", "--sim", "--grant", "a", "--"]);
        Program::start(command.env("LD_PRELOAD", &library).arg(app("suspended", Door::Link)))
    };
    let mut program = start();
    done(&fixture, "suspend", "a", "a-1", "suspended");
    assert_eq!(program.ask("all"), "0 intact");
    assert!(finding(&fixture, "a", "NCCL")["seen"].as_str().unwrap().contains("alone on one GPU"));
    let mut peer = start();
    is_refused(&fixture, &mut program, "NCCL", "has loaded NCCL", "as one process");
    assert_eq!(peer.ask("all"), "0 intact");
}

/// The metrics tell the state, the memory that is away, and each attempt by its result.
#[test]
fn attempts_and_states_are_metrics() {
    let fixture = Fixture::with_config(SMALL);
    let manager = fixture.manager();
    suspendable(&fixture, "a");
    assert!(refused(&fixture, "suspend", "a").contains("nothing to suspend"));
    let _program = Program::in_grant(&fixture, "a", Door::Link);
    let figures = || {
        let count = |name: &str, result: &str| manager.metric(name, &format!("result=\"{result}\""));
        (
            count("vcuda_suspensions_total", "done"),
            count("vcuda_suspensions_total", "refused"),
            count("vcuda_resumptions_total", "done"),
            manager.metric("vcuda_container_memory_suspended_bytes", "a-1") > 0.0,
        )
    };
    assert_eq!(figures(), (0.0, 1.0, 0.0, false));
    done(&fixture, "suspend", "a", "a-1", "suspended");
    assert_eq!(figures(), (1.0, 1.0, 0.0, true));
    assert_eq!(manager.metric("vcuda_container_state", "state=\"suspended\""), 1.0);
    done(&fixture, "resume", "a", "a-1", "running");
    assert_eq!(figures(), (1.0, 1.0, 1.0, false));
    let events = fixture.events();
    for told in ["a-1 is suspended by user ", "a-1 is resumed by user "] {
        assert_eq!(events.matches(told).count(), 1, "{told}: {events}");
    }
}

#[test]
fn doctor_tells_whether_a_tenant_can_be_suspended() {
    let fixture = Fixture::with_config(SMALL);
    let without = fixture.output(["doctor", "a"]);
    assert_eq!(without.status.code(), Some(69), "{}", text(&without));
    let _manager = fixture.manager();
    create(&fixture, "plain", &["--memory", "1GiB"]);
    let found = finding(&fixture, "plain", "suspendable");
    assert!(found["seen"].as_str().unwrap().contains("make it with --suspendable"), "{found}");
    assert_eq!(found["health"], "ok", "nothing is broken, as it was not asked for: {found}");
    suspendable(&fixture, "b");
    let found = finding(&fixture, "b", "processes");
    assert!(found["seen"].as_str().unwrap().contains("nothing to suspend"), "{found}");
    let mut program = Program::in_grant(&fixture, "b", Door::Link);
    let table = fixture.stdout(["doctor", "b"]);
    assert!(table.contains("ok      suspension              it can be suspended now\n"), "{table}");
    for link in ["driver", "persistence mode", "MPS", "NCCL", "memory cgroup", "host memory"] {
        assert!(table.contains(&format!("ok      {link} ")), "{link}: {table}");
    }
    assert_eq!(program.ask("copy"), "0 intact");
    done(&fixture, "suspend", "b", "b-2", "suspended");
    assert_eq!(finding(&fixture, "b", "state")["seen"], "it is suspended");
    let unknown = fixture.output(["doctor", "c"]);
    assert_eq!(unknown.status.code(), Some(64));
    assert!(text(&unknown).contains("c: no such tenant"), "{}", text(&unknown));
}
