//! The system calls of the limiter: futexes, and a thread that no signal reaches.

use core::ffi::c_void;
use core::sync::atomic::AtomicU32;

/// What a sleep of the limiter may end late (ns).
const SLACK_NS: libc::c_int = 1_000;

/// Sleeps until `word` is no longer `seen`, someone wakes it, or `ns` have passed (futex(2)). The word may lie in memory
/// shared with other processes, read-only too.
pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, ns: u64) {
    let timeout = timespec(ns);
    // SAFETY: the word and the timeout outlive the call; the kernel only reads them.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            &raw const timeout,
        )
    };
}

/// As [`futex_wait`], until somebody wakes one of `reasons`, or `at_ns` (`CLOCK_MONOTONIC`), and on time: for this one sleep
/// the calling thread, which is not ours, has no slack (prctl(2)).
pub(crate) fn futex_wait_on_time(word: &AtomicU32, seen: u32, reasons: u32, at_ns: u64) {
    // SAFETY: no further arguments.
    let slack_ns = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    let set = |ns: libc::c_int| {
        if slack_ns > SLACK_NS {
            // SAFETY: the argument is a number of nanoseconds.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(ns.unsigned_abs())) };
        }
    };
    let until = timespec(at_ns);
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

/// Wakes everybody who sleeps on `word` for one of `reasons`, or for any.
pub(crate) fn futex_wake_for(word: &AtomicU32, reasons: u32) {
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

/// Wakes everybody who sleeps on `word`.
pub(crate) fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: the kernel takes the address as a name and touches nothing there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Stack of an own thread: its own needs are small, the driver's are not known.
const STACK_BYTES: usize = 512 << 10;

/// Starts a detached thread that blocks all signals (I3). `false` if the system gives none.
pub(crate) fn start_thread(body: extern "C" fn(*mut c_void) -> *mut c_void) -> bool {
    let mut all = empty_set();
    let mut before = empty_set();
    // SAFETY: the set is ours to fill.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are valid; the thread inherits the mask, and the caller's comes back below.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let started = start_detached(body);
    // SAFETY: `before` was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    started
}

fn start_detached(body: extern "C" fn(*mut c_void) -> *mut c_void) -> bool {
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: initialises the attributes.
    if unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES) };
    // SAFETY: as above.
    unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the body takes no argument and lives in this library, which is never unloaded.
    let status =
        unsafe { libc::pthread_create(&raw mut thread, attributes.as_ptr(), body, core::ptr::null_mut()) };
    // SAFETY: initialised above, used no more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    status == 0
}

fn empty_set() -> libc::sigset_t {
    let mut set = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: filled above.
    unsafe { set.assume_init() }
}

/// Names the calling thread (one of ours) and lets its sleeps end on time (prctl(2)).
pub(crate) fn settle_in(name: &core::ffi::CStr) {
    // SAFETY: a null-terminated name of at most 15 bytes; it is copied.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // SAFETY: the argument is a number of nanoseconds.
    unsafe {
        libc::prctl(
            libc::PR_SET_TIMERSLACK,
            libc::c_ulong::from(SLACK_NS.unsigned_abs()),
        )
    };
}

/// A number that no other living thread of this process has.
#[inline]
pub(crate) fn thread_mark() -> u64 {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as u64 }
}
