//! The names of memory objects that are passed on as file descriptors.
//!
//! A descriptor says nothing of what it stands for, and each process gets another number. But all of them lead to one
//! open file description in the kernel, and that can carry a name: an OFD read lock (fcntl(2)) of one byte, at an offset
//! that nobody locks for any other purpose. The kernel lists it in `/proc/self/fdinfo/FD` (proc_pid_fdinfo(5)), for this
//! description alone, and drops it with it. No descriptor stays open for it.

use core::ffi::c_int;
use std::io::Read;

use vcuda_region::shared::ObjectKey;

/// Offsets of names have this bit, which no real file's bytes reach.
const NAME: u64 = 1 << 62;
/// And this one if the object costs nothing (a multicast object).
const FREE: u64 = 1 << 61;
/// The first word of the keys that are made of names.
const WORD: u64 = u64::from_le_bytes(*b"vcudatag");

/// What a descriptor says of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The object.
    pub(crate) key: ObjectKey,
    /// Whether it costs nothing.
    pub(crate) is_free: bool,
}

impl Tag {
    fn at(offset: u64) -> Self {
        Self {
            key: ObjectKey::from_parts(WORD, offset),
            is_free: offset & FREE != 0,
        }
    }

    /// The name of a file that is no other's, in memory or on disk: what a simulated driver or Vulkan may pass on.
    fn of_file(file: c_int) -> Option<Self> {
        let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel writes the status or nothing.
        if unsafe { libc::fstat(file, status.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: zeroed, then filled by the call above.
        let status = unsafe { status.assume_init() };
        if status.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        let identity = [status.st_dev.to_le_bytes(), status.st_ino.to_le_bytes()];
        Some(Self {
            key: ObjectKey::of(identity.as_flattened()),
            is_free: false,
        })
    }
}

/// What a descriptor says of its object, if it says anything.
pub(crate) fn read(file: c_int) -> Option<Tag> {
    offset_of(file).map(Tag::at).or_else(|| Tag::of_file(file))
}

/// Names the object of a descriptor: `known` if it has a name already, else a new one. Nothing if the kernel keeps no
/// name for this file.
pub(crate) fn name(file: c_int, known: Option<ObjectKey>, is_free: bool) -> Option<Tag> {
    if let Some(offset) = offset_of(file) {
        return Some(Tag::at(offset));
    }
    let of_known = known.map(ObjectKey::parts).filter(|parts| parts[0] == WORD);
    let offset = match of_known {
        Some([_, offset]) => offset,
        None => {
            let [_, random] = ObjectKey::unique().ok()?.parts();
            let kind = if is_free { FREE } else { 0 };
            random & (FREE - 1) | NAME | kind
        }
    };
    if lock(file, offset) {
        Some(Tag::at(offset))
    } else {
        Tag::of_file(file)
    }
}

/// Locks the byte at `offset` for the open file description.
fn lock(file: c_int, offset: u64) -> bool {
    let Ok(start) = libc::off_t::try_from(offset) else {
        return false;
    };
    // SAFETY: plain numbers, for which zero is a valid value; `l_pid` must be 0.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "constants below 3, in the kernel's own width"
    )]
    {
        lock.l_type = libc::F_RDLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
    }
    lock.l_start = start;
    lock.l_len = 1;
    // SAFETY: the kernel reads the lock; the descriptor may be any number.
    unsafe { libc::fcntl(file, libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// The offset that names the descriptor's object. The lowest, should two processes have named it at once.
fn offset_of(file: c_int) -> Option<u64> {
    let mut words = String::new();
    let mut info = std::fs::File::open(format!("/proc/self/fdinfo/{file}")).ok()?;
    info.read_to_string(&mut words).ok()?;
    words.lines().filter_map(offset_in).min()
}

/// The offset of a name in a line such as `lock:  1: OFDLCK  ADVISORY  READ -1 00:01:1048 4611686018427387905 4611686018427387905`.
fn offset_in(line: &str) -> Option<u64> {
    let lock = line.strip_prefix("lock:")?;
    let mut words = lock.split_whitespace();
    words.find(|word| *word == "OFDLCK")?;
    words.find(|word| *word == "READ")?;
    let [first, last] = [words.nth(2)?, words.next()?].map(|word| word.parse::<u64>().ok());
    first.filter(|offset| offset & NAME != 0 && first == last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// A file in memory; the kernel treats its locks as those of a device.
    fn memory_file() -> std::fs::File {
        // SAFETY: a constant name.
        let descriptor = unsafe { libc::memfd_create(c"tag".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(descriptor >= 0);
        // SAFETY: the descriptor just made, owned by nobody else.
        unsafe { std::os::fd::FromRawFd::from_raw_fd(descriptor) }
    }

    #[test]
    fn a_name_stays_with_the_open_file_and_not_with_its_number() {
        let file = memory_file();
        assert_eq!(offset_of(file.as_raw_fd()), None);
        let tag = name(file.as_raw_fd(), None, false).unwrap();
        let other_number = file.try_clone().unwrap();
        assert_eq!(read(other_number.as_raw_fd()), Some(tag));
        assert_eq!(
            name(other_number.as_raw_fd(), None, false),
            Some(tag),
            "named once"
        );
        assert!(!tag.is_free);
        // Another opening of the same file is another description: it has no name, but its own identity.
        let opened = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert_eq!(offset_of(opened.as_raw_fd()), None);
        assert_ne!(read(opened.as_raw_fd()), Some(tag));
        assert!(read(opened.as_raw_fd()).is_some());
    }

    #[test]
    fn one_object_has_one_name_on_all_its_descriptors() {
        let (first, second) = (memory_file(), memory_file());
        let tag = name(first.as_raw_fd(), None, true).unwrap();
        assert!(tag.is_free);
        assert_eq!(name(second.as_raw_fd(), Some(tag.key), true), Some(tag));
        assert_eq!(read(second.as_raw_fd()), Some(tag));
        let third = memory_file();
        let hashed = Some(ObjectKey::of(&[1; 64]));
        assert_ne!(
            name(third.as_raw_fd(), hashed, false),
            Some(tag),
            "a name of its own"
        );
    }

    #[test]
    fn what_is_no_file_or_has_other_locks_says_nothing() {
        assert_eq!(read(-1), None);
        assert_eq!(name(-1, None, false), None);
        let (pipe, _) = std::io::pipe().unwrap();
        assert_eq!(read(pipe.as_raw_fd()), None);
        let file = memory_file();
        assert!(lock(file.as_raw_fd(), 7), "a lock of the application's");
        assert_eq!(offset_of(file.as_raw_fd()), None);
        for line in [
            "",
            "lock:",
            "lock: 1: POSIX ADVISORY READ 7 0:1:2 4611686018427387905 4611686018427387905",
            "lock: 1: OFDLCK ADVISORY WRITE -1 0:1:2 4611686018427387905 4611686018427387905",
            "lock: 1: OFDLCK ADVISORY READ -1 0:1:2 4611686018427387905 EOF",
            "lock: 1: OFDLCK ADVISORY READ -1 0:1:2 4611686018427387905",
            "lock: 1: OFDLCK ADVISORY READ -1 0:1:2 99999999999999999999 99999999999999999999",
        ] {
            assert_eq!(offset_in(line), None, "{line}");
        }
    }
}
