//! `pthread_cancel` and hooks. glibc ends a cancelled thread by unwinding its stack, which Rust cannot catch and would
//! answer with `abort`. So a cancellation waits until the handler has ended: it acts at the next cancellation point.
//!
//! Two kinds of calls do without that cost. An idle hook is a jump, which the unwinding does not notice. A launch is
//! not shielded: the two atomic exchanges would be a quarter of the whole hook, and within a launch only the driver
//! could be cancelled.

use core::ffi::c_int;

unsafe extern "C" {
    /// pthread_setcancelstate(3).
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of the C library's `pthread.h`.
const DISABLE: c_int = 1;

/// `PTHREAD_CANCEL_ENABLE`, the state of a thread that did not ask for another.
const ENABLE: c_int = 0;

/// Lets cancellations act again in a thread that has left a shielded call by a jump.
pub(super) fn lower() {
    // SAFETY: a valid state; see `Shield::drop` for the null pointer.
    unsafe { pthread_setcancelstate(ENABLE, core::ptr::null_mut()) };
}

/// A guard: the thread is not cancelled while it lives.
#[derive(Debug)]
pub(crate) struct Shield {
    before: c_int,
}

impl Shield {
    /// Makes cancellations wait.
    #[inline]
    pub(crate) fn raise() -> Self {
        let mut before = 0;
        // SAFETY: a valid state, and room for the old one; concerns the calling thread alone.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Shield {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the state that the thread had; `raise` ran on this thread, as the hook does not leave it. "On Linux, the
        // oldstate argument is permitted to be NULL" (pthread_setcancelstate(3)).
        unsafe { pthread_setcancelstate(self.before, core::ptr::null_mut()) };
    }
}
