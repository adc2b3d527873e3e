//! The driver's own memory is charged: the tenant's figure equals the GPU's at all times. A quota without room for it
//! refuses only that (I7, I9).

mod drivers;
mod places;
mod questions;
mod slow_nvml;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use vcuda_tests::{Door, Fixture, GIB, MIB, Running, app, eventually, release_dir};

/// Sizes that are no multiples of anything.
const MACHINE: &str = "context_bytes = 503333333\nmodule_bytes = 7654321\ngreen_context_bytes = 5555555\n\
                       [[gpus]]\nmemory_bytes = \"40GiB\"\n";

fn start(command: &mut Command) -> Running {
    Running::start(command.stdin(Stdio::piped()))
}

/// A library folder with only the driver.
fn without_nvml(folder: &Path) -> String {
    let driver = release_dir().join("libvcuda_simulator_cuda.so");
    std::os::unix::fs::symlink(driver, folder.join("libcuda.so.1")).unwrap();
    folder.display().to_string()
}

fn listed(has_nvml: bool) -> &'static str {
    if has_nvml { "listed" } else { "unlisted" }
}

/// Runs all steps beside another process of the tenant, and compares after each.
fn follows(fixture: &Fixture, [mut hold, mut steps]: [Command; 2], is_listed: bool) {
    let mut sits = Running::start(hold.arg((300 * MIB).to_string()));
    sits.wait_for("holding");
    let mut steps = start(steps.args(["steps", listed(is_listed)]));
    let mut seen = Vec::new();
    loop {
        let step = steps.wait_for("");
        let Some(step) = step.strip_prefix("did ") else {
            assert_eq!(step, "passed overhead", "after {seen:?}");
            break;
        };
        let (mut container, mut gpu) = (0, 0);
        // Memory that no call announced is counted within a second.
        let what = format!("{step}: the container's figure is the GPU's; before: {seen:?}");
        eventually(&what, Duration::from_secs(1), || {
            steps.tell("ask");
            container = steps.wait_for("used ")[5..].parse::<u64>().unwrap();
            gpu = fixture.used_bytes();
            container.abs_diff(gpu) <= (gpu / 50).max(64 * MIB)
        });
        seen.push((step.to_owned(), container, gpu));
        steps.tell("on");
    }
    assert_eq!(seen.len(), 17, "{seen:?}");
    // The steps had an effect: the figures rose by more than the tolerance, and fell again.
    let highest = seen.iter().map(|(_, container, _)| *container).max().unwrap();
    assert!(highest > seen[0].1 + GIB, "{seen:?}");
    assert!(seen[16].1.abs_diff(seen[0].1) <= 64 * MIB, "{seen:?}");
    assert!(steps.finish().success());
}

#[test]
fn the_figure_is_the_gpus_whatever_comes_and_goes() {
    for profile in ["h200-580", "mps"] {
        let fixture = Fixture::with_config(&format!("profile = \"{profile}\"\n{MACHINE}"));
        let tenant = fixture.keep("steps", &["--memory", "20GiB"]);
        let commands = ["hold", "overhead"].map(|name| tenant.command(app(name, Door::Dlsym)));
        follows(&fixture, commands, true);
    }
}

/// The shim uses the driver's free memory before and after each call, which does not show memory taken by a launch
/// (docs/limits.md).
#[test]
fn the_figure_is_the_gpus_without_nvml() {
    let fixture = Fixture::with_config(MACHINE);
    let folder = tempfile::tempdir().unwrap();
    let only = without_nvml(folder.path());
    let tenant = fixture.keep("steps", &["--memory", "20GiB"]);
    let commands = ["hold", "overhead"].map(|name| {
        let mut command = tenant.command(app(name, Door::Dlsym));
        command.env("LD_LIBRARY_PATH", &only);
        command
    });
    follows(&fixture, commands, false);
}

/// The shim uses the manager's NVML, as the container's own gives no figures.
#[test]
fn the_figure_is_the_gpus_where_the_manager_tells() {
    let fixture = Fixture::with_config(&format!("profile = \"a100-535-container\"\n{MACHINE}"));
    let _manager = fixture.manager();
    let Some(room) = places::granted(&fixture, "a", "20GiB") else {
        return;
    };
    follows(&fixture, ["hold", "overhead"].map(|name| places::within(&room, name)), true);
}

/// A context that does not fit is refused at its creation, and leaves nothing in the driver or the accounts. With a larger
/// quota it is made; then a second one is refused, as is growth of the first beyond the quota.
#[test]
fn a_context_that_does_not_fit_is_refused_and_leaves_nothing() {
    for has_nvml in [true, false] {
        let fixture = Fixture::with_config(MACHINE);
        let folder = tempfile::tempdir().unwrap();
        let tenant = fixture.keep("tight", &["--memory", "200MiB"]);
        let mut command = tenant.command(app("overhead", Door::Dlsym));
        if !has_nvml {
            command.env("LD_LIBRARY_PATH", without_nvml(folder.path()));
        }
        let mut process = start(command.args(["refused", listed(has_nvml)]));
        assert_eq!(process.wait_for(""), "did refuse");
        assert_eq!(fixture.used_bytes(), 0);
        let smi = tenant.smi(0);
        assert_eq!(smi["memory_used_bytes"], 0, "{smi}");
        assert!(smi["processes"].as_array().unwrap().is_empty(), "{smi}");
        fixture.stdout(["set", "tight", "--memory", "900MiB"]);
        process.tell("on");
        assert_eq!(process.wait_for(""), "did fit once");
        let (books, gpu) = (tenant.used_bytes(), fixture.used_bytes());
        assert!(books.abs_diff(gpu) <= 64 * MIB, "{books} against {gpu}");
        assert!(books <= 900 * MIB);
        process.tell("on");
        process.wait_for("passed overhead");
        assert!(process.finish().success());
        eventually("all is given back", Duration::from_secs(1), || fixture.used_bytes() == 0);
    }
}

/// What a heap takes at most is reserved before the driver is asked: one that does not fit is not even taken for a moment.
#[test]
fn a_heap_beyond_the_quota_takes_nothing_from_a_neighbour() {
    let fixture = Fixture::with_gpus(1, "12GiB");
    let program = app("heaps", Door::Dlsym);
    let mut raises = start(fixture.tenant(&["--memory", "2GiB"], &program).args(["limit", "8192", "100000"]));
    let mut allocates =
        start(fixture.tenant(&["--memory", "8GiB"], &program).args(["alloc", "7168", "300000"]));
    for one in [&mut raises, &mut allocates] {
        one.wait_for("started");
    }
    for one in [&mut raises, &mut allocates] {
        one.tell("go");
    }
    for one in [&mut raises, &mut allocates] {
        one.wait_for("passed heaps");
    }
}
