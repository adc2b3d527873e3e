//! The manager sets the driver's memory limit of a tenant's cgroup behind the quota (manager/src/driver_limits.rs).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vcuda_tests::cgroup::Cgroup;
use vcuda_tests::{Fixture, GIB, Running, soon};

use super::walls::{CONTEXT, DMEM, MISC, NONE, bytes_taken_by, on_host, program};

/// Time in which the manager has looked again at tenants that do not change.
const LOOKED_AGAIN: Duration = Duration::from_secs(7);
const REFUSED: &str = "VcudaDriverLimitRefused";

/// Hard limit of a cgroup.
fn hard(fixture: &Fixture, cgroup: &Cgroup) -> u64 {
    match on_host(fixture, &["get", cgroup.path()])[0][..] {
        [0, 0, hard, _] => hard,
        // `misc`, without a limit.
        [3, ..] => NONE,
        ref other => panic!("{other:?}"),
    }
}

pub(super) fn soon_limited(fixture: &Fixture, cgroup: &Cgroup, bytes: u64) {
    soon(&format!("the limit is {bytes}"), || hard(fixture, cgroup) == bytes);
}

/// A tenant that has a byte, and waits.
fn waiting(command: &mut Command) -> Running {
    Running::ready(command.args(["take", "1", "wait"]), "wait")
}

/// The program as a process of `vcuda run --name NAME` that has lost the shim.
fn without_the_shim(fixture: &Fixture, cgroup: &Cgroup, name: &str) -> Command {
    let mut command = cgroup.bare(fixture, &program());
    command.env("VCUDA_DIR", fixture.runtime().join("vcuda/containers").join(name));
    command
}

pub(super) fn held_by_driver(fixture: &Fixture, name: &str) -> bool {
    fixture.tenant_shown(name)["held_by_driver"] == true
}

#[test]
fn a_program_without_the_shim_stops_at_the_quota_of_its_cgroups_tenant() {
    for profile in [DMEM, MISC] {
        let (fixture, Some(leaf)) = (Fixture::with_profile(profile), Cgroup::new()) else { return };
        let manager = fixture.manager();
        let quota = ["--memory", "3GiB", "--name", "walled"];
        let mut tenant = waiting(&mut leaf.tenant(&fixture, &quota, &program()));
        soon_limited(&fixture, &leaf, 3 * GIB);
        let taken = bytes_taken_by(&mut without_the_shim(&fixture, &leaf, "walled"));
        assert_eq!(taken, 3 * GIB - 1 - 2 * CONTEXT, "{profile}");
        soon("it is shown", || held_by_driver(&fixture, "walled"));
        let told = fixture.stdout(["doctor", "walled"]);
        assert!(told.contains("held by: library and driver"), "{told}");
        assert_eq!(manager.metric("vcuda_driver_limit", "container=\"walled\""), 1.0);
        fixture.stdout(["set", "walled", "--memory", "4GiB"]);
        soon_limited(&fixture, &leaf, 4 * GIB);
        tenant.kill();
        soon_limited(&fixture, &leaf, NONE);
        assert!(!fixture.events().contains(REFUSED));
    }
}

#[test]
fn a_grants_limit_follows_it_and_ends_with_its_release() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let _manager = fixture.manager();
    fixture.grant("lasting", &["--memory", "3GiB"]);
    let mut command = fixture.in_grant("lasting", "/bin/sh");
    leaf.wrap(&mut command, &program());
    let mut tenant = waiting(&mut command);
    soon_limited(&fixture, &leaf, 3 * GIB);
    fixture.stdout(["set", "lasting", "--memory", "2GiB"]);
    soon_limited(&fixture, &leaf, 2 * GIB);
    tenant.kill();
    std::thread::sleep(LOOKED_AGAIN);
    assert_eq!(hard(&fixture, &leaf), 2 * GIB, "its container may start another process");
    fixture.stdout(["grant", "release", "lasting"]);
    soon_limited(&fixture, &leaf, NONE);
}

#[test]
fn what_a_killed_manager_has_set_is_taken_back_by_the_next_one() {
    for profile in [DMEM, MISC] {
        let Some(parent) = Cgroup::new() else { return };
        let (fixture, ending, staying) =
            (Fixture::with_profile(profile), parent.child("ending"), parent.child("staying"));
        let mut manager = fixture.manager();
        let tenant = |cgroup: &Cgroup, name: &str| {
            waiting(&mut cgroup.tenant(&fixture, &["--memory", "3GiB", "--name", name], &program()))
        };
        let (mut ends, _stays) = (tenant(&ending, "ends"), tenant(&staying, "stays"));
        for cgroup in [&ending, &staying] {
            soon_limited(&fixture, cgroup, 3 * GIB);
        }
        manager.kill();
        ends.kill();
        assert_eq!(hard(&fixture, &ending), 3 * GIB);
        manager.start_again();
        soon_limited(&fixture, &ending, NONE);
        soon("it is shown", || held_by_driver(&fixture, "stays"));
        assert_eq!(hard(&fixture, &staying), 3 * GIB, "{profile}");
    }
}

#[test]
fn a_cgroup_with_a_foreign_process_is_not_limited() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let _manager = fixture.manager();
    let stranger = || Running::start(leaf.bare(&fixture, Path::new("sleep")).arg("1000"));
    let mut foreign = stranger();
    let inside = |running: &Running| {
        let procs = std::fs::read_to_string(format!("{}/cgroup.procs", leaf.path())).unwrap();
        procs.lines().any(|line| line == running.0.id().to_string())
    };
    soon("the stranger is in", || inside(&foreign));
    let quota = ["--memory", "3GiB", "--name", "shares"];
    let _tenant = waiting(&mut leaf.tenant(&fixture, &quota, &program()));
    soon("doctor says why", || {
        fixture.stdout(["doctor", "shares"]).contains(&format!("process {} is in its cgroup", foreign.0.id()))
    });
    assert_eq!((hard(&fixture, &leaf), held_by_driver(&fixture, "shares")), (NONE, false));
    foreign.kill();
    soon_limited(&fixture, &leaf, 3 * GIB);
    let mut foreign = stranger();
    soon_limited(&fixture, &leaf, NONE);
    foreign.kill();
}

#[test]
fn a_driver_without_limits_is_left_alone_and_nothing_is_said() {
    let (fixture, Some(leaf)) = (Fixture::with_profile("h200-580"), Cgroup::new()) else { return };
    let manager = fixture.manager();
    let quota = ["--memory", "3GiB", "--name", "plain"];
    let _tenant = waiting(&mut leaf.tenant(&fixture, &quota, &program()));
    std::thread::sleep(LOOKED_AGAIN);
    let told = fixture.stdout(["doctor", "plain"]);
    assert!(told.contains("held by: library\n"), "{told}");
    assert!(!held_by_driver(&fixture, "plain"));
    assert!(!fixture.events().contains(REFUSED) && !manager.log().contains("limit of cgroup"));
    assert!(!manager.state().join("driver-limits.json").exists());
}

#[test]
fn what_nvml_refuses_is_told_once_and_tenants_go_on() {
    let Some(parent) = Cgroup::new() else { return };
    let (fixture, one, two) = (Fixture::with_profile(DMEM), parent.child("one"), parent.child("two"));
    let weak = ["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"];
    let whole = fixture.manager_command(&[]);
    let mut command = Command::new("setpriv");
    command.args(weak).arg(whole.get_program()).args(whole.get_args());
    for (name, value) in whole.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let _manager = Running::start(&mut command);
    soon("the manager is ready", || fixture.manager_socket().exists());
    let tenant = |cgroup: &Cgroup, name: &str| {
        waiting(&mut cgroup.tenant(&fixture, &["--memory", "3GiB", "--name", name], &program()))
    };
    let _tenants = [tenant(&one, "one"), tenant(&two, "two")];
    soon("it is told", || fixture.events().contains(REFUSED));
    std::thread::sleep(LOOKED_AGAIN);
    let events = fixture.events();
    assert_eq!(events.matches(REFUSED).count(), 1, "{events}");
    assert!(events.contains("CAP_SYS_ADMIN"), "{events}");
    assert_eq!(hard(&fixture, &one), NONE);
    let told = fixture.stdout(["doctor", "two"]);
    assert!(told.contains("held by: library (not by the driver: NVML refuses"), "{told}");
}
