//! Commands of other users against a manager.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::{Fixture, Manager, release_dir, skip, succeeded};

/// Whether this process can become another user. If not, the test's skip is reported.
pub fn is_other_users() -> bool {
    let tried = Command::new("setpriv").args(["--reuid", "61000", "true"]).output();
    let is_able = tried.is_ok_and(|tried| tried.status.success());
    if !is_able {
        skip("rights of other users: this user cannot become another (setpriv)");
    }
    is_able
}

/// A node whose socket other users can reach, and `vcuda` where they can execute it.
#[derive(Debug)]
pub struct OtherUsers {
    /// The node.
    pub fixture: Fixture,
    place: TempDir,
}

impl Default for OtherUsers {
    fn default() -> Self {
        Self::new()
    }
}

impl OtherUsers {
    /// A node with one GPU.
    pub fn new() -> Self {
        let fixture = Fixture::new();
        // The machine is made before another user looks.
        succeeded(&fixture.bare("true").output().unwrap());
        let place = tempfile::tempdir().unwrap();
        open(place.path());
        open(fixture.home());
        open(&fixture.runtime());
        for file in ["vcuda", "libvcuda_shim.so", "libvcuda_simulator_cuda.so", "libvcuda_simulator_nvml.so"]
        {
            fs::copy(release_dir().join(file), place.path().join(file)).unwrap();
        }
        Self { fixture, place }
    }

    /// File of the manager's configuration.
    pub fn configuration(&self) -> PathBuf {
        self.place.path().join("manager.toml")
    }

    /// A manager with this configuration.
    pub fn manager(&self, configuration: &str) -> Manager<'_> {
        let file = self.configuration();
        fs::write(&file, configuration).unwrap();
        let manager = self.fixture.manager_with(&["--config", file.to_str().unwrap()]);
        // As the unit's RuntimeDirectory= makes it; `vcuda sim` made it for one user alone.
        open(&self.fixture.runtime().join("vcuda"));
        manager
    }

    /// Path of `vcuda`.
    pub fn program(&self) -> String {
        self.place.path().join("vcuda").display().to_string()
    }

    /// Output of `vcuda` of a user with these groups, the first of which is its own.
    pub fn vcuda(&self, socket: &Path, user: &str, groups: &[&str], args: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", groups[0]]);
        match groups.get(1..).filter(|more| !more.is_empty()) {
            Some(more) => command.args(["--groups", &more.join(",")]),
            None => command.arg("--clear-groups"),
        };
        command.arg(self.place.path().join("vcuda")).args(args);
        self.fixture.environment(&mut command);
        let own = self.own_runtime(user);
        command
            .env("VCUDA_MANAGER", socket)
            .env("VCUDA_SIM", own.join("machine"))
            .env("XDG_RUNTIME_DIR", own)
            .output()
            .unwrap()
    }

    /// Shows the manager's GPU to this user's commands, as a real GPU is shown to all.
    pub fn show_gpu(&self, user: &str) {
        let report = self.fixture.report();
        let uuid = report["gpus"][0]["uuid"].as_str().unwrap();
        let machine = self.own_runtime(user).join("machine");
        fs::create_dir(&machine).unwrap();
        fs::write(machine.join("machine.toml"), format!("[[gpus]]\nuuid = \"{uuid}\"\n")).unwrap();
        chown(&machine, Some(user.parse().unwrap()), None).unwrap();
    }

    /// A runtime directory of this user.
    fn own_runtime(&self, user: &str) -> PathBuf {
        let folder = self.place.path().join(format!("run-{user}"));
        if !folder.exists() {
            fs::create_dir(&folder).unwrap();
            chown(&folder, Some(user.parse().unwrap()), None).unwrap();
        }
        folder
    }
}

fn open(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}
