//! A manager without root, with the capability named by docs/operations.md: it owns grants, and sees the roots of
//! processes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use vcuda_tests::{Door, Fixture, MIB, Mounted, app, holding, release_dir, skip, soon, succeeded, text};

const HELD: u64 = 200 * MIB;
/// Uid of Debian's `nobody`; any other would do.
const USER: &str = "65534";
/// `CAP_SYS_PTRACE` (linux/capability.h) as `/proc/<pid>/status` writes it.
const ONLY_PTRACE: &str = "0000000000080000";

/// Starts another user's program with that capability only, as the systemd unit does, from a place that the user can read.
fn programs() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let place = folder.path().display();
    fs::copy(release_dir().join("vcuda-manager"), folder.path().join("manager")).unwrap();
    let nvml = "libvcuda_simulator_nvml.so";
    fs::copy(release_dir().join(nvml), folder.path().join(nvml)).unwrap();
    let script = format!(
        "#!/bin/bash\nexec setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --bounding-set -all,+sys_ptrace \
         --inh-caps -all,+sys_ptrace --ambient-caps -all,+sys_ptrace {place}/manager \"${{@/#{}\\//{place}/}}\"\n",
        release_dir().display().to_string().replace('/', "\\/")
    );
    let start = folder.path().join("vcuda-manager");
    fs::write(&start, script).unwrap();
    fs::set_permissions(&start, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn is_able() -> Result<(), String> {
    let tried = Command::new("setpriv").args(["--reuid", USER, "true"]).output();
    let tried = tried.map_err(|error| format!("no setpriv: {error}"))?;
    tried.status.success().then_some(()).ok_or_else(|| text(&tried))
}

fn give_to_user(path: &Path) {
    let owner = format!("{USER}:{USER}");
    succeeded(&Command::new("chown").args(["-R", &owner]).arg(path).output().unwrap());
}

#[test]
fn one_capability_is_enough() {
    if let Err(why) = is_able() {
        skip(&format!("a manager of another user: {why}"));
        return;
    }
    let fixture = Fixture::new();
    // The machine is made first, and belongs to the user too.
    succeeded(&fixture.bare("true").output().unwrap());
    give_to_user(fixture.home());
    let programs = programs();
    let manager = fixture.manager_of(programs.path(), &[]);
    let status = fs::read_to_string(format!("/proc/{}/status", manager.pid())).unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!((line("Uid:"), line("CapEff:")), (USER.to_owned(), ONLY_PTRACE.to_owned()));

    // As root finds the manager of a systemd unit: not in a runtime directory of its own.
    let own = tempfile::tempdir().unwrap();
    let vcuda = |args: &[&str]| {
        let mut command = fixture.vcuda(args);
        command.env("XDG_RUNTIME_DIR", own.path());
        command
    };
    let done = |args: &[&str]| succeeded(&vcuda(args).output().unwrap());
    done(&["grant", "create", "web", "--memory", "2GiB", "--cores", "20"]);
    let hold = app("hold", Door::Dlsym);
    let mut limited = vcuda(&["run", "--sim", "--grant", "web", "--"]);
    let limited = holding(limited.arg(&hold), HELD);
    let mut stranger = vcuda(&["sim", "--"]);
    let stranger = holding(stranger.arg(&hold), HELD);
    let events = || done(&["events"]);
    soon("the stranger is told", || events().contains(&format!("process {} uses GPU-", stranger.0.id())));
    // With the capability, it sees facts that only the process's root shows.
    if let Some(room) = fixture.granted_container_by(&vcuda, "web", Mounted::Directory) {
        let loose = holding(&mut room.unlimited(&hold), HELD);
        soon("it is known whose the loose one is", || {
            events().contains(&format!("process {} of web-1 uses GPU-", loose.0.id()))
        });
    } else {
        skip("a container under a manager of another user: this user may not mount here");
    }
    let told = events();
    assert!(told.contains("VcudaUnregistered"), "{told}");
    assert!(!told.contains(&format!("process {} ", limited.0.id())), "{told}");
    done(&["set", "web", "--memory", "3GiB"]);
    let shown = done(&["grant", "list"]);
    assert!(shown.contains("3 GiB"), "{shown}");
    // So are the variables of root's process, in a file that the capability does not open.
    done(&["grant", "create", "nb", "--memory", "1GiB", "--cores", "10", "--suspendable"]);
    let mut idle = vcuda(&["run", "--sim", "--grant", "nb", "--"]);
    let _idle = holding(idle.arg(&hold), HELD);
    let checked = vcuda(&["doctor", "nb", "--json"]).output().unwrap();
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let findings = checked["findings"].as_array().unwrap();
    let of_mps = findings.iter().find(|one| one["link"] == "MPS").unwrap();
    assert_eq!((&of_mps["health"], &of_mps["seen"]), (&json!("ok"), &json!("not in use")));
    drop(limited);
    done(&["grant", "release", "web"]);
}
