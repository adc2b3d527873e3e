//! What docs/operations.md says of draining a node, of an upgrade and of the way back, with real managers and running programs.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use vcuda_tests::{Commanded, Door, Fixture, GIB, app, release_dir, succeeded, text};

fn vcuda(fixture: &Fixture, args: &[&str]) -> String {
    succeeded(&fixture.vcuda(args).output().unwrap())
}

fn refused(fixture: &Fixture, args: &[&str]) -> String {
    let output = fixture.vcuda(args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    text(&output)
}

fn program(fixture: &Fixture, grant: &str) -> Commanded {
    let mut command = fixture.vcuda(["run", "--sim", "--grant", grant, "--"]);
    Commanded::start(command.arg(app("obey", Door::Dlsym)))
}

#[test]
fn a_drained_node_ends_nothing_and_takes_nothing_until_it_is_uncordoned() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let mut manager = fixture.manager();
    vcuda(&fixture, &["grant", "create", "web", "--memory", "2GiB", "--cores", "20"]);
    let mut running = program(&fixture, "web");
    vcuda(&fixture, &["gpu", "cordon", "0", "1"]);
    assert!(refused(&fixture, &["grant", "create", "new", "--memory", "1GiB"]).contains("cordoned"));
    running.fills_to_the_byte();
    assert!(vcuda(&fixture, &["ps"]).contains("web-1"));
    assert!(refused(&fixture, &["grant", "release", "web"]).contains("in use"));
    drop(running);
    vcuda(&fixture, &["grant", "release", "web"]);
    manager.signal(libc::SIGTERM);
    assert!(manager.finish().success());
    manager.start_again();
    assert!(refused(&fixture, &["grant", "create", "new", "--memory", "1GiB"]).contains("cordoned"));
    vcuda(&fixture, &["gpu", "uncordon", "0", "1"]);
    vcuda(&fixture, &["grant", "create", "new", "--memory", "1GiB"]);
}

/// Puts this build's programs in a folder, as a package does: each file is replaced by rename.
fn install(folder: &Path) {
    for name in ["vcuda-manager", "libvcuda_shim.so"] {
        let new = folder.join(format!(".{name}"));
        fs::copy(release_dir().join(name), &new).unwrap();
        fs::rename(&new, folder.join(name)).unwrap();
    }
}

/// The grants without what a manager of the same build may not know.
fn grants(fixture: &Fixture) -> Vec<Value> {
    let list: Value = serde_json::from_str(&vcuda(fixture, &["grant", "list", "--json"])).unwrap();
    let mut grants = list["grants"].as_array().unwrap().clone();
    for grant in &mut grants {
        if let Some(temporary) = grant["temporary"].as_object_mut() {
            temporary.remove("remaining_seconds");
        }
    }
    grants
}

#[test]
fn an_upgrade_and_the_way_back_keep_programs_grants_cordons_users_and_times() {
    let fixture = Fixture::with_gpus(2, "24GiB");
    let place = TempDir::new().unwrap();
    install(place.path());
    let shim = place.path().join("libvcuda_shim.so");
    let args = ["--shim-library", shim.to_str().unwrap()];
    let mut manager = fixture.manager_of(place.path(), &args);
    vcuda(&fixture, &["grant", "create", "web", "--memory", "2GiB", "--cores", "20", "--gpu", "0"]);
    vcuda(&fixture, &["grant", "create", "own", "--memory", "1GiB", "--user", "65534", "--gpu", "0"]);
    vcuda(&fixture, &["set", "web", "--memory", "3GiB", "--for", "1h"]);
    vcuda(&fixture, &["gpu", "cordon", "1"]);
    let mut running = program(&fixture, "web");
    let before = grants(&fixture);
    assert_eq!(before[0]["temporary"]["then_memory_bytes"], 2 * GIB);
    assert_eq!(before[1]["user_uid"], 65534);
    // The upgrade, then the way back: the program on disk is replaced while the other still runs.
    for turn in ["upgrade", "rollback"] {
        install(place.path());
        running.lives();
        manager.signal(libc::SIGTERM);
        assert!(manager.finish().success(), "{turn}");
        running.fills_to_the_byte();
        manager.start_again();
        assert_eq!(grants(&fixture), before, "{turn}");
        assert!(
            refused(&fixture, &["grant", "create", "x", "--memory", "1GiB", "--gpu", "1"])
                .contains("cordoned")
        );
        running.fills_to_the_byte();
        assert_eq!(running.info().1, 3 * GIB, "{turn}");
    }
    vcuda(&fixture, &["set", "web", "--memory", "4GiB"]);
    assert_eq!(running.info().1, 4 * GIB);
}
