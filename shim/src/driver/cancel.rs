//! `pthread_cancel` and hooks. glibc ends a cancelled thread by unwinding its stack, which Rust cannot catch and would
//! answer with `abort`. So while a handler runs, a cancellation waits: the thread ends at its next chance after the hook.
//!
//! Two exceptions to that cost. An idle hook is a jump, through which the unwinding passes as if it were not there. And
//! a launch is not shielded: the two atomic exchanges would be a quarter of the whole hook, and of a launch's own parts
//! only the driver could be cancelled in it.

use core::ffi::c_int;

unsafe extern "C" {
    /// pthread_setcancelstate(3).
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of the C library's `pthread.h`.
const DISABLE: c_int = 1;

/// The thread is not cancelled while this lives.
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
