//! A granted container as a runtime would make it: a mount namespace of its own in which `/etc/vcuda` is the tenant's
//! directory, read-only, with `usage` to write. Needs root, for the mounts.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Fixture, Running, succeeded};

/// Mounts, and then becomes what it is told. `/etc` is covered by a layer, so that nothing changes outside.
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
    /// All of it, as docs/operations.md says.
    Directory,
    /// `limits` and `usage` alone.
    Files,
}

/// Where a granted container's programs run.
#[derive(Debug)]
pub struct GrantedContainer<'b> {
    fixture: &'b Fixture,
    directory: PathBuf,
    environment: BTreeMap<String, String>,
    mounted: Mounted,
}

impl Fixture {
    /// The container of this grant; none if this user may not mount.
    pub fn granted_container(&self, grant: &str, mounted: Mounted) -> Option<GrantedContainer<'_>> {
        self.granted_container_by(&|args| self.vcuda(args), grant, mounted)
    }

    /// The same by a `vcuda` that finds another manager than this user's own.
    pub fn granted_container_by(
        &self,
        vcuda: &dyn Fn(&[&str]) -> Command,
        grant: &str,
        mounted: Mounted,
    ) -> Option<GrantedContainer<'_>> {
        let may_mount = Command::new("unshare")
            .args(["-m", "true"])
            .stderr(Stdio::null())
            .status();
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
        Some(GrantedContainer {
            fixture: self,
            directory,
            environment,
            mounted,
        })
    }
}

impl GrantedContainer<'_> {
    /// The tenant's directory, as the manager has it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The program in the container, with the shim; further options of unshare(1) with it.
    pub fn command_in(&self, unshare: &[&str], program: impl AsRef<OsStr>) -> Command {
        let layer = tempfile::tempdir_in(self.fixture.runtime()).unwrap().keep();
        let how = if self.mounted == Mounted::Files {
            "files"
        } else {
            "directory"
        };
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

    /// The program in the container, with the shim.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_in(&[], program)
    }

    /// ... without it.
    pub fn unlimited(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command(program);
        command.env_remove("LD_PRELOAD");
        command
    }
}

/// One that holds memory and waits.
pub fn holding(command: &mut Command, bytes: u64) -> Running {
    let mut running = Running::start(command.arg(bytes.to_string()));
    running.wait_for("holding");
    running
}
