//! Files mapped into memory, and memory that looks like one. With [`crate::sys`] the only unsafe code of the crate.
//!
//! The mapped types are `repr(C)` records of atomic integers: every byte pattern is a valid value, and another process
//! may write at any time. That is why a shared reference to them is sound.
#![expect(
    unsafe_code,
    reason = "mapping a file, and calling the bytes a record, cannot be said otherwise"
)]

use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::layout::{LIMITS_MAGIC, LimitsFile, USAGE_MAGIC, UsageFile, VERSION};

/// A record that may be laid over bytes that others write.
///
/// # Safety
/// The type is `repr(C)`, made of atomic integers and arrays of them only, without padding, so that any bytes are a
/// valid value and all access goes through atomic operations.
pub(crate) unsafe trait Mapped: Sized {
    /// First word of its file.
    const MAGIC: u64;
}

// SAFETY: layout.rs: repr(C), atomic integers only, reserved fields instead of padding.
unsafe impl Mapped for LimitsFile {
    const MAGIC: u64 = LIMITS_MAGIC;
}

// SAFETY: layout.rs: repr(C), atomic integers only, reserved fields instead of padding.
unsafe impl Mapped for UsageFile {
    const MAGIC: u64 = USAGE_MAGIC;
}

/// A mapped `T`, unmapped when dropped.
pub(crate) struct Mapping<T> {
    at: NonNull<T>,
}

// SAFETY: the mapping belongs to no thread; `T` (by `Mapped`) is atomics, which any thread may use.
unsafe impl<T: Mapped> Send for Mapping<T> {}
// SAFETY: as above: a shared `T` is used through atomic operations only.
unsafe impl<T: Mapped> Sync for Mapping<T> {}

impl<T> fmt::Debug for Mapping<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({:p})", self.at)
    }
}

impl<T: Mapped> Mapping<T> {
    /// Maps all of `file`, shared; read-only unless `writable`. The caller has checked that it is long enough.
    pub(crate) fn of_file(file: &File, writable: bool) -> io::Result<Self> {
        let protection = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        Self::map(protection, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Zeroed memory, shared with the children that this process forks later.
    pub(crate) fn anonymous() -> io::Result<Self> {
        let sharing = if cfg!(miri) {
            libc::MAP_PRIVATE
        } else {
            libc::MAP_SHARED
        };
        Self::map(
            libc::PROT_READ | libc::PROT_WRITE,
            sharing | libc::MAP_ANONYMOUS,
            -1,
        )
    }

    fn map(protection: libc::c_int, flags: libc::c_int, fd: libc::c_int) -> io::Result<Self> {
        let size = size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice: no memory of ours is replaced.
        let address = unsafe { libc::mmap(core::ptr::null_mut(), size, protection, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(address.cast::<T>()) {
            Some(at) => Ok(Self { at }),
            None => Err(io::Error::other("mmap gave address 0")),
        }
    }
}

impl<T: Mapped> Deref for Mapping<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `at` is a mapping of `size_of::<T>()` bytes, page-aligned (no `T` needs more), alive until the drop;
        // any bytes are a valid `T` (`Mapped`), and no `&mut T` to them is ever made.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: `at` came from `mmap` with this size, and no reference outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}

/// A file of the container's directory cannot be used. Whoever gets this for a managed process denies it GPU memory (I11).
#[derive(Debug)]
pub enum OpenError {
    /// It cannot be opened, read or mapped.
    Io(PathBuf, io::Error),
    /// It is a symbolic link, which is never followed.
    Symlink(PathBuf),
    /// It is a directory, device, pipe or socket.
    NotAFile(PathBuf),
    /// It does not begin with the right word.
    Foreign(PathBuf),
    /// It was written by another version of vcuda.
    Version {
        /// The file.
        path: PathBuf,
        /// The version in it.
        found: u32,
    },
    /// It is shorter or longer than its layout.
    Size {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
        /// What its layout needs.
        expected: u64,
    },
    /// Its checksum or a value in it is wrong.
    Damaged(PathBuf),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "start the container or `vcuda run` again to get a new one";
        match self {
            Self::Io(path, error) => write!(f, "cannot use {}: {error}; {REMEDY}", path.display()),
            Self::Symlink(path) => write!(
                f,
                "{} is a symbolic link, which vcuda never follows; {REMEDY}",
                path.display()
            ),
            Self::NotAFile(path) => write!(f, "{} is not a regular file; {REMEDY}", path.display()),
            Self::Foreign(path) => write!(f, "{} is not a file of vcuda; {REMEDY}", path.display()),
            Self::Version { path, found } => write!(
                f,
                "{} has layout version {found}, this program reads {VERSION}; use programs of one vcuda release, or {REMEDY}",
                path.display()
            ),
            Self::Size {
                path,
                found,
                expected,
            } => {
                write!(
                    f,
                    "{} has {found} bytes instead of {expected}; {REMEDY}",
                    path.display()
                )
            }
            Self::Damaged(path) => write!(f, "{} is damaged (wrong checksum); {REMEDY}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(_, error) = self {
            Some(error)
        } else {
            None
        }
    }
}

/// Opens a file of layout `T`: follows no link, waits for no pipe, and checks kind, first words and size.
pub(crate) fn open_checked<T: Mapped>(path: &Path, writable: bool) -> Result<File, OpenError> {
    let io = |error| OpenError::Io(path.to_owned(), error);
    let file = OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => OpenError::Symlink(path.to_owned()),
            Some(libc::EISDIR | libc::ENXIO) => OpenError::NotAFile(path.to_owned()),
            _ => io(error),
        })?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(OpenError::NotAFile(path.to_owned()));
    }
    let expected = size_of::<T>() as u64;
    let wrong_size = || OpenError::Size {
        path: path.to_owned(),
        found: metadata.len(),
        expected,
    };
    let mut magic = [0; 8];
    let mut rest = [0; 8];
    if metadata.len() < 16 {
        return Err(wrong_size());
    }
    file.read_exact_at(&mut magic, 0).map_err(io)?;
    file.read_exact_at(&mut rest, 8).map_err(io)?;
    if u64::from_ne_bytes(magic) != T::MAGIC {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    let [version, size] = [
        [rest[0], rest[1], rest[2], rest[3]],
        [rest[4], rest[5], rest[6], rest[7]],
    ];
    let found = u32::from_ne_bytes(version);
    if found != VERSION {
        return Err(OpenError::Version {
            path: path.to_owned(),
            found,
        });
    }
    if metadata.len() != expected || u64::from(u32::from_ne_bytes(size)) != expected {
        return Err(wrong_size());
    }
    Ok(file)
}
