//! System calls. With `map`, this has the only unsafe code of the crate.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{self, FallocateFlags, OFlag};
use nix::sys::mman;
use nix::sys::prctl;
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use nix::unistd::{self, AccessFlags, UnlinkatFlags};

/// Whether this process may write into the directory `path`.
pub(crate) fn is_writable(path: &Path) -> bool {
    unistd::access(path, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

/// Whether there is a process with this PID, which may be a zombie.
pub(crate) fn is_process(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    nix::sys::signal::kill(unistd::Pid::from_raw(pid), None) != Err(Errno::ESRCH)
}

/// Real user id of this process.
pub(crate) fn user_id() -> u32 {
    unistd::getuid().as_raw()
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
    // CLOCK_MONOTONIC exists on every Linux, so the call cannot fail.
    let own_ns = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs());
    own_ns.wrapping_sub(namespace_offset_ns())
}

/// Sleeps until the host's CLOCK_MONOTONIC reaches `ns`, or a signal comes. The thread's timer slack, 50 us by default, is zero
/// meanwhile.
pub(crate) fn sleep_until_ns(ns: u64) {
    let time = TimeSpec::from_duration(Duration::from_nanos(ns.wrapping_add(namespace_offset_ns())));
    let slack = prctl::get_timerslack().ok().and_then(|ns| u64::try_from(ns).ok());
    let _ = prctl::set_timerslack(1);
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &time);
    let _ = prctl::set_timerslack(slack.unwrap_or(50_000));
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

/// Registers `handler` for children of `fork`. It must not unwind, and may call only what signal handlers may.
pub(crate) fn at_fork(handler: extern "C" fn()) {
    // SAFETY: the C library forgets a library's handlers when it unloads it.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
}

/// Keeps the open file description of `file` until this process ends, whatever becomes of its descriptors: a mapping that is
/// never touched, and that a child of `fork` does not get.
pub(crate) fn keep_until_the_end(file: &File) -> io::Result<()> {
    let (length, flags) = (NonZeroUsize::MIN, mman::MapFlags::MAP_SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let page = unsafe { mman::mmap(None, length, mman::ProtFlags::PROT_NONE, flags, file, 0) }?;
    // SAFETY: nothing refers to the page.
    Ok(unsafe { mman::madvise(page, length.get(), mman::MmapAdvise::MADV_DONTFORK) }?)
}

/// Closes the descriptor of a file that is never dropped.
pub(crate) fn close_leaked(file: &File) {
    // SAFETY: takes a number; the caller's file uses it only after a look at what it is.
    unsafe { libc::close(file.as_raw_fd()) };
}

/// Reserves disk blocks for the file's bytes `start..start + length`, so that stores there cannot fail. If the file system
/// does not support that, the call succeeds without effect.
pub(crate) fn reserve(file: &File, start: u64, length: u64) -> io::Result<()> {
    let (Ok(start), Ok(length)) = (i64::try_from(start), i64::try_from(length)) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    match fcntl::fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, start, length) {
        Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file of `directory` (mode 0600 if it is made).
pub(crate) fn open_in(directory: &File, name: &str, flags: OFlag) -> io::Result<File> {
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    Ok(fcntl::openat(directory, name, flags | OFlag::O_CLOEXEC, mode)?.into())
}

/// Opens a named pipe of `directory`, which is made (mode 0600) if there is none. With both ends in one description, the call does
/// not wait.
pub(crate) fn open_pipe_in(directory: &File, name: &str) -> io::Result<File> {
    match unistd::mkfifoat(directory, name, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(()) | Err(Errno::EEXIST) => open_in(directory, name, OFlag::O_RDWR),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file of `directory`.
pub(crate) fn remove_in(directory: &File, name: &str) -> io::Result<()> {
    Ok(unistd::unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)?)
}

/// Position of an open file description.
pub(crate) fn position(mut file: &File) -> io::Result<u64> {
    file.stream_position()
}

/// Sets the position of an open file description, for all its descriptors in all processes.
pub(crate) fn set_position(mut file: &File, position: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(position)).map(drop)
}

/// Path by which the kernel knows an open file.
#[cfg(test)]
pub(crate) fn name_of(file: &File) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Byte locks of a file. Record locks (`hold`) belong to the process, end with it or with any of its descriptors of the file,
/// and tell its PID in every PID namespace. The others belong to the open file description, a different owner: `is_held` also
/// sees locks of this process, even by another copy of this library. fcntl(2), "Advisory record locking", "Open file
/// description locks".
pub(crate) mod lock {
    use super::{File, fcntl, io};
    use fcntl::FcntlArg;

    fn request(byte: u64, kind: libc::c_int) -> libc::flock {
        libc::flock {
            l_type: libc::c_short::try_from(kind).unwrap_or_default(),
            l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
            l_start: i64::try_from(byte).unwrap_or(i64::MAX),
            l_len: 1,
            l_pid: 0,
        }
    }

    fn control(file: &File, command: FcntlArg<'_>) -> io::Result<()> {
        Ok(fcntl::fcntl(file, command).map(drop)?)
    }

    /// Locks the byte for this process without waiting.
    pub(crate) fn hold(file: &File, byte: u64) -> io::Result<()> {
        control(file, FcntlArg::F_SETLK(&request(byte, libc::F_WRLCK)))
    }

    pub(crate) fn release(file: &File, byte: u64) -> io::Result<()> {
        control(file, FcntlArg::F_SETLK(&request(byte, libc::F_UNLCK)))
    }

    /// Takes a shared lock of the byte for this open file description, until its last descriptor in any process is closed.
    pub(crate) fn share(file: &File, byte: u64) -> io::Result<()> {
        control(file, FcntlArg::F_OFD_SETLK(&request(byte, libc::F_RDLCK)))
    }

    /// Whether any process, including this one, holds the byte. Unknown counts as held.
    pub(crate) fn is_held(file: &File, byte: u64) -> bool {
        let mut request = request(byte, libc::F_WRLCK);
        match control(file, FcntlArg::F_OFD_GETLK(&mut request)) {
            Ok(()) => libc::c_int::from(request.l_type) != libc::F_UNLCK,
            Err(_) => true,
        }
    }

    /// PID of the process that holds the byte, in this process's namespace; `None` if it has none there.
    pub(crate) fn holder(file: &File, byte: u64) -> Option<u32> {
        let mut request = request(byte, libc::F_WRLCK);
        control(file, FcntlArg::F_OFD_GETLK(&mut request)).ok()?;
        let is_held = libc::c_int::from(request.l_type) != libc::F_UNLCK;
        u32::try_from(request.l_pid).ok().filter(|pid| is_held && *pid > 0)
    }

    /// Locks the byte for this open file description without waiting.
    pub(crate) fn guard(file: &File, byte: u64) -> io::Result<()> {
        control(file, FcntlArg::F_OFD_SETLK(&request(byte, libc::F_WRLCK)))
    }

    /// As `guard`, but waits until the byte is free.
    pub(crate) fn await_guard(file: &File, byte: u64) -> io::Result<()> {
        control(file, FcntlArg::F_OFD_SETLKW(&request(byte, libc::F_WRLCK)))
    }

    pub(crate) fn unguard(file: &File, byte: u64) -> io::Result<()> {
        control(file, FcntlArg::F_OFD_SETLK(&request(byte, libc::F_UNLCK)))
    }
}
