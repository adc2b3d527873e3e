//! State of the calling thread, and start of the driver's own.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::cell::Cell;
use std::os::unix::thread::JoinHandleExt as _;

use vcuda_driver_api::{CUerror, CUresult};

static THREADS: AtomicU64 = AtomicU64::new(1);
/// Whether there is a thread for host functions; if not, calls check nothing else.
static HAS_HOST_THREAD: AtomicBool = AtomicBool::new(false);

thread_local! {
    static NUMBER: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
    static IS_HOST_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Number of the calling thread; 0 for one that is ending.
pub(crate) fn number() -> u64 {
    // A thread that is ending has no number; 0 belongs to none.
    NUMBER.try_with(|number| *number).unwrap_or(0)
}

/// Marks the calling thread as one that runs host functions.
pub(crate) fn become_host_thread() {
    HAS_HOST_THREAD.store(true, Ordering::Relaxed);
    IS_HOST_THREAD.set(true);
}

/// Check for calls that a host function may not make. Error: `CUDA_ERROR_NOT_PERMITTED` in a host function or callback
/// ("attempting to use a CUDA API will result in CUDA_ERROR_NOT_PERMITTED").
#[inline]
pub(crate) fn permit() -> CUresult {
    if HAS_HOST_THREAD.load(Ordering::Relaxed) && IS_HOST_THREAD.try_with(Cell::get).unwrap_or(false) {
        return Err(CUerror::NOT_PERMITTED);
    }
    Ok(())
}

/// Starts a thread with all signals blocked, as the program's handlers run on its own threads. It has its name when this
/// returns: others look for it by that, and a new thread takes its own name only once it runs.
pub(crate) fn start_quietly(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let mut old = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is this function's own; sigfillset makes it valid.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` was filled, `old` is written by the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    // SAFETY: `old` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), core::ptr::null_mut()) };
    let thread = thread?;
    let name = std::ffi::CString::new(name)?;
    // SAFETY: the handle keeps the thread's descriptor, whether it runs or has ended; the name is null-terminated.
    unsafe { libc::pthread_setname_np(thread.as_pthread_t(), name.as_ptr()) };
    Ok(())
}
