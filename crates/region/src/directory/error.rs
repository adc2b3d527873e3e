//! Errors of making or using a tenant's directory.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::{GpuUuid, MAX_DEVICES};

/// The error if a tenant's directory cannot be made or used.
#[derive(Debug)]
pub enum DirectoryError {
    /// The name cannot be a directory's name.
    Name(String),
    /// Too many GPUs, or none.
    Devices(usize),
    /// The configuration of this GPU is out of its ranges.
    OutOfRange(GpuUuid),
    /// The path is a link or no directory, or others could write there.
    Unsafe(PathBuf),
    /// Another program keeps a lock on the directory.
    Busy(PathBuf),
    /// The file system refused.
    Io(PathBuf, io::Error),
}

impl DirectoryError {
    pub(super) fn of_open(path: &Path, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ELOOP | libc::ENOTDIR | libc::EEXIST) => Self::Unsafe(path.to_owned()),
            _ => Self::Io(path.to_owned(), error),
        }
    }
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
            Self::Devices(count) => write!(f, "{count} GPUs; a run has 1 to {MAX_DEVICES}"),
            Self::OutOfRange(uuid) => {
                write!(f, "the share for {uuid} is out of its range; give 1 to 100 percent")
            }
            Self::Unsafe(path) => {
                write!(
                    f,
                    "{} is not a directory that only you can write; remove it or choose another",
                    path.display()
                )
            }
            Self::Busy(path) => write!(f, "another program holds the lock on {}; try again", path.display()),
            Self::Io(path, error) => {
                write!(
                    f,
                    "cannot use {}: {error}; make room there, or choose another writable tmpfs (XDG_RUNTIME_DIR, a manager's --root)",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for DirectoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}
