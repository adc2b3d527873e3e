//! Test hooks that end or stop this process at a chosen store of a thread, or interrupt its loads, see `tests::crash` and
//! `tests::reading`.

use std::cell::{Cell, RefCell};

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static SIGNAL: Cell<i32> = const { Cell::new(0) };
    static LOADS: Cell<u64> = const { Cell::new(0) };
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Arranges for `signal` before the `at`th store from now (1 = the next).
pub(crate) fn arm(at: u64, signal: i32) {
    LEFT.set(at);
    SIGNAL.set(signal);
}

/// Cancels it. Returns whether it had happened.
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

/// Arranges for `meanwhile` to run before the `at`th load from now.
pub(crate) fn at_load(at: u64, meanwhile: impl FnOnce() + 'static) {
    LOADS.set(at);
    MEANWHILE.set(Some(Box::new(meanwhile)));
}

/// Cancels it. Returns whether it had happened.
pub(crate) fn forget_load() -> bool {
    MEANWHILE.set(None);
    LOADS.replace(0) == 0
}

/// Called before each load of this thread.
pub(crate) fn load() {
    match LOADS.get() {
        0 => {}
        1 => {
            LOADS.set(0);
            if let Some(meanwhile) = MEANWHILE.take() {
                meanwhile();
            }
        }
        left => LOADS.set(left - 1),
    }
}
