//! Environment variables, read once, and the directories derived from them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Directory of the tenant, set by `vcuda run`, read by the shim.
pub(crate) const ENV_TENANT: &str = vcuda_region::directory::ENV_DIRECTORY;
/// Directory of the simulated machine.
pub const ENV_MACHINE: &str = "VCUDA_SIM";
/// Socket of the manager, or `off`.
pub const ENV_MANAGER: &str = "VCUDA_MANAGER";
/// Libraries that the loader loads before all others.
pub(crate) const ENV_PRELOAD: &str = "LD_PRELOAD";
/// Directories that the loader searches first.
pub(crate) const ENV_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Variable that names the GPUs that the CUDA driver shows to a program.
pub const ENV_VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// Variable that says in which order the CUDA driver numbers GPUs.
pub const ENV_DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";
/// Variable that names a user's runtime directory (XDG Base Directory Specification).
pub const ENV_RUNTIME: &str = "XDG_RUNTIME_DIR";
/// Directory of an MPS control daemon's pipes, set for its users.
pub(crate) const ENV_MPS_PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Values of the environment variables. Empty ones count as unset.
#[derive(Clone, Debug)]
pub struct Environment {
    /// `VCUDA_DIR`, set inside a tenant.
    pub tenant: Option<PathBuf>,
    /// `VCUDA_SIM`.
    pub(crate) machine: Option<PathBuf>,
    /// `VCUDA_MANAGER`.
    pub(crate) manager: Option<PathBuf>,
    /// `LD_PRELOAD`, including the user's own entries.
    pub(crate) preload: Option<OsString>,
    /// `LD_LIBRARY_PATH`.
    pub(crate) library_path: Option<OsString>,
    /// `CUDA_VISIBLE_DEVICES`. An empty value hides all GPUs, so it counts as set.
    pub(crate) visible: Option<OsString>,
    /// `CUDA_MPS_PIPE_DIRECTORY`.
    pub(crate) mps_pipes: Option<PathBuf>,
    /// `COLUMNS`: width of tables that are not printed on a terminal.
    pub(crate) columns: Option<usize>,
    /// Whether `NO_COLOR` is set (no-color.org).
    pub(crate) is_colorless: bool,
    /// `PATH`.
    pub(crate) path: Option<OsString>,
    runtime: Option<PathBuf>,
}

impl Environment {
    /// Reads all variables. No other function reads any.
    pub fn read() -> Environment {
        let given = |name| env::var_os(name).filter(|value| !value.is_empty());
        Environment {
            tenant: given(ENV_TENANT).map(PathBuf::from),
            machine: given(ENV_MACHINE).map(PathBuf::from),
            manager: given(ENV_MANAGER).map(PathBuf::from),
            preload: given(ENV_PRELOAD),
            library_path: given(ENV_LIBRARY_PATH),
            visible: env::var_os(ENV_VISIBLE),
            mps_pipes: given(ENV_MPS_PIPES).map(PathBuf::from),
            columns: given("COLUMNS").and_then(|value| value.to_str()?.parse().ok()),
            is_colorless: given("NO_COLOR").is_some(),
            path: given("PATH"),
            // The specification requires that relative paths are ignored.
            runtime: given(ENV_RUNTIME).map(PathBuf::from).filter(|path| path.is_absolute()),
        }
    }

    /// Directory of this user's tenants: `$XDG_RUNTIME_DIR/vcuda`, else `/run/vcuda` if writable, else `/tmp/vcuda-$UID`.
    /// Created if missing. It must belong to this user, as its owner controls the quotas.
    pub fn runtime_root(&self) -> Result<PathBuf, Failure> {
        if let Some(runtime) = &self.runtime {
            if !runtime.is_dir() {
                return Err(Failure::Failed(format!(
                    "XDG_RUNTIME_DIR is {}, which is not a directory; create it or unset the variable",
                    runtime.display()
                )));
            }
            return owned_directory(runtime.join("vcuda"));
        }
        let system = Path::new("/run/vcuda");
        match owned_directory(system.to_owned()) {
            Ok(root) => Ok(root),
            Err(_) => owned_directory(PathBuf::from(format!("/tmp/vcuda-{}", nix::unistd::geteuid()))),
        }
    }

    /// Directory of the simulated machine: `given` (an option), else `VCUDA_SIM`, else `machine` in the runtime directory.
    /// Always absolute, as a command that gets it may change its directory.
    pub(crate) fn machine_dir(&self, given: Option<&Path>) -> Result<PathBuf, Failure> {
        let path = match given.or(self.machine.as_deref()) {
            Some(path) => path.to_owned(),
            None => self.runtime_root()?.join("machine"),
        };
        std::path::absolute(&path).map_err(|error| Failure::access("resolve", &path, &error))
    }
}

/// Makes `path` with mode 0700 if it is missing. Fails unless it is a directory of this user that no other user can write.
fn owned_directory(path: PathBuf) -> Result<PathBuf, Failure> {
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Failure::access("create", &path, &error)),
    }
    // Links are not followed, as any user may have made one in /tmp.
    let found = fs::symlink_metadata(&path).map_err(|error| Failure::access("read", &path, &error))?;
    let owner = nix::unistd::geteuid().as_raw();
    if !found.is_dir() || found.uid() != owner {
        return Err(Failure::Failed(format!(
            "{} is not a directory of yours (owner {}, you are {owner}); remove it or set XDG_RUNTIME_DIR",
            path.display(),
            found.uid(),
        )));
    }
    if found.mode() & 0o022 != 0 {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))
            .map_err(|error| Failure::access("protect", &path, &error))?;
    }
    Ok(path)
}

/// `LD_PRELOAD` with the shim behind the user's own entries, so that these libraries see the program's calls, too, before
/// the shim does.
pub(crate) fn preloading(shim: &Path, environment: &Environment) -> OsString {
    match &environment.preload {
        Some(own) => joined(own, shim.as_os_str()),
        None => shim.as_os_str().to_owned(),
    }
}

/// `LD_LIBRARY_PATH` with this directory before the user's own, so that it is searched first.
pub(crate) fn searching(directory: &Path, environment: &Environment) -> OsString {
    match &environment.library_path {
        Some(own) => joined(directory.as_os_str(), own),
        None => directory.as_os_str().to_owned(),
    }
}

/// Two entries or lists, separated by a colon as the loader expects.
pub(crate) fn joined(first: &OsStr, second: &OsStr) -> OsString {
    let mut list = first.to_owned();
    list.push(":");
    list.push(second);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(runtime: &Path) -> Environment {
        Environment {
            tenant: None,
            machine: None,
            manager: None,
            preload: None,
            library_path: None,
            visible: None,
            mps_pipes: None,
            columns: None,
            is_colorless: false,
            path: None,
            runtime: Some(runtime.to_owned()),
        }
    }

    #[test]
    fn the_root_is_private() {
        let scratch = tempfile::tempdir().unwrap();
        let root = environment(scratch.path()).runtime_root().unwrap();
        assert_eq!(root, scratch.path().join("vcuda"));
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        environment(scratch.path()).runtime_root().unwrap();
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_link_in_the_roots_place_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", scratch.path().join("vcuda")).unwrap();
        let error = environment(scratch.path()).runtime_root().unwrap_err().to_string();
        assert!(error.contains("not a directory of yours"), "{error}");
    }

    #[test]
    fn a_missing_runtime_directory_is_named() {
        let error = environment(Path::new("/nowhere/at/all")).runtime_root().unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all") && error.contains("unset"), "{error}");
    }

    #[test]
    fn the_machine_is_the_option_then_the_variable_then_the_users_own() {
        let scratch = tempfile::tempdir().unwrap();
        let mut environment = environment(scratch.path());
        assert_eq!(environment.machine_dir(None).unwrap(), scratch.path().join("vcuda/machine"));
        environment.machine = Some("/m".into());
        assert_eq!(environment.machine_dir(None).unwrap(), Path::new("/m"));
        assert_eq!(environment.machine_dir(Some(Path::new("/o"))).unwrap(), Path::new("/o"));
    }

    #[test]
    fn the_users_entries_are_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let mut environment = environment(scratch.path());
        let a = Path::new("/a");
        assert_eq!(preloading(a, &environment), "/a");
        assert_eq!(searching(a, &environment), "/a");
        environment.preload = Some("/b:/c".into());
        environment.library_path = Some("/d:/e".into());
        assert_eq!(preloading(a, &environment), "/b:/c:/a");
        assert_eq!(searching(a, &environment), "/a:/d:/e");
    }
}
