//! Whether a descriptor of exported memory is still open anywhere (I18), by the kernel's own answer.
//!
//! An exported descriptor carries a read lock at an offset that is the object's key (`ObjectKey::lock_offset`). A process opens
//! another description of the same inode, and asks whether that one could have a write lock there (`F_OFD_GETLK`, fcntl(2)).

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use super::Outlives;

/// Device nodes that a driver's descriptors may be openings of, for a process that has none of them open.
const NODES: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"];

/// Whether another open file description of the same inode as `file` holds a key's lock that begins at `first`.
/// `None` if the kernel does not tell.
pub fn is_locked(file: c_int, first: u64) -> Option<bool> {
    let mut words = request(libc::F_WRLCK, first, 1)?;
    // SAFETY: the kernel reads the lock and writes the one that is in its way; the descriptor may be any number.
    let asked = unsafe { libc::fcntl(file, libc::F_OFD_GETLK, &raw mut words) };
    (asked == 0).then(|| c_int::from(words.l_type) != libc::F_UNLCK)
}

/// Whether the kernel's list of locks has one that begins at `first`, of any file. It may miss one while others lock and
/// unlock. `None` if it cannot be read.
pub fn is_listed(first: u64) -> Option<bool> {
    let first = first.to_string();
    let list = std::fs::read_to_string("/proc/locks").ok()?;
    let is_it = |line: &str| line.split_whitespace().rev().nth(1) == Some(first.as_str());
    Some(list.lines().any(is_it))
}

/// A lock of `length` bytes from `first` on, as fcntl(2) takes it.
pub fn request(kind: c_int, first: u64, length: u64) -> Option<libc::flock> {
    // SAFETY: plain numbers, for which zero is a valid value; `l_pid` must be 0.
    let mut words: libc::flock = unsafe { core::mem::zeroed() };
    words.l_type = libc::c_short::try_from(kind).ok()?;
    words.l_whence = libc::c_short::try_from(libc::SEEK_SET).ok()?;
    words.l_start = libc::off_t::try_from(first).ok()?;
    words.l_len = libc::off_t::try_from(length).ok()?;
    Some(words)
}

/// The inode that a descriptor is an opening of. `None` if it is neither a device nor a file, which could be opened
/// anew.
pub fn inode_of(descriptor: c_int) -> Option<Outlives> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel writes the status or nothing; the descriptor may be any number.
    if unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed, then filled by the call above.
    let status = unsafe { status.assume_init() };
    let kind = status.st_mode & libc::S_IFMT;
    (kind == libc::S_IFCHR || kind == libc::S_IFREG)
        .then(|| Outlives::descriptions_of(status.st_dev, status.st_ino))
}

/// A description of an inode that the driver has open in this process, or of one of its device nodes.
pub fn open(inode: Outlives) -> Option<File> {
    let is_it = |path: &std::path::Path| {
        path.metadata().is_ok_and(|found| {
            let kind = found.file_type();
            (kind.is_char_device() || kind.is_file())
                && Outlives::descriptions_of(found.dev(), found.ino()) == inode
        })
    };
    let open = |path: &std::path::Path| {
        let flags = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
        // The path may have been renamed or exchanged meanwhile.
        (inode_of(file.as_raw_fd()) == Some(inode)).then_some(file)
    };
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let own = entries.map(|entry| entry.path());
    let nodes = NODES.iter().map(std::path::PathBuf::from);
    own.chain(nodes)
        .find(|path| is_it(path))
        .and_then(|path| open(&path))
        .map(|file| crate::aside(&file).unwrap_or(file))
}
