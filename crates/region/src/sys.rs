//! The few system calls that the standard library does not offer.
#![expect(unsafe_code, reason = "system calls")]

mod access_list;
mod memory;
pub(crate) use access_list::let_through;
pub(crate) use memory::{copy_own, memory_of};

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Whether `pid` exists in this process's PID namespace, whoever its user is, running or a zombie.
pub(crate) fn process_exists(pid: u32) -> bool {
    let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) else {
        return false;
    };
    // SAFETY: signal 0 is only checked, never sent.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Whether the process `pid` of this PID namespace has ended with all its threads; a zombie has.
///
/// A pidfd is readable from that moment on (pidfd_open(2)).
///
/// # Errors
/// Fails without a pidfd: a kernel before 5.3, a filter of system calls, no descriptor left.
pub(crate) fn has_ended(pid: u32) -> io::Result<bool> {
    let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) else {
        return Ok(true);
    };
    // SAFETY: takes two numbers and returns a new descriptor, closed on exec, or -1.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if opened < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ESRCH) { Ok(true) } else { Err(error) };
    }
    let fd = i32::try_from(opened).map_err(io::Error::other)?;
    // SAFETY: `fd` is new and owned here alone.
    let process = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut question = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, valid for writing; no wait.
    match unsafe { libc::poll(&raw mut question, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready == 1),
    }
}

/// Supplementary groups that the process at the other end of a unix socket had when it connected.
///
/// # Errors
/// Fails before Linux 4.13, or if this is no connected unix socket.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<libc::gid_t>> {
    let mut groups: Vec<libc::gid_t> = vec![0; 32];
    loop {
        let held = groups.len() * size_of::<libc::gid_t>();
        let mut bytes = libc::socklen_t::try_from(held).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `bytes`, which is the size of `groups`.
        let answer = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let error = io::Error::last_os_error();
        let count = usize::try_from(bytes).map_err(io::Error::other)? / size_of::<libc::gid_t>();
        if answer == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        // `bytes` then says how many there are.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> libc::pid_t {
    // SAFETY: takes nothing and cannot fail. The C library has a function for it only since glibc 2.30.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    libc::pid_t::try_from(id).unwrap_or(0)
}

/// `CLOCK_MONOTONIC` in nanoseconds, from the vDSO.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing; the call fails only for an unknown clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A lock by `flock`, which the kernel drops with the last descriptor of this opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    Shared,
    Exclusive,
}

/// Tries to lock. Returns `false` if another opening holds it.
pub(crate) fn try_lock(file: &File, lock: Lock) -> io::Result<bool> {
    let operation = if lock == Lock::Shared { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: the descriptor is open for as long as `file` lives.
    if unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock { Ok(false) } else { Err(error) }
}

/// Locks, with attempts for at most `within`. Returns `false` if another opening held it all the time.
pub(crate) fn lock_within(file: &File, lock: Lock, within: Duration) -> io::Result<bool> {
    let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    let until_ns = monotonic_ns().saturating_add(within_ns);
    while !try_lock(file, lock)? {
        if monotonic_ns() >= until_ns {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// Sets the file's times to now. That wakes watchers of the file (inotify(7), `IN_ATTRIB`), which a write to mapped
/// memory does not.
pub(crate) fn touch(file: &File) {
    // SAFETY: the descriptor is open for as long as `file` lives; no times means now, for which any writer has the right.
    unsafe { libc::futimens(file.as_raw_fd(), core::ptr::null()) };
}

/// Gives a lock back before the file is closed.
pub(crate) fn unlock(file: &File) {
    // SAFETY: the descriptor is open for as long as `file` lives.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

/// Makes the file `size` bytes long with every block reserved, so that a full disk is an error here and no fault later.
pub(crate) fn reserve_space(file: &File, size: usize) -> io::Result<()> {
    let size = libc::off_t::try_from(size).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for as long as `file` lives.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Renames without replacing: `AlreadyExists` if `to` is there.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let from = CString::new(from.as_os_str().as_bytes())?;
    let to = CString::new(to.as_os_str().as_bytes())?;
    // By its number: the function came with glibc 2.28, and images have 2.17.
    // SAFETY: both are strings that end in NUL and live until the call returns.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks a byte for this opening of the file (fcntl(2), `F_OFD_SETLK`).
///
/// # Errors
/// Fails if another opening has it, or the file system has no locks.
pub(crate) fn try_lock_byte(file: &File, byte: u64) -> io::Result<()> {
    control_lock(file, libc::F_OFD_SETLK, byte, libc::F_WRLCK).map(drop)
}

/// Unlocks a byte that this opening of the file has.
pub(crate) fn unlock_byte(file: &File, byte: u64) {
    let _ = control_lock(file, libc::F_OFD_SETLK, byte, libc::F_UNLCK);
}

/// Whether a byte is locked by another opening of the file, in any process.
///
/// # Errors
/// The file system has no locks.
pub(crate) fn is_byte_locked(file: &File, byte: u64) -> io::Result<bool> {
    let kind = control_lock(file, libc::F_OFD_GETLK, byte, libc::F_WRLCK)?;
    Ok(kind != libc::F_UNLCK)
}

/// Asks for a lock of `kind` on one byte; returns the kind that the answer has.
fn control_lock(file: &File, command: libc::c_int, byte: u64, kind: libc::c_int) -> io::Result<libc::c_int> {
    let start = libc::off_t::try_from(byte).map_err(io::Error::other)?;
    Ok(ask_for_lock(file, command, (start, 1), kind)?.l_type.into())
}

/// Asks for a lock of `kind` on a number of bytes from `start`, 0 for all that follow.
fn ask_for_lock(
    file: &File,
    command: libc::c_int,
    (start, count): (libc::off_t, libc::off_t),
    kind: libc::c_int,
) -> io::Result<libc::flock> {
    let mut request = libc::flock {
        l_type: libc::c_short::try_from(kind).map_err(io::Error::other)?,
        l_whence: 0,
        l_start: start,
        l_len: count,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for as long as `file` lives, and the request valid for reading and writing.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut request) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(request)
}

/// A second descriptor of the same opening that stays open across `exec`. It has a high number, as programs expect
/// theirs from 3 on.
pub(crate) fn inheritable(file: &File) -> io::Result<File> {
    duplicate(file, libc::F_DUPFD)
}

/// A second descriptor of the same opening that is closed on `exec`. It has a high number, as programs expect theirs
/// from 3 on.
///
/// # Errors
/// Fails if no descriptor is left.
pub fn aside(file: &File) -> io::Result<File> {
    duplicate(file, libc::F_DUPFD_CLOEXEC)
}

fn duplicate(file: &File, command: libc::c_int) -> io::Result<File> {
    // SAFETY: the descriptor is open for as long as `file` lives.
    let high = unsafe { libc::fcntl(file.as_raw_fd(), command, 200) };
    let fd = if high >= 0 {
        high
    } else {
        // SAFETY: as above; a small limit on descriptors leaves no number from 200 on.
        unsafe { libc::fcntl(file.as_raw_fd(), command, 3) }
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new and owned here alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A descriptor that keeps the opening of `file` until all other descriptors are released that the process closes
/// together with it: by its end, an `exec` or one system call. Closed on `exec`.
///
/// It is of a socket in whose queue the opening lies (unix(7), `SCM_RIGHTS`). The kernel finds the opening when it
/// releases the socket, and puts it behind what it is about to release already (`task_work_run`, `fput` in its
/// sources).
///
/// # Errors
/// Fails if there is no socket, or no descriptor is left.
pub(crate) fn released_last(file: &File) -> io::Result<OwnedFd> {
    let (ours, other) = UnixStream::pair()?;
    send_opening(&other, file)?;
    let ours = File::from(OwnedFd::from(ours));
    aside(&ours).map(OwnedFd::from)
}

/// A control message with one descriptor (cmsg(3)).
#[repr(C)]
struct Rights {
    header: libc::cmsghdr,
    descriptor: libc::c_int,
    /// Up to the alignment of a header.
    padding: libc::c_int,
}

/// Puts the opening of `file` into the queue of the socket at the other end of `socket`, with a byte of data.
fn send_opening(socket: &UnixStream, file: &File) -> io::Result<()> {
    let mut rights = Rights {
        header: libc::cmsghdr {
            cmsg_len: size_of::<libc::cmsghdr>() + size_of::<libc::c_int>(),
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        },
        descriptor: file.as_raw_fd(),
        padding: 0,
    };
    let mut byte = 0_u8;
    let mut data = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let message = libc::msghdr {
        msg_name: core::ptr::null_mut(),
        msg_namelen: 0,
        msg_iov: &raw mut data,
        msg_iovlen: 1,
        msg_control: (&raw mut rights).cast(),
        msg_controllen: size_of::<Rights>(),
        msg_flags: 0,
    };
    // SAFETY: all that the message points to lives until the call returns; the kernel only reads it. No signal is raised.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The effective user of this process.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Two words from the kernel's random numbers (getrandom(2)).
pub(crate) fn random_words() -> io::Result<[u64; 2]> {
    let mut words = [0; 2];
    let size = size_of_val(&words);
    // By its number: the function came with glibc 2.25, and images have 2.17.
    // SAFETY: `words` is valid for writing `size` bytes, and any bytes are a valid value. So few come at once or not at all.
    let written = unsafe { libc::syscall(libc::SYS_getrandom, words.as_mut_ptr(), size, 0) };
    if usize::try_from(written) == Ok(size) { Ok(words) } else { Err(io::Error::last_os_error()) }
}

/// Wakes all threads that sleep on the word at `address`, those of other processes that map it, too (futex(2)).
pub(crate) fn wake_all(address: *const u32) {
    // SAFETY: the kernel finds the page of the address and touches nothing there; one that is gone is an error, and no fault.
    unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE, i32::MAX) };
}
