//! Rights at the manager's socket: processes of other users and groups, as the kernel names them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use vcuda_tests::{OtherUsers, is_other_users, succeeded, text};

/// Group that may look.
const VIEWERS: &str = "61001";
/// Group that may change.
const OPERATORS: &str = "61002";
const ALICE: &str = "61003";

#[test]
fn a_viewer_sees_all_and_changes_nothing() {
    if !is_other_users() {
        return;
    }
    let node = OtherUsers::new();
    let manager = node.manager(&format!("[api]\ngroup = {OPERATORS:?}\nviewers = [{VIEWERS:?}]\n"));
    node.fixture.grant("web", &["--memory", "2GiB", "--cores", "20"]);
    let before = node.fixture.stdout(["grant", "list", "--json"]);
    // By its own group, and by a supplementary one.
    for groups in [&[VIEWERS][..], &[ALICE, VIEWERS]] {
        let viewer = |args: &[&str]| node.vcuda(&manager.socket(), ALICE, groups, args);
        for args in [&["smi"][..], &["ps"], &["events"], &["grant", "list"], &["gpu", "list"]] {
            succeeded(&viewer(args));
        }
        assert!(succeeded(&viewer(&["smi"])).contains("web-1"));
        for (args, method) in [
            (&["grant", "create", "own", "--memory", "1GiB"][..], "Grants/Create"),
            (&["set", "web", "--memory", "3GiB"], "Grants/Resize"),
            (&["grant", "release", "web"], "Grants/Release"),
            (&["gpu", "cordon", "0"], "Node/Cordon"),
        ] {
            let refused = viewer(args);
            let said = text(&refused);
            assert_eq!(refused.status.code(), Some(1), "{said}");
            for words in [ALICE, method, "may look and not change", OPERATORS, "api.group"] {
                assert!(said.contains(words), "{words}: {said}");
            }
        }
    }
    assert_eq!(node.fixture.stdout(["grant", "list", "--json"]), before);
    let counted = manager.metrics();
    assert!(counted.contains("PERMISSION_DENIED"), "{counted}");
}

#[test]
fn a_member_of_the_managers_group_changes_and_a_stranger_sees_nothing() {
    if !is_other_users() {
        return;
    }
    let node = OtherUsers::new();
    let manager = node.manager(&format!("[api]\ngroup = {OPERATORS:?}\nviewers = [{VIEWERS:?}]\n"));
    let operator = |args: &[&str]| node.vcuda(&manager.socket(), ALICE, &[ALICE, OPERATORS], args);
    succeeded(&operator(&["grant", "create", "web", "--memory", "2GiB"]));
    succeeded(&operator(&["set", "web", "--memory", "3GiB"]));
    let stranger = |args: &[&str]| node.vcuda(&manager.socket(), ALICE, &[ALICE], args);
    let refused = stranger(&["grant", "list"]);
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(69), "{said}");
    for words in [ALICE, "may not use this manager", VIEWERS, OPERATORS] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // As where no manager is: the stranger's own tenants.
    let own = succeeded(&stranger(&["smi"]));
    assert!(!own.contains("web-1"), "{own}");
}

#[test]
fn without_viewers_the_sockets_mode_decides_as_before() {
    if !is_other_users() {
        return;
    }
    let node = OtherUsers::new();
    let manager = node.manager(&format!("[api]\ngroup = {OPERATORS:?}\n"));
    let mode = fs::metadata(manager.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    let of_group = node.vcuda(&manager.socket(), ALICE, &[ALICE, OPERATORS], &["grant", "create", "web"]);
    succeeded(&of_group);
    let other = node.vcuda(&manager.socket(), ALICE, &[ALICE, VIEWERS], &["grant", "list"]);
    assert_eq!(other.status.code(), Some(69), "{}", text(&other));
    assert!(text(&other).contains("not permitted"), "{}", text(&other));
}
