//! Growth of `usage`, the one file of its directory that a tenant can write. What it takes there, all directories lack.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;
use rustix::fs::{flistxattr, fremovexattr};
use vcuda_region::directory;

/// Room beyond the layout that is not the tenant's doing: the file system's large pages (bytes).
const ROUNDED_BYTES: u64 = 2 << 20;
/// Size of the longest list of names that the kernel gives (`XATTR_LIST_MAX`, bytes).
const NAMES_BYTES: usize = 64 << 10;

/// What a tenant had added to its `usage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grown {
    /// Bytes beyond the layout, in its length or behind its end.
    pub(crate) bytes: u64,
    /// Extended attributes that were removed; `None` if there are more than the kernel lists, which stay.
    pub(crate) attributes: Option<usize>,
}

/// Cuts `usage` in `directory` to its layout and removes its extended attributes. `None` if there was nothing to do. No link is
/// followed.
pub(super) fn cut(directory: &Path) -> io::Result<Option<Grown>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(directory.join("usage"))?;
    let grown = Grown {
        bytes: cut_bytes(&file, directory::usage_bytes_max(directory))?,
        attributes: remove_attributes(&file),
    };
    let is_grown = grown.bytes > 0 || grown.attributes != Some(0);
    Ok(is_grown.then_some(grown))
}

/// Cuts the file to `most` bytes. Returns the number of bytes beyond. Room behind the end of a file is no part of its length
/// (fallocate(2), `FALLOC_FL_KEEP_SIZE`), and goes when the length is set.
fn cut_bytes(file: &File, most: u64) -> io::Result<u64> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let room_bytes = found.blocks().saturating_mul(512);
    let behind_bytes = room_bytes.saturating_sub(found.len().min(most).saturating_add(ROUNDED_BYTES));
    let beyond_bytes = found.len().saturating_sub(most).max(behind_bytes);
    if beyond_bytes > 0 {
        file.set_len(found.len().min(most))?;
    }
    Ok(beyond_bytes)
}

/// Removes the attributes that any process may set. A file system without attributes has none.
fn remove_attributes(file: &File) -> Option<usize> {
    let mut names = vec![0; NAMES_BYTES];
    let listed = match flistxattr(file, names.as_mut_slice()) {
        Ok(listed) => listed,
        Err(rustix::io::Errno::TOOBIG) => return None,
        Err(_) => return Some(0),
    };
    let names = names.get(..listed).unwrap_or_default().split_inclusive(|byte| *byte == 0);
    let names = names.filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    let of_users = names.filter(|name| name.to_bytes().starts_with(b"user."));
    Some(of_users.filter(|name| fremovexattr(file, *name).is_ok()).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file is longer than its layout, or has room behind its end, or attributes: all of it goes, and only that.
    #[test]
    fn what_a_tenant_adds_to_its_usage_is_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("usage");
        directory::restore_usage(directory.path()).unwrap();
        let made = std::fs::read(&path).unwrap();
        assert_eq!(cut(directory.path()).unwrap(), None);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let layout_bytes = made.len() as u64;
        file.set_len(layout_bytes + 4096).unwrap();
        assert_eq!(cut(directory.path()).unwrap().map(|grown| grown.bytes), Some(4096));
        assert_eq!(std::fs::read(&path).unwrap(), made);
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&file, flags, 0, layout_bytes + (8 << 20)).is_ok() {
            assert!(cut(directory.path()).unwrap().is_some_and(|grown| grown.bytes >= 5 << 20));
            let room_bytes = file.metadata().unwrap().blocks() * 512;
            assert!(room_bytes <= layout_bytes + ROUNDED_BYTES, "{room_bytes}");
        }
        let name = c"user.more";
        if rustix::fs::fsetxattr(&file, name, &[1; 1000], rustix::fs::XattrFlags::empty()).is_ok() {
            let grown = cut(directory.path()).unwrap();
            assert_eq!(grown, Some(Grown { bytes: 0, attributes: Some(1) }));
        }
        assert_eq!(cut(directory.path()).unwrap(), None);
        assert_eq!(std::fs::read(&path).unwrap(), made);
    }

    #[test]
    fn no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, vec![1; 64 << 20]).unwrap();
        std::os::unix::fs::symlink(&other, directory.path().join("usage")).unwrap();
        cut(directory.path()).unwrap_err();
        assert_eq!(std::fs::metadata(&other).unwrap().len(), 64 << 20);
    }
}
