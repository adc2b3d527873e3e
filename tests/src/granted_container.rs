//! A granted container as a runtime would make it: in its own mount namespace `/etc/vcuda` is the tenant's directory,
//! read-only except `usage`. The mounts need root.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Fixture, Running, succeeded};

/// Mounts, then executes its arguments. An overlay covers `/etc`, so that nothing changes outside.
const ENTER: &str = r#"set -e
layer=$1 directory=$2 how=$3
shift 3
mount -t tmpfs tmpfs "$layer"
mkdir "$layer/upper" "$layer/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$layer/upper,workdir=$layer/work" /etc
mkdir -p /etc/vcuda
if [ "$how" = files ]; then
    touch /etc/vcuda/limits /etc/vcuda/usage
    mount --bind "$directory/limits" /etc/vcuda/limits
    mount -o remount,bind,ro /etc/vcuda/limits
else
    mount --bind "$directory" /etc/vcuda
    mount -o remount,bind,ro /etc/vcuda
fi
mount --bind "$directory/usage" /etc/vcuda/usage
exec "$@""#;

/// Part of a tenant's directory that is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mounted {
    /// The whole directory, as docs/operations.md says.
    Directory,
    /// Only `limits` and `usage`.
    Files,
}

/// A granted container for programs.
#[derive(Debug)]
pub struct GrantedContainer<'b> {
    fixture: &'b Fixture,
    directory: PathBuf,
    environment: BTreeMap<String, String>,
    mounted: Mounted,
}

impl Fixture {
    /// The container of this grant; `None` if this user may not mount.
    pub fn granted_container(&self, grant: &str, mounted: Mounted) -> Option<GrantedContainer<'_>> {
        self.granted_container_by(&|args| self.vcuda(args), grant, mounted)
    }

    /// The same for a `vcuda` that uses another manager than this user's.
    pub fn granted_container_by(
        &self,
        vcuda: &dyn Fn(&[&str]) -> Command,
        grant: &str,
        mounted: Mounted,
    ) -> Option<GrantedContainer<'_>> {
        let may_mount = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
        if !may_mount.is_ok_and(|status| status.success()) {
            return None;
        }
        let shown = vcuda(&["run", "--sim", "--grant", grant, "--", "env"]).output();
        let shown = succeeded(&shown.unwrap());
        let mut environment: BTreeMap<String, String> = shown
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let directory = environment.remove("VCUDA_DIR").unwrap().into();
        Some(GrantedContainer { fixture: self, directory, environment, mounted })
    }
}

impl GrantedContainer<'_> {
    /// The tenant's directory on the host.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A command for the program in the container, with the shim and further options of unshare(1).
    pub fn command_in(&self, unshare: &[&str], program: impl AsRef<OsStr>) -> Command {
        let layer = tempfile::tempdir_in(self.fixture.runtime()).unwrap().keep();
        let how = if self.mounted == Mounted::Files { "files" } else { "directory" };
        let mut command = Command::new("unshare");
        command
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::null())
            .arg("-m")
            .args(unshare)
            .args(["sh", "-c", ENTER, "enter"])
            .args([layer.as_os_str(), self.directory.as_os_str(), how.as_ref()])
            .arg(program);
        command
    }

    /// A command for the program in the container, with the shim.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_in(&[], program)
    }

    /// A command for the program in the container, without the shim.
    pub fn unlimited(&self, program: impl AsRef<OsStr>) -> Command {
        let folders = self.environment["LD_LIBRARY_PATH"].split(':');
        let behind: Vec<&str> = folders.filter(|folder| !folder.contains("/front-")).collect();
        let mut command = self.command(program);
        command.env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", behind.join(":"));
        command
    }
}

/// Starts a program that holds memory and waits.
pub fn holding(command: &mut Command, bytes: u64) -> Running {
    let mut running = Running::start(command.arg(bytes.to_string()));
    running.wait_for("holding");
    running
}
