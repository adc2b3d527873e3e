//! A tenant's directory, which a manager makes, and removes with its grant.
//!
//! The directory of a transient grant lives while a process of the run lives. Three things show that: a shared lock on the
//! directory, which `vcuda run` leaves to the command and all its descendants; the slots in `usage`; and the environment of
//! processes that closed all descriptors. The manager ends a directory that it can lock alone ([`lock_unused`]); a run that
//! enters one holds the lock shared and then looks whether the directory is still there ([`Directory::enter`]).
//!
//! A tenant's processes may have any user id. So every process that can reach the directory may read it and `limits`,
//! and write `usage`. On the host no other user can reach it: only its owner may enter `containers`, above it. The
//! ways past that are a mount into a container and a descriptor left open for a command, both made by the owner, and
//! the folder of a user's own grants (`users`).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use vcuda_quota::DeviceConfig;

mod callers;
mod create;
mod error;
mod granted;
mod held;
mod in_use;
mod remove;
mod users;
pub use callers::{Callers, CallersLock, call};
pub use error::DirectoryError;
pub use granted::{
    GRANT, discard, is_granted, is_used, read_grant, remove_granted, restore_usage, set_grant,
    usage_bytes_max,
};
pub use held::{Unused, lock_unused};
pub use remove::tenant_of_name;
use remove::{is_abandoned, remove};
use users::homes;
pub use users::{is_below, locate, user_of};

use crate::sys;
use crate::{GpuUuid, MAX_DEVICES};

/// Environment variable by which `vcuda run` tells its command the tenant's directory.
pub const ENV_DIRECTORY: &str = "VCUDA_DIR";

/// Path of the tenant's directory in a managed container.
pub const MANAGED: &str = "/etc/vcuda";

/// The directory that binds the calling process. If [`MANAGED`] has `limits`, it is that one, and nothing in the
/// environment can redirect it (I11). Else it is `from_environment`, the value of `VCUDA_DIR`. `None` if neither is
/// set.
pub fn resolve(from_environment: Option<&Path>) -> Option<PathBuf> {
    resolve_with(Path::new(MANAGED), from_environment)
}

fn resolve_with(managed: &Path, from_environment: Option<&Path>) -> Option<PathBuf> {
    match fs::symlink_metadata(managed.join("limits")) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            from_environment.map(|directory| reachable(directory.to_owned()))
        }
        // It exists or cannot be read: either way this is a managed container.
        _ => Some(managed.to_owned()),
    }
}

/// `directory` itself, or, if this user cannot reach it, the descriptor of it that `vcuda run` left open. A command
/// of another user (by `su`, `setpriv`, a set-user-ID program) has no other way.
fn reachable(directory: PathBuf) -> PathBuf {
    let closed =
        |error: io::Error| (error.kind() == io::ErrorKind::PermissionDenied).then_some(directory.as_path());
    let Some(closed) = fs::metadata(&directory).err().and_then(closed) else {
        return directory;
    };
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    open.map(|entry| entry.path())
        .find(|descriptor| fs::read_link(descriptor).is_ok_and(|target| target == closed))
        .unwrap_or(directory)
}

/// Name, identity and quota of a new tenant.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Name of the tenant and of its directory.
    pub name: String,
    /// The tenant's GPUs, each with its configuration.
    pub devices: Vec<(GpuUuid, DeviceConfig)>,
    /// Whether it may be suspended ([`crate::suspension`]).
    pub is_suspendable: bool,
    /// Longest wait of an allocation for room (ms, [`crate::room`]); `None`: as long as is usual.
    pub memory_wait_ms: Option<u32>,
}

impl Tenant {
    /// A tenant that may not be suspended.
    pub fn new(name: &str, devices: Vec<(GpuUuid, DeviceConfig)>) -> Self {
        Self { name: name.to_owned(), devices, is_suspendable: false, memory_wait_ms: None }
    }

    fn check(&self) -> Result<(), DirectoryError> {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !(1..=64).contains(&self.name.len())
            || self.name.starts_with('.')
            || !self.name.bytes().all(letters)
        {
            return Err(DirectoryError::Name(self.name.clone()));
        }
        if !(1..=MAX_DEVICES).contains(&self.devices.len()) {
            return Err(DirectoryError::Devices(self.devices.len()));
        }
        match self.devices.iter().find(|(_, config)| !config.is_valid()) {
            Some((uuid, _)) => Err(DirectoryError::OutOfRange(*uuid)),
            None => Ok(()),
        }
    }
}

/// A tenant's directory, kept from removal while this value lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory for the calling process and all its descendants, across `exec`, until the last one has closed
    /// the inherited descriptor or ended.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn keep_across_exec(self) -> io::Result<()> {
        std::mem::forget(sys::inheritable(&self.lock)?);
        Ok(())
    }
}

/// The directories of the tenants under `root`, by name.
///
/// # Errors
/// `root` cannot be read. A root that does not exist has no tenants.
pub fn list(root: &Path) -> Result<Vec<(String, PathBuf)>, DirectoryError> {
    let mut found = Vec::new();
    for home in homes(root).map_err(|error| DirectoryError::Io(root.join("users"), error))? {
        found.extend(read(&home, |entry| {
            // Most file systems list an entry with its kind.
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().into_string().ok()?;
            (is_directory && !name.starts_with('.')).then(|| (name, entry.path()))
        })?);
    }
    found.sort();
    Ok(found)
}

/// Removes what killed managers left half made or half removed under `root`.
///
/// # Errors
/// `root` cannot be read, or something not be removed. A root that does not exist has nothing to remove.
pub fn remove_remains(root: &Path) -> Result<(), DirectoryError> {
    for path in read(&root.join("containers"), |entry| Some(entry.path()))? {
        let is_unfinished = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // An entry that is no directory is not vcuda's.
        let lock = if is_unfinished { open_directory(&path).ok() } else { None };
        if lock.is_some_and(|lock| is_abandoned(&lock)) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Time of the last creation or removal of a tenant's directory under `root`; `None` if the file system does not tell. Each is made in
/// `containers` and then moved to its place, and goes back there to be deleted.
pub fn changed(root: &Path) -> Option<SystemTime> {
    root.join("containers").metadata().ok()?.modified().ok()
}

/// Results of `pick` for each entry; empty if there is no such folder.
fn read<T>(containers: &Path, pick: impl Fn(&fs::DirEntry) -> Option<T>) -> Result<Vec<T>, DirectoryError> {
    let listed = fs::read_dir(containers).and_then(|entries| {
        entries
            .filter_map(|entry| entry.map(|entry| pick(&entry)).transpose())
            .collect::<io::Result<Vec<T>>>()
    });
    match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| DirectoryError::Io(containers.to_owned(), error)),
    }
}

/// Makes `root` and `containers` in it. Fails if another user can write in `root` or enter `containers`.
fn prepare(root: &Path) -> Result<PathBuf, DirectoryError> {
    let containers = root.join("containers");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&containers)
        .map_err(|error| DirectoryError::of_open(&containers, error))?;
    for path in [root, &containers] {
        let metadata =
            fs::symlink_metadata(path).map_err(|error| DirectoryError::Io(path.to_owned(), error))?;
        if !metadata.is_dir() || metadata.uid() != sys::effective_uid() || metadata.mode() & 0o022 != 0 {
            return Err(DirectoryError::Unsafe(path.to_owned()));
        }
    }
    // Made by an earlier version, or by hand.
    permit(&containers, 0o700).map_err(|error| DirectoryError::Io(containers.clone(), error))?;
    Ok(containers)
}

/// Sets the mode, whatever the umask.
fn permit(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}
