//! Fixture: the built `vcuda` with a user's own runtime directory.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;
use vcuda_tests::release_dir;

/// A user with a runtime directory of its own.
pub(crate) struct User {
    pub(crate) home: TempDir,
}

impl User {
    pub(crate) fn new() -> User {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("run")).unwrap();
        User { home }
    }

    pub(crate) fn vcuda(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(release_dir().join("vcuda"));
        command.args(arguments).stdin(Stdio::null());
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "VCUDA_DIR"] {
            command.env_remove(name);
        }
        command
            .env("XDG_RUNTIME_DIR", self.home.path().join("run"))
            // A manager of this machine, or a socket that it left behind, is not seen.
            .env("VCUDA_MANAGER", self.home.path().join("run/vcuda/manager.sock"))
            .env("VCUDA_SIM", self.machine());
        command
    }

    pub(crate) fn machine(&self) -> PathBuf {
        self.home.path().join("machine")
    }

    pub(crate) fn containers(&self) -> PathBuf {
        self.home.path().join("run/vcuda/containers")
    }

    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.vcuda(arguments).output().unwrap()
    }

    pub(crate) fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }

    /// Starts a tenant that sleeps until it is killed. Returns once its directory exists.
    pub(crate) fn sleeper(&self, arguments: &[&str], name: &str) -> Sleeper {
        let mut command = self.vcuda(&["run", "--sim", "--name", name]);
        let child =
            command.args(arguments).args(["--", "sleep", "60"]).stderr(Stdio::null()).spawn().unwrap();
        let sleeper = Sleeper(child);
        let end = SystemTime::now() + Duration::from_secs(10);
        while !self.containers().join(name).join("limits").exists() {
            assert!(SystemTime::now() < end, "{name} did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        sleeper
    }

    /// Checks that the command prints exactly one line on stderr that contains `words`, and nothing on stdout.
    pub(crate) fn refused(&self, arguments: &[&str], code: i32, words: &str) {
        let output = self.output(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("vcuda: ") && stderr.contains(words), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
}

pub(crate) struct Sleeper(pub(crate) std::process::Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
