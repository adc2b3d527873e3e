//! Futexes: sleeping and waking between threads of all the tenant's processes.

use core::sync::atomic::AtomicU32;

use vcuda_region::clock::to_own_ns;

/// Longest lateness of a sleep of the shim's threads (ns).
pub(crate) const SLACK_NS: libc::c_int = 1_000;

/// Sleeps until `word` is no longer `seen`, a thread wakes it, or `ns` have passed (futex(2)). The word may lie in
/// memory shared with other processes, even if it is mapped read-only.
pub(crate) fn wait(word: &AtomicU32, seen: u32, ns: u64) {
    let timeout = timespec(ns);
    // SAFETY: the word and the timeout outlive the call; the kernel only reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout) };
}

/// As [`wait`], until a thread wakes one of `reasons`, or until `at_ns` (the host's `CLOCK_MONOTONIC`). It ends on time: the
/// calling thread, which is the application's, has no timer slack during this sleep (prctl(2)).
pub(crate) fn wait_on_time(word: &AtomicU32, seen: u32, reasons: u32, at_ns: u64) {
    // SAFETY: no further arguments.
    let slack_ns = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    let set = |ns: libc::c_int| {
        if slack_ns > SLACK_NS {
            // SAFETY: the argument is a number of nanoseconds.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(ns.unsigned_abs())) };
        }
    };
    let until = timespec(to_own_ns(at_ns));
    set(SLACK_NS);
    // SAFETY: the word and the time outlive the call; the kernel only reads them.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            seen,
            &raw const until,
            core::ptr::null::<u32>(),
            reasons,
        )
    };
    set(slack_ns);
}

/// Wakes all threads that sleep on `word` for one of `reasons`, or for any.
pub(crate) fn wake_for(word: &AtomicU32, reasons: u32) {
    let nothing = core::ptr::null::<libc::c_void>();
    // SAFETY: the kernel takes the address as a name and touches nothing there.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET,
            i32::MAX,
            nothing,
            nothing,
            reasons,
        )
    };
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::try_from(ns % 1_000_000_000).unwrap_or(0),
    }
}

/// Wakes all threads that sleep on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: the kernel takes the address as a name and touches nothing there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
