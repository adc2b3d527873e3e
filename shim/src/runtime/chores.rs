//! Chores of a process that uses a GPU: it registers with the manager, clears the slots of dead processes, and checks
//! whether threads of the application are left. The worker ([`crate::compute`]) does them. Until there is a worker, a
//! thread registers that ends when the worker begins.

use core::sync::atomic::{AtomicU32, Ordering};

use vcuda_region::clock::now_ns;
use vcuda_region::process::{Identity, ProcessView};

use crate::runtime::bypass;
use crate::runtime::futex;
use crate::runtime::registration::Registration;
use crate::runtime::shim::{self, Shim};

/// Time between two searches for dead processes, and the longest sleep (ns).
const DEAD_NS: u64 = 250_000_000;
/// Time between two checks for the manager's answer (ns).
const ANSWER_NS: u64 = 10_000_000;

/// The chores of the worker, and the times at which each is due (`CLOCK_MONOTONIC`, ns).
#[derive(Debug)]
pub(crate) struct Chores {
    view: Option<ProcessView>,
    registration: Registration,
    dead_at_ns: u64,
    register_at_ns: u64,
    check_at_ns: u64,
}

impl Chores {
    /// Chores of which registering and checking for threads are due at once.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            view: Identity::current().map(ProcessView::new).ok(),
            registration: Registration::default(),
            dead_at_ns: now_ns + DEAD_NS,
            register_at_ns: 0,
            check_at_ns: 0,
        }
    }

    /// Does the chores that are due. Returns the time at which the next one is due (ns); `None` if no thread of the
    /// application is left.
    pub(crate) fn step(&mut self, shim: &'static Shim, now_ns: u64) -> Option<u64> {
        if now_ns >= self.check_at_ns {
            self.check_at_ns = now_ns + check_threads(shim)?;
        }
        if now_ns >= self.dead_at_ns {
            self.dead_at_ns = now_ns + DEAD_NS;
            if let (Some(region), Some(view)) = (shim.region(), &self.view) {
                let _ = region.usage.reap_dead(view);
                shim.memory.settle_exported(region);
            }
        }
        if now_ns >= self.register_at_ns {
            let is_pending = self.registration.step(shim, now_ns);
            self.register_at_ns = now_ns + if is_pending { ANSWER_NS } else { DEAD_NS };
        }
        Some(self.dead_at_ns.min(self.register_at_ns).min(self.check_at_ns))
    }
}

/// Registers a process that has just taken its slot, from a thread that ends when the worker begins. A process that
/// only takes memory never has a worker. The worker cannot start earlier: the limiter must not change before the
/// first metered launch.
pub(crate) fn start() {
    // If no thread can be had, the worker registers.
    shim::start_thread(c"vcuda-register", register);
}

fn register() {
    let Some(shim) = shim::built() else { return };
    let mut registration = Registration::default();
    let wake_word = AtomicU32::new(0);
    while !shim.has_worker.load(Ordering::Acquire) {
        let Some(pause_ns) = check_threads(shim) else {
            return;
        };
        let is_pending = registration.step(shim, now_ns());
        // No thread wakes this word: a sleep.
        futex::wait(&wake_word, 0, if is_pending { ANSWER_NS } else { pause_ns });
    }
}

/// Time until the next check for threads of the application (ns). `None` if none is left; the measuring thread is then
/// ended too.
fn check_threads(shim: &'static Shim) -> Option<u64> {
    bypass::report_known(shim);
    let pause_ns = shim.threads.check_application();
    if pause_ns.is_none() {
        shim.memory.end_watch();
    }
    pause_ns
}
