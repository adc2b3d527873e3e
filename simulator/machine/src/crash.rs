//! Test builds: ends or stops this process at a chosen store of the thread, see `tests::crash`.

use std::cell::Cell;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static SIGNAL: Cell<i32> = const { Cell::new(0) };
}

/// Raises `signal` before the `at`th store from now (1 = the next).
pub(crate) fn arm(at: u64, signal: i32) {
    LEFT.set(at);
    SIGNAL.set(signal);
}

/// Forgets it; says whether it had happened.
pub(crate) fn disarm() -> bool {
    LEFT.replace(0) == 0
}

/// Called before each store of this thread.
pub(crate) fn step() {
    match LEFT.get() {
        0 => {}
        1 => {
            LEFT.set(0);
            // SAFETY: raise has no preconditions; the signals used have no handlers here.
            let _ = unsafe { libc::raise(SIGNAL.get()) };
        }
        left => LEFT.set(left - 1),
    }
}
