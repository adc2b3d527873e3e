//! Children forked while threads are inside hooks, for all functions of the table. A child that hangs on a lock of its
//! parent is ended by its alarm.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::PATIENCE_S;
use crate::live::{Driver, Stage};
use crate::prototypes::{Prototype, prototype};

/// Number of calls of a child.
const CALLS: usize = 8;
/// Number of threads that call at the same time.
const THREADS: usize = 3;

/// A function with arguments of zeros.
struct Call {
    prototype: &'static Prototype,
    function: *mut c_void,
    arguments: Vec<Vec<u8>>,
}

// SAFETY: a function of a library that is never unloaded, which any thread may call.
unsafe impl Send for Call {}
// SAFETY: as above; nothing is changed.
unsafe impl Sync for Call {}

impl Call {
    fn make(&self) {
        // SAFETY: the function of this name, with zeros and null pointers, which the driver refuses if they are wrong.
        unsafe { (self.prototype.call)(self.function, &self.arguments) };
    }
}

/// Whether such a call would destroy the current context.
fn ends_the_context(name: &str) -> bool {
    name.starts_with("cuDevicePrimaryCtxReset") || name.starts_with("cuDevicePrimaryCtxRelease")
}

/// Forks until each of these functions was called in eight children.
pub(crate) fn fork_among(names: impl Iterator<Item = String>) {
    let driver = Driver::open(Stage::Context);
    let calls: Vec<Call> = names
        .filter(|name| !ends_the_context(name))
        .map(|name| {
            let prototype = prototype(&name).unwrap_or_else(|| panic!("{name} has no prototype"));
            let arguments = prototype.arguments.iter().map(|one| vec![0; one.size]);
            Call { prototype, function: driver.symbol(&name), arguments: arguments.collect() }
        })
        .filter(|call| !call.function.is_null())
        .collect();
    // SAFETY: takes no pointer. Ends the process if its threads hang.
    unsafe { libc::alarm(6 * PATIENCE_S) };
    let is_over = AtomicBool::new(false);
    let rounds = [const { AtomicUsize::new(0) }; THREADS];
    let mut failed = 0;
    std::thread::scope(|scope| {
        for (at, rounds) in rounds.iter().enumerate() {
            let (calls, is_over) = (&calls, &is_over);
            scope.spawn(move || {
                // Makes the context current to this thread too.
                let _driver = Driver::open(Stage::Context);
                let start = at * calls.len() / THREADS;
                while !is_over.load(Ordering::Relaxed) || rounds.load(Ordering::Relaxed) == 0 {
                    calls.iter().cycle().skip(start).take(calls.len()).for_each(Call::make);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for child in 0..(8 * calls.len()).div_ceil(CALLS) {
            failed += usize::from(!lives(&calls, child * CALLS));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("forked among {} functions, {failed} children did not end well", calls.len());
}

/// Forks a child that makes the calls from `first` on. Returns whether it finished.
fn lives(calls: &[Call], first: usize) -> bool {
    // SAFETY: the child makes calls of the driver, whose behaviour in a child is under test, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: takes no pointer.
        unsafe { libc::alarm(PATIENCE_S) };
        calls.iter().cycle().skip(first).take(CALLS).for_each(Call::make);
        // SAFETY: the child ends here and runs no handlers of its parent's.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: our child; the status is a variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if status != 0 {
        let called = calls.iter().cycle().skip(first).take(CALLS);
        let called: Vec<&str> = called.map(|call| call.prototype.name).collect();
        println!("status {status:x} after one of {called:?}");
    }
    status == 0
}
