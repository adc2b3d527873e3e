//! The hook by which a container's runtime has the driver limit it before its first program runs (cli/src/limit_container.rs).

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use vcuda_tests::cgroup::Cgroup;
use vcuda_tests::{Fixture, GIB, Running, soon, succeeded, text};

use super::driver_limits::{LOOKED_AGAIN, held_by_driver, soon_limited};
use super::walls::{CONTEXT, DMEM, MISC, NONE, program};

/// A program of a container: in a PID namespace of its own, in the container's cgroup, without the shim.
fn in_container(fixture: &Fixture, cgroup: &Cgroup, program: &Path) -> Command {
    let mut command = fixture.bare("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh"]);
    cgroup.wrap(&mut command, program);
    command
}

/// A container's first process, of no tenant yet, with its PID on the host.
fn first_process(fixture: &Fixture, cgroup: &Cgroup) -> (Running, u32) {
    let running = Running::start(in_container(fixture, cgroup, Path::new("sleep")).arg("1000"));
    let pids = || std::fs::read_to_string(format!("{}/cgroup.procs", cgroup.path())).unwrap();
    soon("it is in", || pids().lines().count() == 1);
    (running, pids().trim().parse().unwrap())
}

/// A first grant, of 3 GiB: its directory. No process of it has run, and nothing has looked at it.
fn granted(fixture: &Fixture, name: &str) -> String {
    fixture.grant(name, &["--memory", "3GiB"]);
    let directory = fixture.runtime().join(format!("vcuda/containers/{name}-1"));
    assert!(directory.is_dir());
    directory.display().to_string()
}

/// The hook of a container of the grant with this directory, as the runtime runs it.
fn hook(fixture: &Fixture, directory: &str, options: &[&str], state: &str) -> Output {
    let mut command = fixture.vcuda(["limit-container"]);
    command.arg(directory).args(options);
    // A runtime's hook has no environment of its own.
    command.env_remove("VCUDA_MANAGER").env_remove("XDG_RUNTIME_DIR");
    let mut hook =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = hook.stdin.take().unwrap().write_all(state.as_bytes());
    hook.wait_with_output().unwrap()
}

fn state(pid: u32) -> String {
    format!(r#"{{"ociVersion":"1.0.2","id":"c","status":"creating","pid":{pid},"bundle":"/run/c"}}"#)
}

fn is_pid_namespace_allowed() -> bool {
    Command::new("unshare")
        .args(["--pid", "--fork", "true"])
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

#[test]
fn a_container_is_limited_before_its_first_program_runs() {
    for profile in [DMEM, MISC] {
        let (fixture, Some(leaf)) = (Fixture::with_profile(profile), Cgroup::new()) else { return };
        if !is_pid_namespace_allowed() {
            return vcuda_tests::skip("limits of starting containers: no PID namespaces");
        }
        let _manager = fixture.manager();
        let directory = granted(&fixture, "static");
        let (mut first, pid) = first_process(&fixture, &leaf);
        succeeded(&hook(&fixture, &directory, &["--strict"], &state(pid)));
        let mut without_shim = in_container(&fixture, &leaf, &program());
        let mut filling = Running::ready(without_shim.args(["take", "1", "wait", "fill"]), "wait");
        // The simulated driver learns of a container's cgroup when the host looks at its processes.
        fixture.stdout(["smi"]);
        filling.tell("");
        let taken = filling.wait_for("fill");
        assert_eq!(taken, format!("fill {}", 3 * GIB - CONTEXT - 1), "{profile}: no process of the tenant's");
        filling.kill();
        let id = directory.rsplit('/').next().unwrap();
        soon("it is shown", || held_by_driver(&fixture, id));
        fixture.stdout(["set", "static", "--memory", "2GiB"]);
        soon_limited(&fixture, &leaf, 2 * GIB);
        first.kill();
        fixture.stdout(["grant", "release", "static"]);
        soon_limited(&fixture, &leaf, NONE);
    }
}

#[test]
fn a_container_that_cannot_be_limited_starts_unless_it_is_strict() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let mut manager = fixture.manager();
    let directory = granted(&fixture, "one");
    // On the host, so perhaps no container's.
    let mut stranger = Running::ready(leaf.bare(&fixture, &program()).args(["take", "1", "wait"]), "wait");
    let stranger_state = state(stranger.0.id());
    let foreign = format!("process {} is in its cgroup", stranger.0.id());
    let check = |state: &str, code: i32, why: &str| {
        let strict = hook(&fixture, &directory, &["--strict"], state);
        assert_eq!(strict.status.code(), Some(code), "{}", text(&strict));
        let lenient = hook(&fixture, &directory, &[], state);
        assert!(lenient.status.success(), "{}", text(&lenient));
        for output in [strict, lenient] {
            assert!(text(&output).contains(why), "{why}: {}", text(&output));
        }
    };
    check(&stranger_state, 1, &foreign);
    check(&state(u32::MAX >> 1), 1, "cannot be seen");
    check("{}", 64, "stdin is no state of a container: missing field `pid`");
    manager.kill();
    check(&stranger_state, 69, "manager.sock");
    stranger.kill();
}

/// One with MIG takes none. What one that fell off the bus would take is not known.
#[test]
fn a_strict_container_starts_where_a_gpu_takes_no_limits() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let _manager = fixture.manager();
    let directory = granted(&fixture, "one");
    let faults = |text: &str| std::fs::write(fixture.machine().join("faults.toml"), text).unwrap();
    let uuid = fixture.uuid(0);
    let (_first, pid) = first_process(&fixture, &leaf);
    faults(&format!("mig = [\"{uuid}\"]\n"));
    succeeded(&hook(&fixture, &directory, &["--strict"], &state(pid)));
    faults(&format!("lost = [\"{uuid}\"]\n"));
    let lost = hook(&fixture, &directory, &["--strict"], &state(pid));
    assert!(!lost.status.success(), "{}", text(&lost));
}

/// A manager that does not see the hierarchy of this cgroup, as in a pod that has not got the node's cgroups.
fn blind_manager(fixture: &Fixture, cgroup: &Cgroup) -> Running {
    let mut launcher = Command::new("unshare");
    let mount = Path::new(cgroup.path()).parent().unwrap();
    launcher.args(["--mount", "/bin/sh", "-c", "umount -l \"$0\" && exec \"$@\""]).arg(mount);
    fixture.manager_through(launcher)
}

#[test]
fn what_comes_into_a_containers_cgroup_does_not_free_it() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let mut manager = fixture.manager();
    let directory = granted(&fixture, "one");
    let (mut first, pid) = first_process(&fixture, &leaf);
    succeeded(&hook(&fixture, &directory, &["--strict"], &state(pid)));
    let mut stranger = Running::ready(leaf.bare(&fixture, &program()).args(["take", "1", "wait"]), "wait");
    std::thread::sleep(LOOKED_AGAIN);
    soon_limited(&fixture, &leaf, 3 * GIB);
    let strict = hook(&fixture, &directory, &["--strict"], &state(pid));
    assert!(
        text(&strict).contains(&format!("process {} is in its cgroup", stranger.0.id())),
        "{}",
        text(&strict)
    );
    // Nor does a manager that sees no cgroups forget it.
    manager.kill();
    let mut blind = blind_manager(&fixture, &leaf);
    std::thread::sleep(LOOKED_AGAIN);
    blind.kill();
    first.kill();
    stranger.kill();
    soon_limited(&fixture, &leaf, 3 * GIB);
    manager.start_again();
    fixture.stdout(["grant", "release", "one"]);
    soon_limited(&fixture, &leaf, NONE);
}

#[test]
fn no_strict_container_starts_where_the_manager_sees_no_cgroups() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let mut manager = blind_manager(&fixture, &leaf);
    let directory = granted(&fixture, "one");
    let (_first, pid) = first_process(&fixture, &leaf);
    let strict = hook(&fixture, &directory, &["--strict"], &state(pid));
    assert!(!strict.status.success() && text(&strict).contains("cannot be seen"), "{}", text(&strict));
    manager.kill();
}

#[test]
fn a_strict_container_starts_where_the_driver_has_no_limits() {
    let (fixture, Some(leaf)) = (Fixture::new(), Cgroup::new()) else { return };
    let _manager = fixture.manager();
    let directory = granted(&fixture, "one");
    let other = Running::ready(leaf.bare(&fixture, &program()).args(["take", "1", "wait"]), "wait");
    succeeded(&hook(&fixture, &directory, &["--strict"], &state(other.0.id())));
    let unknown = hook(&fixture, &format!("{directory}0"), &["--strict"], &state(other.0.id()));
    assert!(text(&unknown).contains("no such grant"), "{}", text(&unknown));
}
