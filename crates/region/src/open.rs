//! Opening of the files of a tenant's directory, in which its processes may have put anything.

use core::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::header::{HEADER_BYTES, Words};
use crate::map::Mapped;
use crate::{release, sys};

/// The error if a tenant's file cannot be used. The caller then denies a managed process GPU memory (I11).
#[derive(Debug)]
pub enum OpenError {
    /// The file cannot be opened, read or mapped.
    Io(PathBuf, io::Error),
    /// The file is a symbolic link, which is never followed.
    Symlink(PathBuf),
    /// The path is a directory, device, pipe or socket.
    NotAFile(PathBuf),
    /// The file does not begin with the right word.
    Foreign(PathBuf),
    /// Another version of vcuda made the file, and this one is not compatible with it.
    Version {
        /// The file.
        path: PathBuf,
        /// The version that made it.
        found: u32,
        /// The oldest version that can use it, by its header.
        compatible: u32,
    },
    /// The file is shorter or longer than its layout.
    Size {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
        /// Size that its layout needs.
        expected: u64,
    },
    /// The file's checksum or a value in it is wrong.
    Damaged(PathBuf),
}

impl OpenError {
    /// Whether the file may be sound, and only has another version.
    pub(crate) fn is_of_another_version(&self) -> bool {
        matches!(self, Self::Version { .. })
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REMEDY: &str = "start the container or `vcuda run` again to get a new one";
        match self {
            Self::Io(path, error) => write!(f, "cannot use {}: {error}; {REMEDY}", path.display()),
            Self::Symlink(path) => {
                write!(f, "{} is a symbolic link, which vcuda never follows; {REMEDY}", path.display())
            }
            Self::NotAFile(path) => write!(f, "{} is not a regular file; {REMEDY}", path.display()),
            Self::Foreign(path) => write!(f, "{} is not a file of vcuda; {REMEDY}", path.display()),
            Self::Version { path, found, compatible } => {
                let (oldest, own) = release::layouts();
                write!(f, "{} has layout version {found}", path.display())?;
                if *found > own {
                    write!(f, " (for programs of version {compatible} or later)")?;
                }
                write!(
                    f,
                    ", this program uses {oldest} to {own}; use the vcuda release that made it, or {REMEDY}"
                )
            }
            Self::Size { path, found, expected } => {
                write!(f, "{} has {found} bytes instead of {expected}; {REMEDY}", path.display())
            }
            Self::Damaged(path) => write!(f, "{} is damaged (wrong checksum); {REMEDY}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(_, error) = self { Some(error) } else { None }
    }
}

/// Opens a file of layout `T`, and checks kind, versions and size. Follows no link, and waits for no pipe or lease.
pub(crate) fn open_checked<T: Mapped>(path: &Path, writable: bool) -> Result<File, OpenError> {
    let file = OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => OpenError::Symlink(path.to_owned()),
            Some(libc::EISDIR | libc::ENXIO) => OpenError::NotAFile(path.to_owned()),
            _ => OpenError::Io(path.to_owned(), error),
        })?;
    check::<T>(path, &file).map(|_| file)
}

/// As [`open_checked`], for mapping. Holes in the file are filled now, as a full disk could not fill them when they
/// are touched.
pub(crate) fn open_to_write<T: Mapped>(path: &Path) -> Result<File, OpenError> {
    let file = open_checked::<T>(path, true)?;
    let io = |error| OpenError::Io(path.to_owned(), error);
    let metadata = file.metadata().map_err(io)?;
    if metadata.blocks().saturating_mul(512) < metadata.len() {
        sys::reserve_space(&file, size_of::<T>()).map_err(io)?;
    }
    Ok(file)
}

/// The version in the header of a file.
pub(crate) fn version_of(path: &Path) -> io::Result<u32> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    Ok(Words::of_bytes(&header).version)
}

/// Checks the file that is open as `file`, which may have changed since.
pub(crate) fn check<T: Mapped>(path: &Path, file: &File) -> Result<Metadata, OpenError> {
    let io = |error| OpenError::Io(path.to_owned(), error);
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(OpenError::NotAFile(path.to_owned()));
    }
    let expected = size_of::<T>() as u64;
    let wrong_size = || OpenError::Size { path: path.to_owned(), found: metadata.len(), expected };
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(wrong_size()),
        read => read.map_err(io)?,
    }
    let words = Words::of_bytes(&header);
    if words.magic != T::MAGIC {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    if !words.is_compatible() {
        return Err(OpenError::Version {
            path: path.to_owned(),
            found: words.version,
            compatible: words.compatible_version,
        });
    }
    if !words.has_size(metadata.len(), expected) {
        return Err(wrong_size());
    }
    Ok(metadata)
}

/// The current bytes of a layout `T`. Never from a mapping, which another process could cut off.
pub(crate) fn read_bytes<T: Mapped>(path: &Path, file: &File) -> Result<Vec<u8>, OpenError> {
    let mut bytes = vec![0; size_of::<T>()];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(OpenError::Io(path.to_owned(), error)),
    }
}
