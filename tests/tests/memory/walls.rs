//! Two walls: the driver's memory limit of a cgroup (docs/hardware.md, "memory limits of cgroups") behind a tenant's quota, and
//! alone, for programs without the shim.

use std::path::Path;
use std::process::Command;

use vcuda_tests::cgroup::Cgroup;
use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, skip, succeeded};

pub(super) const NONE: u64 = u64::MAX;
pub(super) const CONTEXT: u64 = 480 * MIB;
pub(super) const DMEM: &str = "r615-dmem";
pub(super) const MISC: &str = "r615-misc";

/// Codes of NVML.
const NOT_SUPPORTED: u64 = 3;
const NO_PERMISSION: u64 = 4;
const NOT_FOUND: u64 = 6;
const FUNCTION_NOT_FOUND: u64 = 13;

pub(super) fn program() -> std::path::PathBuf {
    app("walls", Door::Dlsym)
}

/// The numbers of each line that the program prints.
fn told(command: &mut Command, words: &[&str]) -> Vec<Vec<u64>> {
    let said = succeeded(&command.args(words).output().unwrap());
    let numbers = |line: &str| line.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
    said.lines().map(numbers).collect()
}

/// What it prints on the host, outside of the cgroups of the test.
pub(super) fn on_host(fixture: &Fixture, words: &[&str]) -> Vec<Vec<u64>> {
    told(&mut fixture.bare(program()), words)
}

fn set(fixture: &Fixture, cgroup: &Cgroup, soft: u64, hard: u64) -> u64 {
    on_host(fixture, &["set", cgroup.path(), &soft.to_string(), &hard.to_string()])[0][0]
}

/// Soft and hard limit and use of a cgroup.
fn get(fixture: &Fixture, cgroup: &Cgroup) -> [u64; 3] {
    let [0, soft, hard, used] = on_host(fixture, &["get", cgroup.path()])[0][..] else { panic!("refused") };
    [soft, hard, used]
}

fn bytes_taken(fixture: &Fixture, cgroup: &Cgroup) -> u64 {
    bytes_taken_by(&mut cgroup.bare(fixture, &program()))
}

pub(super) fn bytes_taken_by(command: &mut Command) -> u64 {
    told(command, &["fill"])[0][0]
}

#[test]
fn a_program_without_the_shim_stops_at_the_limit_and_sees_it() {
    for profile in [DMEM, MISC] {
        let (fixture, Some(leaf)) = (Fixture::with_profile(profile), Cgroup::new()) else { return };
        assert_eq!(set(&fixture, &leaf, 0, 2 * GIB), 0, "{profile}");
        assert_eq!(bytes_taken(&fixture, &leaf), 2 * GIB - CONTEXT, "{profile}");
        let [free, total, device, free_v1, total_v1, free_v2, total_v2] =
            told(&mut leaf.bare(&fixture, &program()), &["shown"])[0][..]
        else {
            panic!()
        };
        assert_eq!(
            [total, total_v2, free, free_v2],
            [2 * GIB, 2 * GIB, 2 * GIB - CONTEXT, 2 * GIB - CONTEXT]
        );
        assert_eq!([device, total_v1, free_v1], [80 * GIB, 80 * GIB, 80 * GIB - CONTEXT], "not told of it");
        let mut running = Running::ready(leaf.bare(&fixture, &program()).args(["take", "1", "wait"]), "wait");
        assert_eq!(get(&fixture, &leaf), [0, 2 * GIB, CONTEXT + 1]);
        running.kill();
        assert_eq!(get(&fixture, &leaf), [0, 2 * GIB, 0]);
    }
}

#[test]
fn managed_memory_passes_the_drivers_limit() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    set(&fixture, &leaf, 0, GIB);
    let codes = told(&mut leaf.bare(&fixture, &program()), &["managed", "4294967296", "take", "1073741824"]);
    assert_eq!(codes, [[0], [2]]);
}

#[test]
fn with_dmem_a_parents_limit_holds_and_is_not_shown() {
    let (fixture, Some(parent)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let leaf = parent.child("leaf");
    set(&fixture, &parent, 0, 2 * GIB);
    let lines = told(&mut leaf.bare(&fixture, &program()), &["shown", "fill"]);
    assert_eq!((lines[0][1], lines[1][0]), (80 * GIB, 2 * GIB - CONTEXT));
    assert_eq!(get(&fixture, &leaf)[1], NONE);
}

#[test]
fn a_cgroup_without_files_takes_no_limit_and_inherits_what_it_is_told() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let inner = leaf.child("inner");
    inner.make_threaded();
    set(&fixture, &leaf, 0, 2 * GIB);
    assert_eq!(set(&fixture, &inner, 0, GIB), NOT_FOUND);
    assert_eq!(get(&fixture, &inner)[1], 2 * GIB);
    let missing = format!("{}/missing", leaf.path());
    assert_eq!(on_host(&fixture, &["get", &missing, "get", "/tmp"])[1][0], NOT_FOUND);
}

#[test]
fn a_removed_leaf_leaves_its_soft_limit_on_its_parent() {
    let (fixture, Some(parent)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let (kept, freed) = (parent.child("kept"), parent.child("freed"));
    for leaf in [&kept, &freed] {
        set(&fixture, leaf, GIB, 2 * GIB);
    }
    assert_eq!(get(&fixture, &parent)[0], 2 * GIB);
    set(&fixture, &freed, 0, NONE);
    drop((kept, freed));
    assert_eq!(get(&fixture, &parent)[0], GIB, "one was not set to 0 before");
    let again = parent.child("kept");
    assert_eq!(get(&fixture, &again), [0, NONE, 0], "another cgroup of the same path");
}

#[test]
fn with_misc_the_nearest_limit_alone_holds() {
    let (fixture, Some(parent)) = (Fixture::with_profile(MISC), Cgroup::new()) else { return };
    let (leaf, other) = (parent.child("leaf"), parent.child("other"));
    assert_eq!(on_host(&fixture, &["get", leaf.path()])[0][0], NOT_SUPPORTED);
    set(&fixture, &parent, 0, GIB);
    set(&fixture, &leaf, 0, 2 * GIB);
    assert_eq!(bytes_taken(&fixture, &leaf), 2 * GIB - CONTEXT);
    assert_eq!(bytes_taken(&fixture, &other), GIB - CONTEXT);
}

#[test]
fn limits_are_set_by_the_privileged_on_drivers_that_have_them() {
    let (fixture, Some(leaf)) = (Fixture::with_profile("h200-580"), Cgroup::new()) else { return };
    assert_eq!(set(&fixture, &leaf, 0, GIB), FUNCTION_NOT_FOUND);
    assert_eq!(on_host(&fixture, &["get", leaf.path()])[0][0], FUNCTION_NOT_FOUND);
    let fixture = Fixture::with_profile(DMEM);
    set(&fixture, &leaf, 0, 2 * GIB);
    let mut weak = fixture.bare("setpriv");
    weak.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]).arg(program());
    assert_eq!(
        told(&mut weak, &["set", leaf.path(), "0", "1", "get", leaf.path()])[..],
        [vec![NO_PERMISSION], vec![0, 0, 2 * GIB, 0]]
    );
    let faults = format!("mig = [\"{}\"]\n", fixture.uuid(0));
    std::fs::write(fixture.machine().join("faults.toml"), faults).unwrap();
    assert_eq!(set(&fixture, &leaf, 0, GIB), NOT_SUPPORTED);
}

#[test]
fn a_process_of_another_pid_namespace_is_bound_once_the_host_has_looked() {
    let can_unshare =
        Command::new("unshare").args(["--pid", "--fork", "true"]).status().is_ok_and(|s| s.success());
    if !can_unshare {
        return skip("memory limits of cgroups in PID namespaces: unshare is not permitted here");
    }
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    set(&fixture, &leaf, 0, 2 * GIB);
    let mut command = leaf.bare(&fixture, Path::new("unshare"));
    command.args(["--pid", "--fork", "--kill-child"]).arg(program());
    command.args(["take", "1", "wait", "fill", "shown", "wait"]);
    let mut running = Running::ready(&mut command, "wait");
    assert_eq!(get(&fixture, &leaf)[2], CONTEXT + 1);
    running.tell("");
    assert_eq!(running.wait_for("fill"), format!("fill {}", 2 * GIB - CONTEXT - 1));
    let shown = running.wait_for("shown");
    assert_eq!(shown.split(' ').nth(2), Some((2 * GIB).to_string().as_str()), "{shown}");
    running.kill();
}

/// Limits that are rounded down and up, without and with the driver's.
#[test]
fn a_tenant_sees_the_same_figures_with_both_walls() {
    const QUOTA: u64 = 3 * GIB + 1000;
    let (fixture, Some(free)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let quota = ["--memory", &format!("{QUOTA}B")];
    let shown = |fixture: &Fixture, cgroup: &Cgroup, words: &[&str]| {
        told(&mut cgroup.tenant(fixture, &quota, &program()), &[&["shown"], words].concat())
    };
    let one = shown(&fixture, &free, &["fill"]);
    assert_eq!(one[0][1..3], [QUOTA; 2]);
    for profile in [DMEM, MISC] {
        let (fixture, Some(leaf)) = (Fixture::with_profile(profile), Cgroup::new()) else { return };
        set(&fixture, &leaf, 0, QUOTA + 64 * 1024);
        assert_eq!(shown(&fixture, &leaf, &["fill"]), one, "{profile}");
        // A driver's limit below the quota, as one of the same size that is rounded down, takes nothing off the total.
        set(&fixture, &leaf, 0, QUOTA - 64 * 1024);
        let both = &shown(&fixture, &leaf, &[])[0];
        assert_eq!(([both[1], both[2], both[4], both[6]], both[0] <= one[0][0]), ([QUOTA; 4], true));
        assert_eq!([both[3], both[5]], [both[0]; 2], "one truth");
    }
}

#[test]
fn what_the_driver_refuses_within_the_quota_is_out_of_memory_and_counted_apart() {
    let (fixture, Some(leaf)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    set(&fixture, &leaf, 0, 2 * GIB);
    let quota = ["--memory", "4GiB", "--name", "behind"];
    let mut command = leaf.tenant(&fixture, &quota, &program());
    let mut running =
        Running::ready(command.args(["take", "3221225472", "take", "1073741824", "wait"]), "wait");
    let counted = fixture.tenant_shown("behind");
    assert_eq!((&counted["room_denied"], &counted["memory_denied"]), (&1.into(), &0.into()), "{counted}");
    running.kill();
}

#[test]
fn a_tenant_is_told_its_quota_for_its_cgroup_and_nothing_of_others() {
    let (fixture, Some(parent)) = (Fixture::with_profile(DMEM), Cgroup::new()) else { return };
    let (leaf, foreign) = (parent.child("leaf"), parent.child("foreign"));
    // With a guarantee, which the manager leaves alone.
    set(&fixture, &leaf, GIB, 4 * GIB);
    set(&fixture, &foreign, GIB, 5 * GIB);
    let words = [
        "take",
        "1",
        "get",
        leaf.path(),
        "get",
        foreign.path(),
        "get",
        parent.path(),
        "set",
        leaf.path(),
        "0",
        "1",
    ];
    let lines = told(&mut leaf.tenant(&fixture, &["--memory", "3GiB"], &program()), &words);
    assert_eq!(lines[1], [0, GIB, 3 * GIB, CONTEXT + 1]);
    assert_eq!(lines[2..], [vec![NO_PERMISSION, 0, 0, 0], vec![NO_PERMISSION, 0, 0, 0], vec![NO_PERMISSION]]);
    assert_eq!(get(&fixture, &leaf)[1], 4 * GIB);
}
