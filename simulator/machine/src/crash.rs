//! Test builds: end or stop this process at a chosen store (see `tests/crash.rs`).

use std::cell::Cell;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static SIGNAL: Cell<i32> = const { Cell::new(0) };
    static STORES: Cell<u64> = const { Cell::new(0) };
}

/// Called before each store of this thread.
pub(crate) fn step() {
    STORES.set(STORES.get() + 1);
    match LEFT.get() {
        0 => {}
        1 => {
            LEFT.set(0);
            // SAFETY: raise has no preconditions; the signals used here have no handlers.
            let _ = unsafe { libc::raise(SIGNAL.get()) };
        }
        left => LEFT.set(left - 1),
    }
}
