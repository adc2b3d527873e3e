//! The worker: the shim's one thread. It sees timing events reached and settles them, gives unused leases back, and clears the
//! slots of dead processes, and registers the process with the manager. It starts with the first launch that has to look at
//! the bucket; until then another registers. It runs no code of the application, never waits for anything but the clock and
//! its wake-up word, and ends with the application's last thread ([`crate::runtime::threads`]).

use core::sync::atomic::{AtomicU32, Ordering, fence};

use vcuda_region::process::{Identity, ProcessView};

use crate::compute;
use crate::compute::Launches;
use crate::compute::device_limiter::{DeviceLimiter, now_ns};
use crate::compute::settle::Pass;
use crate::driver::Relaxed;
use crate::runtime::bypass;
use crate::runtime::futex;
use crate::runtime::registration::Registration;
use crate::runtime::shim;
use crate::runtime::threads;

/// Between two looks at timing events that are due (ns).
const DUE_NS: u64 = 50_000;
/// Between two looks while work is in flight (ns, at most).
const BUSY_NS: u64 = 1_000_000;
/// The same beside neighbours (ns, at least and at most): more is in flight there.
pub(crate) const CONTENDED_NS: (u64, u64) = (250_000, 1_000_000);
/// The same while nobody waits for it (ns, at least); and beside neighbours, where the arbiter is told who had the GPU when.
const UNAWAITED_NS: u64 = 16_000_000;
const UNAWAITED_CONTENDED_NS: u64 = 2_000_000;
/// Between two looks at dead processes, and the longest sleep (ns).
const DEAD_NS: u64 = 250_000_000;
/// Between two looks for the manager's answer (ns).
const ANSWER_NS: u64 = 10_000_000;
/// How old may be what is known of the container's pace while work is in flight (ns).
const PACE_NS: u64 = 2_000_000;
/// A lease that paid for nothing for this long goes back (ns).
const LEASE_NS: u64 = 10_000_000;

/// How the worker sleeps, in the low bits of its wake-up word: with nothing to do, or with work in flight for which nobody waits.
pub(crate) const ASLEEP: u32 = 1;
pub(crate) const UNHURRIED: u32 = 2;

/// What the wake-up word says next, with none of the low bits.
const fn awake(seen: u32) -> u32 {
    (seen | ASLEEP | UNHURRIED).wrapping_add(1)
}

impl Launches {
    /// Starts the worker, or wakes it if it sleeps for long.
    pub(crate) fn wake_worker(&'static self) {
        if !self.reaping.load(Ordering::Acquire) {
            tell_settled(now_ns());
            if !self.reaping.swap(true, Ordering::AcqRel) && !threads::start(c"vcuda-worker", run) {
                // Tried again at the next lease; until then work in flight expires with nobody to see it.
                self.reaping.store(false, Ordering::Release);
            }
            return;
        }
        self.wake_if(ASLEEP);
    }

    /// Wakes the worker if it sleeps in one of these ways.
    pub(crate) fn wake_if(&self, reasons: u32) {
        fence(Ordering::SeqCst);
        let seen = self.wake_word.load(Ordering::SeqCst);
        if seen & reasons != 0
            && self
                .wake_word
                .compare_exchange(seen, awake(seen), Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
        {
            futex::wake_all(&self.wake_word);
        }
    }

    /// Sleeps for `ns`, or until it is woken. [`ASLEEP`]: unless work has come since the last look.
    fn sleep(&self, ns: u64, way: u32) {
        let seen = self.wake_word.load(Ordering::SeqCst);
        let asleep = seen | way;
        if self
            .wake_word
            .compare_exchange(seen, asleep, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            // Pairs with the fence in `wake_if`: either we see the timing event, or it is seen that we sleep, and it is woken.
            fence(Ordering::SeqCst);
            if way != ASLEEP || !self.is_outstanding() {
                futex::wait(&self.wake_word, asleep, ns);
            }
            // Woken by the time, not by the wake-up word: awake again.
            let _ =
                self.wake_word
                    .compare_exchange(asleep, awake(asleep), Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Works until no thread of the application is left.
    fn reap(&'static self) {
        let view = Identity::current().map(ProcessView::new);
        let mut leases = Leases::new(self);
        let mut dead_at_ns = now_ns() + DEAD_NS;
        let mut registration = Registration::default();
        let mut register_at_ns = 0;
        let mut look_at_ns = 0;
        loop {
            let began_ns = now_ns();
            let pass = self.settle();
            tell_settled(began_ns);
            let now = now_ns();
            if now >= look_at_ns {
                let Some(pause_ns) = look() else { return };
                look_at_ns = now + pause_ns;
            }
            let region = shim::get().and_then(shim::Shim::region);
            if let Some(region) = region {
                compute::follow_if_due(region, PACE_NS, now);
            }
            if now >= dead_at_ns {
                dead_at_ns = now + DEAD_NS;
                if let (Some(region), Ok(view)) = (region, &view) {
                    let _ = region.usage.reap_dead(view);
                    if let Some(shim) = shim::get() {
                        shim.exported.settle(region.usage, false);
                    }
                }
            }
            if now >= register_at_ns {
                let is_pending = shim::get().is_some_and(|shim| registration.step(shim, now));
                register_at_ns = now + if is_pending { ANSWER_NS } else { DEAD_NS };
            }
            let held = leases.give_back(self, now);
            if pass.outstanding {
                self.sleep_while_busy(&pass, now);
            } else if !pass.progress {
                if held {
                    // Not for long: what comes meanwhile can wait.
                    let is_foreseen = self.limiters().iter().all(DeviceLimiter::is_foreseen);
                    let way = if is_foreseen { UNHURRIED } else { ASLEEP };
                    self.sleep(LEASE_NS / 2, way);
                } else {
                    let at_ns = dead_at_ns.min(register_at_ns).min(look_at_ns);
                    self.sleep(at_ns.saturating_sub(now), ASLEEP);
                }
            }
        }
    }

    /// Whether the container has busy neighbours, as far as was seen of late.
    fn are_contended(&self) -> bool {
        self.limiters()
            .iter()
            .any(|limiter| limiter.contended.load(Ordering::Relaxed))
    }

    /// Work is in flight: the next timing event's time is known, roughly.
    fn sleep_while_busy(&self, pass: &Pass, now: u64) {
        let ((least_ns, most_ns), unawaited_ns) = if self.are_contended() {
            (CONTENDED_NS, UNAWAITED_CONTENDED_NS)
        } else {
            ((DUE_NS, BUSY_NS), UNAWAITED_NS)
        };
        let ns = if pass.next_ns == 0 {
            most_ns
        } else {
            pass.next_ns.saturating_sub(now).clamp(least_ns, most_ns)
        };
        if !pass.urgent {
            self.sleep(ns.max(unawaited_ns), UNHURRIED);
            return;
        }
        // Not rung for: new timing events come later than those already on the way.
        futex::wait(&self.wake_word, self.wake_word.load(Ordering::Relaxed), ns);
    }
}

/// Tells the arbiter, which charges the process's work if the process does not.
fn tell_settled(now_ns: u64) {
    if let Some(slot) = shim::get().and_then(shim::Shim::claimed) {
        slot.tell_settled(now_ns);
    }
}

/// When each limiter's lease was last used.
#[derive(Debug)]
struct Leases {
    seen: Vec<(u64, u64)>,
}

impl Leases {
    fn new(launches: &Launches) -> Self {
        Self {
            seen: launches.limiters().iter().map(|_| (0, 0)).collect(),
        }
    }

    /// Gives back what was not used of late. `true` while any lease is left.
    fn give_back(&mut self, launches: &Launches, now: u64) -> bool {
        let mut held = false;
        for (limiter, (seen, since)) in launches.limiters().iter().zip(&mut self.seen) {
            let count = limiter.meter.launches();
            if count != *seen {
                (*seen, *since) = (count, now);
            }
            if limiter.meter.lease().left_ns > 0 {
                if now.saturating_sub(*since) >= LEASE_NS {
                    limiter.meter.give_back(limiter.bucket);
                } else {
                    held = true;
                }
            }
        }
        held
    }
}

/// Registers a process that has just taken its slot, from a thread that ends where the worker begins: one that only takes
/// memory never has a worker, and what it launches before it is metered must find the limiter as it would be without us.
pub(crate) fn start() {
    // A thread that cannot be had leaves registration to the worker.
    threads::start(c"vcuda-register", run_first);
}

fn run_first() {
    let mut registration = Registration::default();
    let wake_word = AtomicU32::new(0);
    while Launches::made().is_none_or(|launches| !launches.reaping.load(Ordering::Acquire)) {
        let Some(pause_ns) = look() else { return };
        let is_pending = shim::get().is_some_and(|shim| registration.step(shim, now_ns()));
        // Nothing wakes it: a sleep.
        futex::wait(&wake_word, 0, if is_pending { ANSWER_NS } else { pause_ns });
    }
}

fn run() {
    // Once for all questions of this thread.
    let _relaxed = Relaxed::enter();
    if let Some(launches) = Launches::made() {
        // A bug here ends the metering of timing events, not the application; the next lease starts the worker again.
        let _ = std::panic::catch_unwind(|| launches.reap());
        launches.reaping.store(false, Ordering::Release);
    }
}

/// Until the next look for threads of the application (ns); nothing if none is left. Then the other thread is told, too.
fn look() -> Option<u64> {
    let shim = shim::built()?;
    bypass::tell_known(shim);
    let pause_ns = shim.threads.look();
    if pause_ns.is_none() {
        shim.overhead.end_watch();
    }
    pause_ns
}
