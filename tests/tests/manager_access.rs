//! Rights at the manager's socket: processes of other users and groups, as the kernel names them.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use vcuda_tests::{Fixture, Manager, release_dir, skip, succeeded, text};

/// Group that may look.
const VIEWERS: &str = "61001";
/// Group that may change.
const OPERATORS: &str = "61002";
const ALICE: &str = "61003";

fn is_able() -> bool {
    let tried = Command::new("setpriv").args(["--reuid", ALICE, "true"]).output();
    let is_able = tried.is_ok_and(|tried| tried.status.success());
    if !is_able {
        skip("rights of other users: this user cannot become another (setpriv)");
    }
    is_able
}

/// A node whose socket others can reach, and `vcuda` where they can execute it.
struct Node {
    fixture: Fixture,
    place: TempDir,
}

impl Node {
    fn new() -> Self {
        let fixture = Fixture::new();
        // The machine is made before anybody else looks.
        succeeded(&fixture.bare("true").output().unwrap());
        let place = tempfile::tempdir().unwrap();
        open(place.path());
        open(fixture.home());
        open(&fixture.runtime());
        fs::copy(release_dir().join("vcuda"), place.path().join("vcuda")).unwrap();
        Self { fixture, place }
    }

    fn manager(&self, configuration: &str) -> Manager<'_> {
        let file = self.place.path().join("manager.toml");
        fs::write(&file, configuration).unwrap();
        let manager = self.fixture.manager_with(&["--config", file.to_str().unwrap()]);
        // As the unit's RuntimeDirectory= makes it; `vcuda sim` made it for one user alone.
        open(&self.fixture.runtime().join("vcuda"));
        manager
    }

    /// `vcuda` of a user with these groups, the first of which is its own.
    fn vcuda(&self, manager: &Manager<'_>, user: &str, groups: &[&str], args: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", groups[0]]);
        match groups.get(1..).filter(|more| !more.is_empty()) {
            Some(more) => command.args(["--groups", &more.join(",")]),
            None => command.arg("--clear-groups"),
        };
        command.arg(self.place.path().join("vcuda")).args(args);
        self.fixture.environment(&mut command);
        command
            .env("VCUDA_MANAGER", manager.socket())
            .env("XDG_RUNTIME_DIR", self.own_runtime(user))
            .env("VCUDA_SIM", self.own_runtime(user).join("machine"))
            .output()
            .unwrap()
    }

    /// A runtime directory of this user.
    fn own_runtime(&self, user: &str) -> PathBuf {
        let folder = self.place.path().join(format!("run-{user}"));
        if !folder.exists() {
            fs::create_dir(&folder).unwrap();
            std::os::unix::fs::chown(&folder, Some(user.parse().unwrap()), None).unwrap();
        }
        folder
    }
}

fn open(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_viewer_sees_all_and_changes_nothing() {
    if !is_able() {
        return;
    }
    let node = Node::new();
    let manager = node.manager(&format!(
        "[api]\ngroup = {OPERATORS:?}\nviewers = [{VIEWERS:?}]\n"
    ));
    let by_root = |args: &[&str]| succeeded(&node.fixture.vcuda(args).output().unwrap());
    by_root(&["grant", "create", "web", "--memory", "2GiB", "--cores", "20"]);
    let before = by_root(&["grant", "list", "--json"]);
    // By its own group, and by a supplementary one.
    for groups in [&[VIEWERS][..], &[ALICE, VIEWERS]] {
        let viewer = |args: &[&str]| node.vcuda(&manager, ALICE, groups, args);
        for args in [
            &["smi"][..],
            &["ps"],
            &["events"],
            &["grant", "list"],
            &["gpu", "list"],
        ] {
            succeeded(&viewer(args));
        }
        assert!(succeeded(&viewer(&["smi"])).contains("web-1"));
        for (args, method) in [
            (
                &["grant", "create", "own", "--memory", "1GiB"][..],
                "Grants/Create",
            ),
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
    assert_eq!(by_root(&["grant", "list", "--json"]), before);
    let counted = manager.metrics();
    assert!(counted.contains("PERMISSION_DENIED"), "{counted}");
}

#[test]
fn a_member_of_the_managers_group_changes_and_a_stranger_sees_nothing() {
    if !is_able() {
        return;
    }
    let node = Node::new();
    let manager = node.manager(&format!(
        "[api]\ngroup = {OPERATORS:?}\nviewers = [{VIEWERS:?}]\n"
    ));
    let operator = |args: &[&str]| node.vcuda(&manager, ALICE, &[ALICE, OPERATORS], args);
    succeeded(&operator(&["grant", "create", "web", "--memory", "2GiB"]));
    succeeded(&operator(&["set", "web", "--memory", "3GiB"]));
    let stranger = |args: &[&str]| node.vcuda(&manager, ALICE, &[ALICE], args);
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
    if !is_able() {
        return;
    }
    let node = Node::new();
    let manager = node.manager(&format!("[api]\ngroup = {OPERATORS:?}\n"));
    let mode = fs::metadata(manager.socket()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    let of_group = node.vcuda(&manager, ALICE, &[ALICE, OPERATORS], &["grant", "create", "web"]);
    succeeded(&of_group);
    let other = node.vcuda(&manager, ALICE, &[ALICE, VIEWERS], &["grant", "list"]);
    assert_eq!(other.status.code(), Some(69), "{}", text(&other));
    assert!(text(&other).contains("not permitted"), "{}", text(&other));
}
