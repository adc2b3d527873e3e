//! System calls without libc, whose `syscall` the preloaded library replaces.

use core::arch::asm;
use core::sync::atomic::AtomicU32;

/// Makes a system call (syscall(2)). Returns the kernel's answer, negative for an error.
///
/// # Safety
/// As the call itself demands of its arguments.
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let answer;
    // SAFETY: the convention of x86-64 Linux; what the call does with its arguments is the caller's promise.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("syscall", inlateout("rax") number => answer, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e,
            in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: the convention of 64-bit ARM Linux; what the call does with its arguments is the caller's promise.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => answer, in("x1") b, in("x2") c, in("x3") d, in("x4") e,
            in("x5") f, options(nostack));
    }
    answer
}

/// Sleeps while `word` holds `seen`, until woken, at most for `longest_ms` of real time (futex(2)).
pub(crate) fn sleep_on(word: &AtomicU32, seen: u32, longest_ms: u32) {
    let timeout = libc::timespec {
        tv_sec: i64::from(longest_ms / 1000),
        tv_nsec: i64::from(longest_ms % 1000) * 1_000_000,
    };
    let timeout = core::ptr::from_ref(&timeout).addr();
    let arguments = [word.as_ptr().addr(), wait_op(), seen as usize, timeout, 0, 0];
    // SAFETY: word and timeout outlive the call; the kernel only reads them.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// Whether a process with this PID exists (kill(2)).
pub(crate) fn exists(pid: u32) -> bool {
    // SAFETY: signal 0 is none.
    let answer = unsafe { call(libc::SYS_kill, [pid as usize, 0, 0, 0, 0, 0]) };
    answer != -(libc::ESRCH as isize)
}

/// Sends a signal (kill(2)). Fails if there is no such process, or if it is another user's.
pub fn signal(pid: u32, signal: i32) -> std::io::Result<()> {
    let arguments = [pid as usize, signal.unsigned_abs() as usize, 0, 0, 0, 0];
    // SAFETY: no pointers.
    match unsafe { call(libc::SYS_kill, arguments) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(i32::try_from(-error).unwrap_or(libc::EINVAL))),
    }
}

/// Ends this process at once.
pub(crate) fn end_process() -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { call(libc::SYS_exit_group, [1, 0, 0, 0, 0, 0]) };
    }
}

/// Wakes all threads that sleep on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    let all = i32::MAX.unsigned_abs() as usize;
    let operation = libc::FUTEX_WAKE.unsigned_abs() as usize;
    // SAFETY: the kernel takes the address as a name.
    unsafe { call(libc::SYS_futex, [word.as_ptr().addr(), operation, all, 0, 0, 0]) };
}

fn wait_op() -> usize {
    libc::FUTEX_WAIT.unsigned_abs() as usize
}

/// Yields the processor, in real time.
pub(crate) fn yield_real() {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}
