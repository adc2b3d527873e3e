//! System calls. With `map`, this is the only unsafe code of the crate.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// Whether this process may write into the directory `path`.
pub(crate) fn is_writable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: `path` is a terminated string that lives across the call.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// Real user id of this process.
pub(crate) fn user_id() -> u32 {
    // SAFETY: getuid has no preconditions and cannot fail.
    unsafe { libc::getuid() }
}

/// What this process's time namespace adds to CLOCK_MONOTONIC (ns, modulo 2^64): a GPU does not know of it.
fn namespace_offset_ns() -> u64 {
    static OFFSET_NS: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *OFFSET_NS.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("monotonic")).unwrap_or_default();
        let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap_or(0_i64));
        let (seconds, ns) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        seconds.wrapping_mul(1_000_000_000).wrapping_add(ns).cast_unsigned()
    })
}

/// The host's CLOCK_MONOTONIC, ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing; CLOCK_MONOTONIC exists on every Linux, so the call cannot fail.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let own_ns = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
    own_ns.wrapping_sub(namespace_offset_ns())
}

/// Sleeps until the host's CLOCK_MONOTONIC reaches `ns`, or a signal comes. The thread's timer slack, 50 us by default, is zero
/// meanwhile.
pub(crate) fn sleep_until_ns(ns: u64) {
    let ns = ns.wrapping_add(namespace_offset_ns());
    let time = libc::timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
    };
    let slack = timer_slack();
    set_timer_slack(1);
    // SAFETY: `time` is a valid timespec; the remaining time is not asked for (null is allowed).
    let _ = unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
    set_timer_slack(slack);
}

/// This thread's timer slack (ns).
fn timer_slack() -> libc::c_ulong {
    // SAFETY: PR_GET_TIMERSLACK takes no further argument and changes nothing.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    libc::c_ulong::try_from(slack).unwrap_or(50_000)
}

/// Sets this thread's timer slack (ns).
fn set_timer_slack(ns: libc::c_ulong) {
    // SAFETY: PR_SET_TIMERSLACK takes one unsigned long and concerns this thread's sleeping only.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) };
}

/// Sleeps while the lower half of `word` is that of `seen`, at most `ns`; it can return earlier. futex(2), shared by the
/// processes that map the word.
pub(crate) fn futex_wait(word: &AtomicU64, seen: u64, ns: u64) {
    let time = libc::timespec {
        tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
    };
    let lower = seen & u64::from(u32::MAX);
    // SAFETY: the word is mapped as long as it is borrowed; its lower half comes first, as all supported processors are
    // little-endian; `time` is valid.
    let _ = unsafe {
        libc::syscall(libc::SYS_futex, std::ptr::from_ref(word), libc::FUTEX_WAIT, lower, &raw const time)
    };
}

/// Wakes all that sleep on `word`.
pub(crate) fn futex_wake(word: &AtomicU64) {
    // SAFETY: the word is mapped as long as it is borrowed, and the call does not touch it.
    let _ = unsafe {
        libc::syscall(libc::SYS_futex, std::ptr::from_ref(word), libc::FUTEX_WAKE, libc::c_int::MAX)
    };
}

/// Registers `handler` for this process's normal end, or this library's unloading. It must not unwind.
pub(crate) fn at_exit(handler: extern "C" fn()) {
    // SAFETY: an `extern "C" fn()` stays callable while its library is loaded, and glibc calls it before unloading. After a
    // failure (no memory) it is not called.
    let _ = unsafe { libc::atexit(handler) };
}

/// Reserves disk blocks for the file's bytes `start..start + length`, so that stores there cannot fail. If the file system
/// does not support that, the call succeeds without effect.
pub(crate) fn reserve(file: &File, start: u64, length: u64) -> io::Result<()> {
    let (Ok(start), Ok(length)) = (i64::try_from(start), i64::try_from(length)) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    // SAFETY: the descriptor is open as long as `file`; the call touches no memory of ours.
    if unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, start, length) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        error => Err(error),
    }
}

/// Opens a file of `directory` (mode 0600 if it is made).
pub(crate) fn open_in(directory: &File, name: &str, flags: libc::c_int) -> io::Result<File> {
    let name = CString::new(name)?;
    let mode: libc::c_uint = 0o600;
    // SAFETY: an open descriptor and a terminated string that live across the call.
    let opened = unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor just made, owned here alone.
    Ok(unsafe { File::from_raw_fd(opened) })
}

/// Removes a file of `directory`.
pub(crate) fn remove_in(directory: &File, name: &str) -> io::Result<()> {
    let name = CString::new(name)?;
    // SAFETY: an open descriptor and a terminated string that live across the call.
    if unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Position of an open file description.
pub(crate) fn position(file: &File) -> io::Result<u64> {
    seek(file, 0, libc::SEEK_CUR)
}

/// Sets the position of an open file description, for all its descriptors in all processes.
pub(crate) fn set_position(file: &File, position: u64) -> io::Result<()> {
    let position = i64::try_from(position).map_err(|_| io::ErrorKind::InvalidInput)?;
    seek(file, position, libc::SEEK_SET).map(drop)
}

fn seek(file: &File, offset: i64, from: libc::c_int) -> io::Result<u64> {
    // SAFETY: the descriptor is open as long as `file`; the call touches no memory of ours.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset, from) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}

/// Path by which the kernel knows an open file.
#[cfg(test)]
pub(crate) fn name_of(file: &File) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Byte locks of a file. Record locks (`hold`) belong to the process, end with it, and are visible from every PID
/// namespace. `guard` and `is_held` use the open file description, which is a different owner: they also see record locks
/// of this process, even by another copy of this library. fcntl(2), "Advisory record locking", "Open file description
/// locks".
pub(crate) mod lock {
    use super::{AsRawFd, File, io};

    fn request(byte: u64, kind: libc::c_int) -> libc::flock {
        libc::flock {
            l_type: libc::c_short::try_from(kind).unwrap_or_default(),
            l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
            l_start: i64::try_from(byte).unwrap_or(i64::MAX),
            l_len: 1,
            l_pid: 0,
        }
    }

    fn control(file: &File, command: libc::c_int, request: &mut libc::flock) -> io::Result<()> {
        // SAFETY: `request` is a valid flock for reading and writing; the descriptor is open as long as `file`.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(request)) } == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }

    /// Locks the byte for this process without waiting.
    pub(crate) fn hold(file: &File, byte: u64) -> io::Result<()> {
        control(file, libc::F_SETLK, &mut request(byte, libc::F_WRLCK))
    }

    /// Unlocks the byte.
    pub(crate) fn release(file: &File, byte: u64) -> io::Result<()> {
        control(file, libc::F_SETLK, &mut request(byte, libc::F_UNLCK))
    }

    /// Takes a shared lock of the byte for this open file description, until its last descriptor in any process is closed.
    pub(crate) fn share(file: &File, byte: u64) -> io::Result<()> {
        control(file, libc::F_OFD_SETLK, &mut request(byte, libc::F_RDLCK))
    }

    /// Whether any process, including this one, holds the byte. Unknown counts as held.
    pub(crate) fn is_held(file: &File, byte: u64) -> bool {
        let mut request = request(byte, libc::F_WRLCK);
        match control(file, libc::F_OFD_GETLK, &mut request) {
            Ok(()) => libc::c_int::from(request.l_type) != libc::F_UNLCK,
            Err(_) => true,
        }
    }

    /// PID of the process that holds the byte, in this process's namespace; `None` if it has none there.
    pub(crate) fn holder(file: &File, byte: u64) -> Option<u32> {
        let mut request = request(byte, libc::F_WRLCK);
        control(file, libc::F_OFD_GETLK, &mut request).ok()?;
        let is_held = libc::c_int::from(request.l_type) != libc::F_UNLCK;
        u32::try_from(request.l_pid).ok().filter(|pid| is_held && *pid > 0)
    }

    /// Locks the byte for this open file description without waiting.
    pub(crate) fn guard(file: &File, byte: u64) -> io::Result<()> {
        control(file, libc::F_OFD_SETLK, &mut request(byte, libc::F_WRLCK))
    }

    /// As `guard`, but waits until the byte is free.
    pub(crate) fn await_guard(file: &File, byte: u64) -> io::Result<()> {
        control(file, libc::F_OFD_SETLKW, &mut request(byte, libc::F_WRLCK))
    }

    /// Unlocks the guarded byte.
    pub(crate) fn unguard(file: &File, byte: u64) -> io::Result<()> {
        control(file, libc::F_OFD_SETLK, &mut request(byte, libc::F_UNLCK))
    }
}
