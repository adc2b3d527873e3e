//! The shim's own threads: how they start, and when they end.
//!
//! They block all signals (I3). A handler of the application must not run on them, and its dispositions may change at
//! any time. But a process in which only these threads were left would ignore `SIGTERM` and never end. So one of them
//! looks four times a second whether the main thread has ended (one system call). From then on it looks every 10 ms
//! whether any thread of the application is left. If none is, the shim's threads return. The C library then ends the
//! process with its exit handlers and status 0, as without the shim.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::unix::fs::MetadataExt as _;

use crate::runtime::futex::SLACK_NS;

/// Time between two checks of the main thread (ns). Also the longest sleep of the thread that checks.
pub(crate) const CHECK_NS: u64 = 250_000_000;
/// Time between two checks of the other threads once the main thread has ended (ns).
const LAST_NS: u64 = 10_000_000;
/// Stack of a thread of the shim: its own needs are small, the driver's are not known.
const STACK_BYTES: usize = 512 << 10;

/// The shim's threads in this process. Part of the state that a forked child forgets, as it has none of them.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    running: AtomicU64,
    /// Set once no thread of the application is left: the shim's threads are to return.
    are_over: AtomicBool,
}

/// The argument of a new thread of the shim.
struct Start {
    threads: &'static Threads,
    name: &'static CStr,
    body: fn(),
    /// Signals that were blocked in the application's thread that started it.
    application_mask: libc::sigset_t,
}

impl Threads {
    /// Time that the checking thread may sleep (ns). `None` if it is to return, as no thread of the application is
    /// left.
    pub(crate) fn check_application(&self) -> Option<u64> {
        if !has_main_thread_ended() {
            return Some(CHECK_NS);
        }
        // The shim's threads are counted while they run, the kernel counts all that exist. So a thread of the shim
        // that begins or ends is at worst taken for the application's. The main thread exists until the process ends.
        // If the kernel's count cannot be read, the shim's threads return too, and the application's next use of a
        // GPU starts them again.
        let ours = self.running.load(Ordering::SeqCst) + 1;
        if thread_count().is_some_and(|count| count > ours) {
            return Some(LAST_NS);
        }
        self.are_over.store(true, Ordering::SeqCst);
        None
    }

    /// Starts a detached thread of the shim with this name (15 bytes at most). Returns `false` if the system gives none.
    pub(crate) fn start(&'static self, name: &'static CStr, body: fn()) -> bool {
        self.are_over.store(false, Ordering::SeqCst);
        // The thread inherits the mask.
        let blocked = SignalsBlocked::begin();
        start_detached(Start { threads: self, name, body, application_mask: blocked.before })
    }

    /// Whether a thread of the shim that does not check itself is to return.
    pub(crate) fn are_over(&self) -> bool {
        self.are_over.load(Ordering::SeqCst)
    }
}

/// A guard: no signal handler runs on the calling thread while it lives.
pub(crate) struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    /// Blocks all signals.
    pub(crate) fn begin() -> Self {
        let mut all = empty_set();
        let mut before = empty_set();
        // SAFETY: the set is ours to fill.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: both sets are valid; the thread's own mask comes back in `drop`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        Self { before }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_mask(&self.before);
    }
}

fn start_detached(start: Start) -> bool {
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
    let start = Box::into_raw(Box::new(start));
    // SAFETY: the body takes the box over, and lives in this library, which is never unloaded.
    let status = unsafe { libc::pthread_create(&raw mut thread, attributes.as_ptr(), run, start.cast()) };
    // SAFETY: initialised above, used no more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    if status != 0 {
        // SAFETY: made above; no thread has taken it.
        drop(unsafe { Box::from_raw(start) });
    }
    status == 0
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    let start = start.cast::<Start>();
    // SAFETY: the box that `start_detached` gave to this thread alone.
    let start = unsafe { Box::from_raw(start) };
    prepare_thread(start.name);
    start.threads.running.fetch_add(1, Ordering::SeqCst);
    // A bug here ends this thread's work, not the application.
    let _ = std::panic::catch_unwind(start.body);
    start.threads.running.fetch_sub(1, Ordering::SeqCst);
    if start.threads.are_over() {
        // The application's exit handlers may follow on this thread. From here on a signal ends the process as it
        // would without the shim.
        set_mask(&start.application_mask);
    }
    core::ptr::null_mut()
}

/// Names the calling thread and lets its sleeps end on time (prctl(2)).
fn prepare_thread(name: &CStr) {
    // SAFETY: a null-terminated name of at most 15 bytes; it is copied.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    // SAFETY: the argument is a number of nanoseconds.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, libc::c_ulong::from(SLACK_NS.unsigned_abs())) };
}

fn empty_set() -> libc::sigset_t {
    let mut set = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: filled above.
    unsafe { set.assume_init() }
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: a valid set; the old one is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, core::ptr::null_mut()) };
}

/// Whether the main thread has ended, by `pthread_exit`. The C library gives each thread a list of robust futexes,
/// and the kernel takes it away when the thread ends (get_robust_list(2)). Returns `false` if the kernel does not
/// tell.
fn has_main_thread_ended() -> bool {
    let mut list: Option<NonNull<c_void>> = None;
    let mut bytes = 0_usize;
    // SAFETY: always succeeds.
    let main_thread = unsafe { libc::getpid() };
    // SAFETY: the kernel writes an address, or null, and a length.
    let status =
        unsafe { libc::syscall(libc::SYS_get_robust_list, main_thread, &raw mut list, &raw mut bytes) };
    status == 0 && list.is_none()
}

/// Number of threads in this process, each a directory in this one (proc(5)), even of a main thread that has ended.
fn thread_count() -> Option<u64> {
    /// Links of a folder without folders.
    const NO_FOLDERS: u64 = 2;
    let tasks = std::fs::metadata("/proc/self/task").ok()?;
    tasks.nlink().checked_sub(NO_FOLDERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_and_the_main_thread_lives() {
        let before = thread_count().unwrap();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || wait.recv());
            // Other tests of this program begin and end threads too.
            assert!(before >= 1 && thread_count().unwrap() >= 2);
            drop(end);
        });
        assert!(!has_main_thread_ended());
    }
}
