//! The manager sets the driver's memory limit of a tenant's cgroup behind the quota (manager/src/driver_limits.rs).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vcuda_tests::cgroup::Cgroup;
use vcuda_tests::{Fixture, GIB, MIB, Running, compile, soon};

use super::walls::{CONTEXT, DMEM, MISC, NONE, bytes_taken_by, on_host, program};

/// Time in which the manager has looked again at tenants that do not change.
pub(super) const LOOKED_AGAIN: Duration = Duration::from_secs(7);
const REFUSED: &str = "VcudaDriverLimitRefused";

/// Hard limit of a cgroup.
fn hard(fixture: &Fixture, cgroup: &Cgroup) -> u64 {
    hard_on(fixture, cgroup, 0)
}

fn hard_on(fixture: &Fixture, cgroup: &Cgroup, gpu: usize) -> u64 {
    match on_host(fixture, &["gpu", &gpu.to_string(), "get", cgroup.path()])[0][..] {
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
        assert!(fixture.stdout(["smi"]).contains("the driver holds its memory, too"));
        let details = fixture.stdout(["smi", "-q"]);
        assert!(details.contains("Memory Held By"), "{details}");
        assert!(details.contains(": library and driver"), "{details}");
        assert_eq!(manager.metric("vcuda_driver_limit", "container=\"walled\""), 1.0);
        fixture.stdout(["set", "walled", "--memory", "4GiB"]);
        soon_limited(&fixture, &leaf, 4 * GIB);
        tenant.kill();
        soon_limited(&fixture, &leaf, NONE);
        assert!(!fixture.events().contains(REFUSED));
    }
}

/// The two answers of docs/limits.md, "Programs that escape": a program without the shim, as static and musl ones are, and a driver
/// in a link-map namespace of its own.
#[test]
fn what_escapes_the_library_stops_at_the_drivers_limit() {
    const QUOTA: u64 = 1536 * MIB;
    let folder = tempfile::tempdir().unwrap();
    let (host, library) = (folder.path().join("host"), folder.path().join("libplugin.so"));
    compile(&host, &["-DVIA_DLSYM", "-rdynamic", "-lpthread"], "plugins.c");
    compile(&library, &["-shared", "-fPIC"], "plugin.c");
    for (profile, is_limited) in [("h200-580", false), (DMEM, true), (MISC, true)] {
        for is_apart in [false, true] {
            let (fixture, Some(leaf)) = (Fixture::with_profile(profile), Cgroup::new()) else { return };
            let _manager = fixture.manager();
            let tenant = fixture.keep("escapes", &["--memory", &format!("{QUOTA}B")]);
            let inside = |program: &Path| {
                let mut command = tenant.command("/bin/sh");
                leaf.wrap(&mut command, program);
                command
            };
            let _holder = waiting(&mut inside(&program()));
            if is_limited {
                soon_limited(&fixture, &leaf, QUOTA);
            }
            let output = match is_apart {
                true => inside(&host).arg(&library).args(["apart", "0"]).output(),
                false => without_the_shim(&fixture, &leaf, "escapes").args(["take", "2147483648"]).output(),
            };
            let peak = fixture.peak_bytes(0);
            assert_eq!(peak <= QUOTA, is_limited, "{profile} {is_apart}: {peak}, {output:?}");
            assert!(peak > CONTEXT + 1, "it has run: {output:?}");
        }
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
fn each_gpu_of_a_grant_is_limited_to_its_quota() {
    for profile in [DMEM, MISC] {
        let machine = format!("profile = \"{profile}\"\n[[gpus]]\n[[gpus]]\n");
        let (fixture, Some(leaf)) = (Fixture::with_config(&machine), Cgroup::new()) else { return };
        let _manager = fixture.manager();
        fixture.grant("wide", &["--gpus", "2", "--memory", "3GiB"]);
        let mut command = fixture.in_grant("wide", "/bin/sh");
        leaf.wrap(&mut command, &program());
        let _tenant = waiting(&mut command);
        soon_limited(&fixture, &leaf, 3 * GIB);
        soon("the other one is", || hard_on(&fixture, &leaf, 1) == 3 * GIB);
        soon("it is shown", || held_by_driver(&fixture, "wide-1"));
    }
}

/// Containers that share a claim: the driver's limit of each is the whole quota, and the library's sum is exact.
#[test]
fn each_cgroup_of_a_tenant_has_the_whole_quota_and_all_together_no_more() {
    let (fixture, Some(parent)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let _manager = fixture.manager();
    let tenant = fixture.keep("shared", &["--memory", "3GiB"]);
    let cgroups = [parent.child("one"), parent.child("other")];
    let inside = |cgroup: &Cgroup| {
        let mut command = tenant.command("/bin/sh");
        cgroup.wrap(&mut command, &program());
        command
    };
    let _holders = cgroups.each_ref().map(|cgroup| waiting(&mut inside(cgroup)));
    for cgroup in &cgroups {
        soon_limited(&fixture, cgroup, 3 * GIB);
    }
    soon("it is shown", || held_by_driver(&fixture, "shared"));
    assert_eq!(bytes_taken_by(&mut inside(&cgroups[0])), 3 * GIB - 2 - 3 * CONTEXT);
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

/// As in a container of its own: the cgroups of others have no path in its namespace.
#[test]
fn a_manager_in_a_cgroup_namespace_limits_the_cgroups_of_others() {
    let (fixture, Some(parent)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let (own, leaf) = (parent.child("manager"), parent.child("tenant"));
    let mut launcher = Command::new("/bin/sh");
    own.wrap(&mut launcher, Path::new("unshare"));
    launcher.arg("--cgroup");
    let mut manager = fixture.manager_through(launcher);
    let mut tenant =
        waiting(&mut leaf.tenant(&fixture, &["--memory", "3GiB", "--name", "beside"], &program()));
    soon_limited(&fixture, &leaf, 3 * GIB);
    tenant.kill();
    manager.kill();
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
