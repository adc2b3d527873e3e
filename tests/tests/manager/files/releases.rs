//! Files of other releases, and exchange of the library under running processes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vcuda_region::layout::{OLDEST_VERSION, VERSION};
use vcuda_tests::{Commanded, Door, Fixture, MIB, app, eventually, of_release, release_dir, text};

use super::{CONTEXT, QUOTA, SMALL_CONTEXTS, ends, obey};

#[test]
fn files_of_a_release_before_and_after() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    for (name, version, compatible, appended) in
        [("before", OLDEST_VERSION, OLDEST_VERSION, 0), ("after", VERSION + 1, VERSION, 4096)]
    {
        let tenant = fixture.keep(name, &QUOTA);
        of_release(&tenant.directory(), version, compatible, appended);
        let (mut one, mut other) = (obey(&tenant), obey(&tenant));
        assert_eq!(other.info(), (64 * MIB - 2 * CONTEXT, 64 * MIB));
        assert_eq!(one.alloc(MIB), Some(0));
        other.fills_to_the_byte();
        one.fills_to_the_byte();
        assert_eq!(tenant.used_bytes(), MIB + 2 * CONTEXT);
        let joined = ends(fixture.tenant(&["--name", name], "echo").arg("joined"));
        assert_eq!(text(&joined).trim(), "exit status: 0\njoined");
        let set = ends(&mut fixture.vcuda(["set", name, "--memory", "96MiB"]));
        assert!(set.status.success(), "{}", text(&set));
        eventually("the new limit", Duration::from_millis(500), || other.info().1 == 96 * MIB);
        other.fills_to_the_byte();
    }
}

#[test]
fn files_of_a_release_that_does_not_go_together() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    for (name, version, appended) in [("before", OLDEST_VERSION - 1, 0), ("after", VERSION + 1, 4096)] {
        let tenant = fixture.keep(name, &QUOTA);
        of_release(&tenant.directory(), version, version, appended);
        let before = fs::read(tenant.directory().join("limits")).unwrap();
        let says = [
            format!("has layout version {version}"),
            format!("this program uses {OLDEST_VERSION} to {VERSION}"),
            "use the vcuda release that made it".to_owned(),
        ];
        // The shim grants no memory, and logs the reason.
        let log = fixture.runtime().join(name);
        let mut command = tenant.command(app("obey", Door::Dlsym));
        let inside = ends(command.env("VCUDA_LOG", &log));
        assert_eq!(inside.status.code(), Some(1), "{}", text(&inside));
        let logged = fs::read_to_string(&log).unwrap();
        assert!(says.iter().all(|words| logged.contains(words)), "{logged}");
        // Commands that change or join are refused.
        let set = ends(&mut fixture.vcuda(["set", name, "--memory", "96MiB"]));
        let join = ends(fixture.tenant(&["--name", name], "echo").arg("joined"));
        let join_with_quota =
            ends(fixture.tenant(&["--name", name, "--memory", "1GiB"], "echo").arg("joined"));
        for output in [set, join, join_with_quota] {
            assert_eq!(output.status.code(), Some(1), "{}", text(&output));
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(says.iter().all(|part| words.contains(part)), "{words}");
            assert_eq!(words.trim().lines().count(), 1, "{words}");
            assert!(output.stdout.is_empty(), "{}", text(&output));
        }
        // Commands that show report that one is missing.
        let smi = ends(&mut fixture.vcuda(["smi"]));
        assert!(smi.status.success(), "{}", text(&smi));
        let words = String::from_utf8_lossy(&smi.stderr).into_owned();
        assert!(
            words.contains("a tenant is not shown") && says.iter().all(|part| words.contains(part)),
            "{words}"
        );
        assert_eq!(fs::read(tenant.directory().join("limits")).unwrap(), before);
        assert_eq!(fixture.used_bytes(), 0);
    }
}

/// A separate installation.
fn installation() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for name in ["vcuda", "vcuda-manager", SHIM, "libvcuda_simulator_cuda.so", "libvcuda_simulator_nvml.so"] {
        fs::copy(release_dir().join(name), home.path().join(name)).unwrap();
    }
    home
}

/// Replaces the library by another file with the same code but other bytes.
fn replace_by_another_build(installed: &Path) {
    let build = installed.with_file_name("new");
    let mut bytes = fs::read(installed).unwrap();
    bytes.extend_from_slice(b"another build");
    fs::write(&build, bytes).unwrap();
    fs::set_permissions(&build, fs::metadata(installed).unwrap().permissions()).unwrap();
    fs::rename(&build, installed).unwrap();
}

#[test]
fn the_library_is_exchanged_under_running_processes() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let home = installation();
    let installed = home.path().join(SHIM);
    let mut run = Command::new(home.path().join("vcuda"));
    run.args(["run", "--sim", "--name", "old", "--memory", "64MiB", "--", "/bin/sh", "-c"]);
    run.args(["\"$0\"; exec sleep 1000"]).arg(app("obey", Door::Dlsym));
    fixture.environment(&mut run);
    let mut old = Commanded::start(&mut run);
    let old_library = mapped(&old);
    assert_eq!(old_library, inode(&installed));
    assert_eq!(old.alloc(MIB), Some(0));

    replace_by_another_build(&installed);
    let mut join = Command::new(home.path().join("vcuda"));
    join.args(["run", "--sim", "--name", "old", "--"]).arg(app("obey", Door::Dlsym));
    fixture.environment(&mut join);
    let mut new = Commanded::start(&mut join);
    let new_library = mapped(&new);
    assert_ne!(new_library, old_library);
    assert_eq!(new_library, inode(&installed));
    assert_eq!(mapped(&old), old_library);
    // Both builds share one account, exact to the byte.
    let contexts = 2 * CONTEXT;
    assert_eq!(new.info(), (63 * MIB - contexts, 64 * MIB));
    old.fills_to_the_byte();
    new.fills_to_the_byte();
    let (left, _) = old.info();
    assert_eq!(old.alloc(left / 2), Some(0));
    assert_eq!(new.alloc(left - left / 2 + 1), Some(2));
    assert_eq!(new.alloc(left - left / 2), Some(0));
    assert_eq!(old.alloc(1), Some(2));

    // Deleted: running processes continue, and `vcuda` names the missing file before it starts a command.
    fs::remove_file(&installed).unwrap();
    old.free();
    new.free();
    old.fills_to_the_byte();
    new.fills_to_the_byte();
    let mut late = Command::new(home.path().join("vcuda"));
    late.args(["run", "--sim", "--memory", "1GiB", "--", "true"]);
    fixture.environment(&mut late);
    let refused = ends(&mut late);
    assert_eq!(refused.status.code(), Some(69), "{}", text(&refused));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(SHIM));
}

const SHIM: &str = "libvcuda_shim.so";

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// Inode of the shim mapped by the tenant's process.
fn mapped(process: &Commanded) -> u64 {
    let children = format!("/proc/{0}/task/{0}/children", process.0.0.id());
    let children = fs::read_to_string(children).unwrap();
    let pid = children.split_whitespace().next().map_or(process.0.0.id(), |pid| pid.parse().unwrap());
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let line = maps.lines().find(|line| line.contains(SHIM)).unwrap();
    line.split_whitespace().nth(4).unwrap().parse().unwrap()
}
