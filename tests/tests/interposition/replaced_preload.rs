//! Programs whose start replaces `LD_PRELOAD` (a launcher, an allocator that starts its program again): the quota holds by the
//! driver's front (`cli/src/front.rs`). What replaces `LD_LIBRARY_PATH` as well escapes, and is told.

use vcuda_tests::{Door, Fixture, GIB, Running, app, succeeded};

/// Beginnings of a shell's command line that take the shim out of `LD_PRELOAD`.
const STARTS: [&str; 3] = ["unset LD_PRELOAD; exec", "LD_PRELOAD= exec", "export LD_PRELOAD=libm.so.6; exec"];

#[test]
fn a_program_that_replaces_the_preload_keeps_its_quota() {
    for door in Door::ALL {
        for start in STARTS {
            let fixture = Fixture::new();
            let mut command = fixture.tenant(&["--memory", "2GiB"], "sh");
            command
                .args(["-c", &format!("{start} \"$@\""), "sh"])
                .arg(app("quota", door))
                .arg((2 * GIB).to_string());
            succeeded(&command.output().unwrap());
        }
    }
}

#[test]
fn nvml_tells_the_quota_to_a_program_that_replaces_the_preload() {
    let fixture = Fixture::new();
    let mut command = fixture.tenant(&["--memory", "2GiB"], "sh");
    let script = "unset LD_PRELOAD; exec \"$0\" doctor-probe";
    command.args(["-c", script]).arg(vcuda_tests::release_dir().join("vcuda"));
    let told: serde_json::Value = serde_json::from_str(&succeeded(&command.output().unwrap())).unwrap();
    assert_eq!(told["cuda_total_bytes"], 2 * GIB, "{told}");
    assert_eq!(told["nvml_total_bytes"], 2 * GIB, "{told}");
}

#[test]
fn a_program_that_empties_its_environment_is_told_with_its_run() {
    let fixture = Fixture::new();
    let mut command = fixture.tenant(&["--memory", "2GiB", "--name", "emptied"], "sh");
    // What the simulator needs, and no folder of fronts. In a child, as the shell itself has a slot.
    let script = "env -i VCUDA_SIM=\"$VCUDA_SIM\" LD_LIBRARY_PATH=\"${LD_LIBRARY_PATH#*:}\" \"$@\"; true";
    command.args(["-c", script, "sh"]).arg(app("hold", Door::Dlsym)).arg((3 * GIB).to_string());
    let mut held = Running::start(&mut command);
    assert_eq!(held.wait_for("holding"), format!("holding {} denied 0", 3 * GIB));
    let findings = fixture.findings();
    let escaped = findings.iter().find(|finding| {
        finding["seen"].as_str().unwrap().contains("runs without the shim")
            && finding["link"] == "tenant emptied"
    });
    assert!(escaped.is_some(), "{findings:?}");
}
