//! Keys of memory objects that are passed on as file descriptors.
//!
//! A descriptor does not identify its object, and each process has another number for it. But all of them lead to one
//! open file description in the kernel, and that can carry a key: an OFD read lock (fcntl(2)) at an offset that no
//! program locks for any other purpose. The lock's first byte is the key, its length tells the size of the memory.
//! The kernel lists the lock in `/proc/self/fdinfo/FD` (proc_pid_fdinfo(5)), for this description alone. It keeps the
//! lock as long as any descriptor of the description is open anywhere, also in a message under way. `exported.rs`
//! asks whether it still does.

use core::ffi::c_int;
use std::io::Read;

use vcuda_region::process::own_file;
use vcuda_region::shared::ObjectKey;
use vcuda_region::shared::descriptors::request;

/// Bytes of memory per byte of the lock's length: no GPU hands out physical memory in smaller pieces.
const UNIT: u64 = 4096;

/// The key that a descriptor carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfdKey {
    /// The object's key.
    pub(crate) key: ObjectKey,
    /// Size of the object when the key was set (bytes, rounded up); 0 if it was not known.
    pub(crate) bytes: u64,
    /// Whether it is a multicast object.
    pub(crate) is_multicast: bool,
}

/// A key as the kernel keeps it: the first and the last byte of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lock {
    first: u64,
    last: u64,
}

impl OfdKey {
    fn from_lock(lock: Lock) -> Self {
        Self {
            key: ObjectKey::from_parts(ObjectKey::OF_OFFSET, lock.first),
            // The lock is one byte longer than the size takes. So a lock of one byte has no known size.
            bytes: (lock.last - lock.first).saturating_mul(UNIT),
            is_multicast: lock.first & ObjectKey::MULTICAST != 0,
        }
    }
}

/// The key that a descriptor carries, if it carries one.
pub(crate) fn read(file: c_int) -> Option<OfdKey> {
    lock_of(file).map(OfdKey::from_lock)
}

/// Sets the key of a descriptor's object of `bytes` (0: not known): the key `known`, or else a new one. Keeps a key
/// that is set already. `None` if the kernel keeps no lock for this file. A `known` key that was not made here, such
/// as an IPC handle's, yields a lock that is found by it, and another key: importers then pay for the memory again.
pub(crate) fn assign(
    file: c_int,
    known: Option<ObjectKey>,
    bytes: u64,
    is_multicast: bool,
) -> Option<OfdKey> {
    if let Some(lock) = lock_of(file) {
        return Some(OfdKey::from_lock(lock));
    }
    let first = match known {
        Some(key) => key.lock_offset(),
        None => {
            let [_, random] = ObjectKey::unique().ok()?.parts();
            let kind = if is_multicast { ObjectKey::MULTICAST } else { 0 };
            random & (ObjectKey::MULTICAST - 1) | ObjectKey::LOCK | kind
        }
    };
    let lock = Lock { first, last: first.saturating_add(bytes.div_ceil(UNIT)) };
    set(file, lock).then(|| OfdKey::from_lock(lock))
}

/// Sets the lock for the open file description.
fn set(file: c_int, lock: Lock) -> bool {
    let length = lock.last - lock.first + 1;
    let Some(words) = request(libc::F_RDLCK, lock.first, length) else {
        return false;
    };
    // SAFETY: the kernel reads the lock; the descriptor may be any number.
    unsafe { libc::fcntl(file, libc::F_OFD_SETLK, &raw const words) == 0 }
}

/// What the kernel tells of a descriptor, with its key.
pub(crate) fn read_all(file: c_int) -> Option<(OfdKey, String)> {
    let words = info_of(file)?;
    lock_among(&words).map(|lock| (OfdKey::from_lock(lock), words))
}

/// Whether a descriptor is known not to carry `key`.
pub(crate) fn is_without(file: c_int, key: ObjectKey) -> bool {
    let key_among = |words: &str| lock_among(words).map(|lock| OfdKey::from_lock(lock).key);
    info_of(file).is_some_and(|words| key_among(&words) != Some(key))
}

fn info_of(file: c_int) -> Option<String> {
    let mut words = String::new();
    let mut info = std::fs::File::open(own_file(&format!("fdinfo/{file}"))).ok()?;
    info.read_to_string(&mut words).ok()?;
    Some(words)
}

fn lock_of(file: c_int) -> Option<Lock> {
    lock_among(&info_of(file)?)
}

/// The lock with the key of the descriptor's object. If two processes have set one at once, the lowest counts.
fn lock_among(words: &str) -> Option<Lock> {
    words.lines().filter_map(|line| lock_in(line.strip_prefix("lock:")?.split_once(':')?.1)).min()
}

/// The lock in a line, from behind its number: `OFDLCK  ADVISORY  READ -1 00:01:1048 4611686018427387905
/// 4611686018427387906`.
fn lock_in(line: &str) -> Option<Lock> {
    let mut words = line.split_whitespace();
    if [words.next(), words.nth(1)] != [Some("OFDLCK"), Some("READ")] {
        return None;
    }
    let [first, last] = [words.nth(2)?, words.next()?].map(|word| word.parse::<u64>().ok());
    let lock = Lock { first: first?, last: last? };
    (lock.first & ObjectKey::LOCK != 0 && lock.first <= lock.last).then_some(lock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// A file in memory; the kernel treats its locks as those of a device.
    fn memory_file() -> std::fs::File {
        // SAFETY: a constant name.
        let descriptor = unsafe { libc::memfd_create(c"key".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(descriptor >= 0);
        // SAFETY: the descriptor was just made, and nothing else owns it.
        unsafe { std::os::fd::FromRawFd::from_raw_fd(descriptor) }
    }

    #[test]
    fn a_key_stays_with_the_open_file_and_not_with_its_number() {
        let file = memory_file();
        assert_eq!(lock_of(file.as_raw_fd()), None);
        let key = assign(file.as_raw_fd(), None, 0, false).unwrap();
        let other_number = file.try_clone().unwrap();
        assert_eq!(read(other_number.as_raw_fd()), Some(key));
        assert_eq!(assign(other_number.as_raw_fd(), None, 0, false), Some(key), "set once");
        assert!(!key.is_multicast);
        // Another opening of the same file is another description: it has no key.
        let opened = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert_eq!(read(opened.as_raw_fd()), None);
    }

    #[test]
    fn one_object_has_one_key_on_all_its_descriptors() {
        let (first, second) = (memory_file(), memory_file());
        let key = assign(first.as_raw_fd(), None, 0, true).unwrap();
        assert!(key.is_multicast);
        assert_eq!(assign(second.as_raw_fd(), Some(key.key), 0, true), Some(key));
        assert_eq!(read(second.as_raw_fd()), Some(key));
        let third = memory_file();
        let hashed = ObjectKey::of(&[1; 64]);
        let named = assign(third.as_raw_fd(), Some(hashed), 0, false).unwrap();
        assert_ne!(named, key);
        assert_eq!(named.key.lock_offset(), hashed.lock_offset(), "to be asked by either key");
    }

    #[test]
    fn what_is_no_file_or_has_other_locks_says_nothing() {
        assert_eq!(read(-1), None);
        assert_eq!(assign(-1, None, 0, false), None);
        let (pipe, _) = std::io::pipe().unwrap();
        assert_eq!(read(pipe.as_raw_fd()), None);
        let file = memory_file();
        assert!(set(file.as_raw_fd(), Lock { first: 7, last: 7 }), "a lock of the application's");
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
    fn a_key_tells_the_size() {
        let file = memory_file();
        let key = assign(file.as_raw_fd(), None, (2 << 20) + 1, false).unwrap();
        assert_eq!(key.bytes, (2 << 20) + 4096, "in whole units");
        let sizeless = memory_file();
        let other = assign(sizeless.as_raw_fd(), None, 0, false).unwrap();
        assert_eq!((other.bytes, read(sizeless.as_raw_fd())), (0, Some(other)));
    }
}
