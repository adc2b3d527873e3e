//! Code that the driver loads when a kernel is first launched is found without a call of ours that could look: a thread
//! looks, often after something that may bring it and ever more seldom while nothing does. It calls NVML, and CUDA
//! only to ask pools and graphs what they hold.

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::driver::Relaxed;
use crate::runtime::futex;
use crate::runtime::registration::Haste;
use crate::runtime::shim;
use crate::runtime::threads;

/// From what happened to the first look (ms).
const SHOWS_AFTER_MS: u64 = 100;
/// Between further looks, while nothing happens (ms).
const PAUSES_MS: [u64; 5] = [500, 500, 1_000, 2_000, 5_000];
/// After these (ms).
const LONGEST_PAUSE_MS: u64 = 10_000;

/// The thread, and how it is told.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    is_started: AtomicBool,
    /// Changes when something happened.
    wake_word: AtomicU32,
    /// The thread sleeps until the wake-up word changes, or for long.
    is_resting: AtomicBool,
    /// The process ends: nobody is asked any more.
    is_over: AtomicBool,
    is_looking: AtomicBool,
}

impl Watch {
    /// Something happened after which the driver may take memory later.
    pub(crate) fn stir(&'static self) {
        if self.is_started.load(Ordering::Acquire) {
            self.wake();
        } else {
            self.wake_word.fetch_add(1, Ordering::SeqCst);
            self.start();
        }
    }

    /// Something ended, which was measured: if a thread is there, it looks again. None is started for it, as it may be the
    /// program that is ending.
    pub(crate) fn wake(&self) {
        self.wake_word.fetch_add(1, Ordering::SeqCst);
        if self.is_resting.swap(false, Ordering::SeqCst) {
            futex::wake_all(&self.wake_word);
        }
    }

    #[cold]
    fn start(&'static self) {
        if self.is_started.swap(true, Ordering::AcqRel) {
            return;
        }
        // Libraries tidy up when the process ends, and must not be called then. Registered after they were loaded, this
        // runs before their own handlers.
        // SAFETY: the handler takes nothing and returns nothing.
        unsafe { libc::atexit(at_exit) };
        if !threads::start(c"vcuda-measure", run) {
            self.is_started.store(false, Ordering::Release);
        }
    }

    /// Looks, unless the process is ending.
    fn look(&self, look: impl FnOnce()) {
        // Sequentially consistent, as in `end`: either the end is seen here, or this look there.
        self.is_looking.store(true, Ordering::SeqCst);
        if !self.is_over.load(Ordering::SeqCst) {
            look();
        }
        self.is_looking.store(false, Ordering::SeqCst);
    }

    /// No look begins any more; one under way is waited for, for a moment.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for _ in 0..100 {
            if !self.is_looking.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(core::time::Duration::from_millis(1));
        }
    }

    /// Looks, until `are_over` says that no thread of the application is left.
    fn watch(&self, look: impl Fn(), are_over: impl Fn() -> bool) {
        let mut heard = 0;
        let mut pauses = PAUSES_MS.iter();
        loop {
            self.is_resting.store(true, Ordering::SeqCst);
            if self.wake_word.load(Ordering::SeqCst) == heard {
                let pause_ms = pauses.next().copied().unwrap_or(LONGEST_PAUSE_MS);
                futex::wait(&self.wake_word, heard, pause_ms * 1_000_000);
            }
            self.is_resting.store(false, Ordering::SeqCst);
            if are_over() {
                return;
            }
            if self.wake_word.load(Ordering::Acquire) != heard {
                // What was heard of takes its time to show, and is looked at as often as this at most.
                std::thread::sleep(core::time::Duration::from_millis(SHOWS_AFTER_MS));
                heard = self.wake_word.load(Ordering::Acquire);
                pauses = PAUSES_MS.iter();
            }
            self.look(&look);
        }
    }
}

fn run() {
    // Once for all questions of this thread.
    let _relaxed = Relaxed::enter();
    let Some(shim) = shim::built() else { return };
    let overhead = &shim.accounts().overhead;
    // The worker's thread looks for threads of the application far more often, and rings; there may be none.
    let are_over = || shim.threads.are_over() || shim.threads.look().is_none();
    // A bug here ends the watching, not the application.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
        overhead
            .watch
            .watch(|| shim.follow_overhead(Haste::Soon), are_over);
    }));
    // Where that was an error, the next event starts the thread again.
    overhead
        .watch
        .is_started
        .store(!shim.threads.are_over(), Ordering::Release);
}

extern "C" fn at_exit() {
    // A forked child has no such thread, and finds nothing built.
    if let Some(shim) = shim::built() {
        shim.accounts().overhead.watch.end();
    }
}
