//! The names of memory objects that are passed on as file descriptors.
//!
//! A descriptor says nothing of what it stands for, and each process gets another number. But all of them lead to one
//! open file description in the kernel, and that can carry a name: an OFD read lock (fcntl(2)) at an offset that nobody
//! locks for any other purpose. Where it begins is the name, and how far it goes the size of the memory. The kernel lists
//! it in `/proc/self/fdinfo/FD` (proc_pid_fdinfo(5)), for this description alone, and in `/proc/locks` (proc_locks(5)) as
//! long as any descriptor of it is open anywhere. No descriptor stays open for it.

use core::ffi::c_int;
use std::io::Read;

use vcuda_region::process::own_file;
use vcuda_region::shared::ObjectKey;

/// Offsets of names have this bit, which no real file's bytes reach.
const NAME: u64 = 1 << 62;
/// And this one if the object costs nothing (a multicast object).
const FREE: u64 = 1 << 61;
/// The first word of the keys that are made of names.
const WORD: u64 = u64::from_le_bytes(*b"vcudatag");
/// What a byte of the lock stands for (bytes): no GPU hands out physical memory in smaller pieces.
const UNIT: u64 = 4096;
/// How often the kernel's list is read before it is believed that something is not on it.
const LOOKS: u32 = 4;

/// What a descriptor says of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The object.
    pub(crate) key: ObjectKey,
    /// Its size, if that was known when it was named: 0 if not (bytes, not less than it has).
    pub(crate) bytes: u64,
    /// Whether it costs nothing.
    pub(crate) is_free: bool,
}

/// A name as the kernel keeps it: the first and the last byte of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lock {
    first: u64,
    last: u64,
}

impl Tag {
    fn of(lock: Lock) -> Self {
        Self {
            key: ObjectKey::from_parts(WORD, lock.first),
            // One byte more than the size takes: so a lock of one byte is of no known size.
            bytes: (lock.last - lock.first).saturating_mul(UNIT),
            is_free: lock.first & FREE != 0,
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
            bytes: 0,
            is_free: false,
        })
    }
}

/// What a descriptor says of its object, if it says anything.
pub(crate) fn read(file: c_int) -> Option<Tag> {
    lock_of(file).map(Tag::of).or_else(|| Tag::of_file(file))
}

/// Names the object of a descriptor, which has `bytes` (0: not known): as `known` says if it has a name already, else by
/// a new one. Nothing if the kernel keeps no name for this file.
pub(crate) fn name(file: c_int, known: Option<ObjectKey>, bytes: u64, is_free: bool) -> Option<Tag> {
    if let Some(lock) = lock_of(file) {
        return Some(Tag::of(lock));
    }
    let first = match known.and_then(offset_of) {
        Some(offset) => offset,
        None => {
            let [_, random] = ObjectKey::unique().ok()?.parts();
            let kind = if is_free { FREE } else { 0 };
            random & (FREE - 1) | NAME | kind
        }
    };
    let lock = Lock {
        first,
        last: first.saturating_add(bytes.div_ceil(UNIT)),
    };
    if set(file, lock) {
        Some(Tag::of(lock))
    } else {
        Tag::of_file(file)
    }
}

/// Of these objects, those of which the kernel says that a descriptor is open anywhere.
///
/// The kernel hands its list out page by page, and loses its place in it when locks before that are released: a line can
/// be missed (one look in some thousand, while others lock and unlock all the time). So what is not found is looked for again.
pub(crate) fn are_open(keys: &[ObjectKey]) -> Vec<ObjectKey> {
    let mut wanted: Vec<_> = keys
        .iter()
        .filter_map(|key| Some((offset_of(*key)?, *key)))
        .collect();
    let mut open = Vec::new();
    for _ in 0..LOOKS {
        if wanted.is_empty() {
            break;
        }
        let Ok(locks) = std::fs::read_to_string("/proc/locks") else {
            break;
        };
        let listed: Vec<_> = locks
            .lines()
            .filter_map(|line| lock_in(line.split_once(':')?.1))
            .collect();
        let is_listed = |(first, _): &mut (u64, ObjectKey)| listed.iter().any(|lock| lock.first == *first);
        open.extend(wanted.extract_if(.., is_listed).map(|(_, key)| key));
    }
    open
}

/// Where the name of an object stands, if it was named by a lock.
fn offset_of(key: ObjectKey) -> Option<u64> {
    match key.parts() {
        [WORD, offset] => Some(offset),
        _ => None,
    }
}

/// Sets the lock for the open file description.
fn set(file: c_int, lock: Lock) -> bool {
    let (Ok(start), Ok(length)) = (
        libc::off_t::try_from(lock.first),
        libc::off_t::try_from(lock.last - lock.first + 1),
    ) else {
        return false;
    };
    // SAFETY: plain numbers, for which zero is a valid value; `l_pid` must be 0.
    let mut words: libc::flock = unsafe { core::mem::zeroed() };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "constants below 3, in the kernel's own width"
    )]
    {
        words.l_type = libc::F_RDLCK as libc::c_short;
        words.l_whence = libc::SEEK_SET as libc::c_short;
    }
    words.l_start = start;
    words.l_len = length;
    // SAFETY: the kernel reads the lock; the descriptor may be any number.
    unsafe { libc::fcntl(file, libc::F_OFD_SETLK, &raw const words) == 0 }
}

/// The lock that names the descriptor's object. The lowest, should two processes have named it at once.
fn lock_of(file: c_int) -> Option<Lock> {
    let mut words = String::new();
    let mut info = std::fs::File::open(own_file(&format!("fdinfo/{file}"))).ok()?;
    info.read_to_string(&mut words).ok()?;
    words
        .lines()
        .filter_map(|line| lock_in(line.strip_prefix("lock:")?.split_once(':')?.1))
        .min()
}

/// The lock in a line, from behind its number: `OFDLCK  ADVISORY  READ -1 00:01:1048 4611686018427387905 4611686018427387906`.
fn lock_in(line: &str) -> Option<Lock> {
    let mut words = line.split_whitespace();
    if [words.next(), words.nth(1)] != [Some("OFDLCK"), Some("READ")] {
        return None;
    }
    let [first, last] = [words.nth(2)?, words.next()?].map(|word| word.parse::<u64>().ok());
    let lock = Lock {
        first: first?,
        last: last?,
    };
    (lock.first & NAME != 0 && lock.first <= lock.last).then_some(lock)
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
        assert_eq!(lock_of(file.as_raw_fd()), None);
        let tag = name(file.as_raw_fd(), None, 0, false).unwrap();
        let other_number = file.try_clone().unwrap();
        assert_eq!(read(other_number.as_raw_fd()), Some(tag));
        assert_eq!(
            name(other_number.as_raw_fd(), None, 0, false),
            Some(tag),
            "named once"
        );
        assert!(!tag.is_free);
        // Another opening of the same file is another description: it has no name, but its own identity.
        let opened = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert_eq!(lock_of(opened.as_raw_fd()), None);
        assert_ne!(read(opened.as_raw_fd()), Some(tag));
        assert!(read(opened.as_raw_fd()).is_some());
    }

    #[test]
    fn one_object_has_one_name_on_all_its_descriptors() {
        let (first, second) = (memory_file(), memory_file());
        let tag = name(first.as_raw_fd(), None, 0, true).unwrap();
        assert!(tag.is_free);
        assert_eq!(name(second.as_raw_fd(), Some(tag.key), 0, true), Some(tag));
        assert_eq!(read(second.as_raw_fd()), Some(tag));
        let third = memory_file();
        let hashed = Some(ObjectKey::of(&[1; 64]));
        assert_ne!(
            name(third.as_raw_fd(), hashed, 0, false),
            Some(tag),
            "a name of its own"
        );
    }

    #[test]
    fn what_is_no_file_or_has_other_locks_says_nothing() {
        assert_eq!(read(-1), None);
        assert_eq!(name(-1, None, 0, false), None);
        let (pipe, _) = std::io::pipe().unwrap();
        assert_eq!(read(pipe.as_raw_fd()), None);
        let file = memory_file();
        assert!(
            set(file.as_raw_fd(), Lock { first: 7, last: 7 }),
            "a lock of the application's"
        );
        assert_eq!(lock_of(file.as_raw_fd()), None);
        for line in [
            "",
            "POSIX ADVISORY READ 7 0:1:2 4611686018427387905 4611686018427387905",
            "OFDLCK ADVISORY WRITE -1 0:1:2 4611686018427387905 4611686018427387905",
            "OFDLCK ADVISORY READ -1 0:1:2 4611686018427387905 EOF",
            "OFDLCK ADVISORY READ -1 0:1:2 4611686018427387905",
            "OFDLCK ADVISORY READ -1 0:1:2 4611686018427387905 4611686018427387904",
            "OFDLCK ADVISORY READ -1 0:1:2 99999999999999999999 99999999999999999999",
        ] {
            assert_eq!(lock_in(line), None, "{line}");
        }
    }

    #[test]
    fn a_name_says_the_size_and_whether_anybody_has_it_open() {
        let file = memory_file();
        let tag = name(file.as_raw_fd(), None, (2 << 20) + 1, false).unwrap();
        assert_eq!(tag.bytes, (2 << 20) + 4096, "in whole units");
        let sizeless = memory_file();
        let other = name(sizeless.as_raw_fd(), None, 0, false).unwrap();
        assert_eq!((other.bytes, read(sizeless.as_raw_fd())), (0, Some(other)));
        let hashed = ObjectKey::of(&[1; 64]);
        let keys = [tag.key, other.key, hashed];
        let copy = file.try_clone().unwrap();
        drop((file, sizeless));
        assert_eq!(are_open(&keys), [tag.key]);
        drop(copy);
        assert!(are_open(&keys).is_empty());
    }
}
