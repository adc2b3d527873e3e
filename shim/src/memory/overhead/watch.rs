//! A thread that measures overhead later: the driver loads code when a kernel is first launched, and no hooked call
//! shows it. It measures often after an event that may load code, and ever more seldom while there is none. It calls
//! NVML, and CUDA only to ask pools and graphs what they hold.

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::driver::Relaxed;
use crate::runtime::futex;
use crate::runtime::registration::Haste;
use crate::runtime::shim;

/// Time from an event to the first measurement (ms).
const SHOWS_AFTER_MS: u64 = 100;
/// Pauses before further measurements, while there is no event (ms).
const PAUSES_MS: [u64; 5] = [500, 500, 1_000, 2_000, 5_000];
/// Pause after these (ms).
const LONGEST_PAUSE_MS: u64 = 10_000;

/// The measuring thread, and its wake-up.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    is_started: AtomicBool,
    /// Changes at each event.
    wake_word: AtomicU32,
    /// Set while the thread sleeps until the wake-up word changes, or for long.
    is_resting: AtomicBool,
    /// Set once the process ends: nothing is asked any more.
    is_over: AtomicBool,
    is_measuring: AtomicBool,
}

impl Watch {
    /// Notes an event after which the driver may take memory later. Starts the thread if there is none.
    pub(crate) fn note_event(&'static self) {
        if self.is_started.load(Ordering::Acquire) {
            self.wake();
        } else {
            self.wake_word.fetch_add(1, Ordering::SeqCst);
            self.start();
        }
    }

    /// Notes the end of an object, which was measured: the thread, if there is one, measures again. None is started for
    /// it, as the program may be ending.
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
        // Libraries clean up when the process ends, and must not be called then. Registered after they were loaded,
        // this runs before their own handlers.
        // SAFETY: the handler takes nothing and returns nothing.
        unsafe { libc::atexit(at_exit) };
        if !shim::start_thread(c"vcuda-measure", run) {
            self.is_started.store(false, Ordering::Release);
        }
    }

    /// Measures, unless the process is ending.
    fn measure(&self, measure: impl FnOnce()) {
        // Sequentially consistent, as in `end`: either the end is seen here, or this measurement there.
        self.is_measuring.store(true, Ordering::SeqCst);
        if !self.is_over.load(Ordering::SeqCst) {
            measure();
        }
        self.is_measuring.store(false, Ordering::SeqCst);
    }

    /// Lets no measurement begin any more, and waits a moment for one under way.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        for _ in 0..100 {
            if !self.is_measuring.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(core::time::Duration::from_millis(1));
        }
    }

    /// Measures, until `are_over` says that no thread of the application is left.
    fn watch(&self, measure: impl Fn(), are_over: impl Fn() -> bool) {
        let mut seen = 0;
        let mut pauses = PAUSES_MS.iter();
        loop {
            self.is_resting.store(true, Ordering::SeqCst);
            if self.wake_word.load(Ordering::SeqCst) == seen {
                let pause_ms = pauses.next().copied().unwrap_or(LONGEST_PAUSE_MS);
                futex::wait(&self.wake_word, seen, pause_ms * 1_000_000);
            }
            self.is_resting.store(false, Ordering::SeqCst);
            if are_over() {
                return;
            }
            if self.wake_word.load(Ordering::Acquire) != seen {
                // The event's effect takes time to show, and is measured at most this often.
                std::thread::sleep(core::time::Duration::from_millis(SHOWS_AFTER_MS));
                seen = self.wake_word.load(Ordering::Acquire);
                pauses = PAUSES_MS.iter();
            }
            self.measure(&measure);
        }
    }
}

fn run() {
    // Once for all questions of this thread.
    let _relaxed = Relaxed::enter();
    let Some(shim) = shim::built() else { return };
    let overhead = &shim.accounts().overhead;
    // The worker looks for threads of the application far more often, and wakes this one; there may be no worker.
    let are_over = || shim.threads.are_over() || shim.threads.check_application().is_none();
    // A bug here ends the watching, not the application.
    let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
        overhead.watch.watch(|| shim.remeasure_overhead(Haste::Soon), are_over);
    }));
    // After an error, the next event starts the thread again.
    overhead.watch.is_started.store(!shim.threads.are_over(), Ordering::Release);
}

extern "C" fn at_exit() {
    // A forked child has no such thread, and finds nothing built.
    if let Some(shim) = shim::built() {
        shim.accounts().overhead.watch.end();
    }
}
