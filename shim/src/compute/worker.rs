//! The worker: the thread that settles timing events that were reached, and gives unused leases back. It starts with the
//! first launch that has to ask the bucket. From then on it also does the process's chores ([`crate::runtime::chores`]).
//! It runs no code of the application, and waits only for the clock and its wake-up word. It ends with the application's
//! last thread ([`crate::runtime::threads`]).

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{Ordering, fence};

use super::Launches;
use super::device_limiter::DeviceLimiter;
use super::settle::{CONTENDED_NS, Pass};
use crate::driver::Relaxed;
use crate::runtime::chores::Chores;
use crate::runtime::futex;
use crate::runtime::limits;
use crate::runtime::suspend;
use vcuda_region::clock::now_ns;
use vcuda_region::slots::TOUCH_NS;

/// Shortest interval of queries of timing events that are due (ns).
const DUE_NS: u64 = 50_000;
/// Longest interval of queries while work is in flight (ns).
const BUSY_NS: u64 = 1_000_000;
/// Shortest interval of queries while no launch waits (ns): alone, and beside neighbours, where the arbiter needs the times at
/// which each tenant had the GPU, those of a tenant that uses up its share sooner.
const UNAWAITED_NS: u64 = 16_000_000;
const UNAWAITED_CONTENDED_NS: u64 = 8_000_000;
const UNAWAITED_USED_UP_NS: u64 = 2_000_000;
/// Greatest age of the tenant's known pace while work is in flight (ns).
const PACE_NS: u64 = 2_000_000;
/// Time without use after which a lease is given back (ns).
const LEASE_NS: u64 = 10_000_000;

/// Kinds of sleep of the worker, as low bits of its wake-up word: with nothing to do, or with work in flight for
/// which no launch waits.
pub(crate) const ASLEEP: u32 = 1;
pub(crate) const UNHURRIED: u32 = 2;

/// The next value of the wake-up word, with none of the low bits.
const fn awake(seen: u32) -> u32 {
    (seen | ASLEEP | UNHURRIED).wrapping_add(1)
}

impl Launches {
    /// Starts the worker, or wakes it if it sleeps for long.
    pub(crate) fn wake_worker(&'static self) {
        if !self.shim.has_worker.load(Ordering::Acquire) {
            self.tell_settled(now_ns());
            if !self.shim.has_worker.swap(true, Ordering::AcqRel)
                && !self.shim.threads.start(c"vcuda-worker", run)
            {
                // Tried again at the next lease. Until then work in flight expires without being settled.
                self.shim.has_worker.store(false, Ordering::Release);
            }
            return;
        }
        self.wake_if(ASLEEP);
    }

    /// Wakes the worker if it sleeps in one of these kinds.
    pub(crate) fn wake_if(&self, reasons: u32) {
        fence(Ordering::SeqCst);
        let seen = self.wake_word.load(Ordering::SeqCst);
        if seen & reasons != 0
            && self.wake_word.compare_exchange(seen, awake(seen), Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            futex::wake_all(&self.wake_word);
        }
    }

    /// Sleeps for `ns`, or until a wake-up. In the kind [`ASLEEP`] it sleeps only if no work has come since the last query.
    /// Returns whether a launch woke it.
    fn sleep(&self, ns: u64, way: u32) -> bool {
        let seen = self.wake_word.load(Ordering::SeqCst);
        let asleep = seen | way;
        if self.wake_word.compare_exchange(seen, asleep, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // Pairs with the fence in `wake_if`: either this thread sees the timing event, or the other one sees the
            // sleep and wakes it.
            fence(Ordering::SeqCst);
            if way != ASLEEP || !self.is_outstanding() {
                futex::wait(&self.wake_word, asleep, ns);
            }
            // After a timeout the word still has the kind of the sleep.
            return self
                .wake_word
                .compare_exchange(asleep, awake(asleep), Ordering::SeqCst, Ordering::SeqCst)
                .is_err();
        }
        true
    }

    /// Wakes the arbiter, which may rest while no process of the tenant launches anything: at most once in [`TOUCH_NS`].
    fn tell_beginning(&self, told_ns: &mut u64) {
        let now = now_ns();
        if now.saturating_sub(*told_ns) >= TOUCH_NS
            && let Some(region) = self.shim.region()
        {
            *told_ns = now;
            region.usage.touch();
        }
    }

    /// Publishes that this process settles its work. The arbiter charges the work of a process that does not.
    pub(super) fn tell_settled(&self, now_ns: u64) {
        if let Some(slot) = self.shim.claimed() {
            slot.tell_settled(now_ns);
        }
    }

    /// The worker's loop. Returns once no thread of the application is left.
    fn work(&'static self) {
        let mut leases = Leases::new(self);
        let mut chores = Chores::new(now_ns());
        let mut told_ns = 0;
        // A launch has started the worker.
        self.tell_beginning(&mut told_ns);
        loop {
            let began_ns = now_ns();
            // While the memory is away the driver may not be asked; what was reached is settled later.
            let pass = match suspend::try_enter() {
                Some(_inside) => self.settle(),
                None => Pass::skipped(self.is_outstanding()),
            };
            self.tell_settled(began_ns);
            let now = now_ns();
            let Some(chores_at_ns) = chores.step(self.shim, now) else {
                return;
            };
            if let Some(region) = self.shim.region() {
                limits::follow_if_due(region, PACE_NS, now);
            }
            let held = leases.give_back(self, now);
            if pass.outstanding {
                self.sleep_while_busy(&pass, now);
            } else if !pass.progress {
                if held {
                    // A short sleep: work that comes meanwhile can wait.
                    let may_be_late =
                        self.limiters().iter().all(|limiter| limiter.affords_mispredictions(now));
                    let ns = self.unawaited_ns(now).min(LEASE_NS / 2);
                    self.sleep(ns, if may_be_late { UNHURRIED } else { ASLEEP });
                } else if self.sleep(chores_at_ns.saturating_sub(now), ASLEEP) {
                    self.tell_beginning(&mut told_ns);
                }
            }
        }
    }

    /// Whether neighbours were busy of late on a device.
    fn is_contended(&self) -> bool {
        self.limiters().iter().any(|limiter| limiter.contended.load(Ordering::Relaxed))
    }

    /// Shortest interval of queries while no launch waits (ns).
    fn unawaited_ns(&self, now: u64) -> u64 {
        let of = |limiter: &DeviceLimiter| match limiter.contended.load(Ordering::Relaxed) {
            false => UNAWAITED_NS,
            true if limiter.has_savings(now) => UNAWAITED_CONTENDED_NS,
            true => UNAWAITED_USED_UP_NS,
        };
        self.limiters().iter().map(of).min().unwrap_or(UNAWAITED_NS)
    }

    /// Sleeps while work is in flight, until about the time of the next timing event.
    fn sleep_while_busy(&self, pass: &Pass, now: u64) {
        let (least_ns, most_ns) = if self.is_contended() { CONTENDED_NS } else { (DUE_NS, BUSY_NS) };
        let ns = if pass.next_ns == 0 {
            most_ns
        } else {
            pass.next_ns.saturating_sub(now).clamp(least_ns, most_ns)
        };
        if !pass.urgent {
            self.sleep(ns.max(self.unawaited_ns(now)), UNHURRIED);
            return;
        }
        // New work does not end this sleep: its timing events come after those on the way.
        futex::wait(&self.wake_word, self.wake_word.load(Ordering::Relaxed), ns);
    }
}

/// Time of the last use of each limiter's lease.
#[derive(Debug)]
struct Leases {
    seen: Vec<(u64, u64)>,
}

impl Leases {
    fn new(launches: &Launches) -> Self {
        Self { seen: launches.limiters().iter().map(|_| (0, 0)).collect() }
    }

    /// Gives back leases that were not used for a while. Returns `true` while any lease is left.
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

fn run() {
    // Entered once, for all calls of this thread.
    let _relaxed = Relaxed::enter();
    if let Some(launches) = Launches::made() {
        // A panic here ends the worker, not the application. The next lease starts the worker again.
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| launches.work()));
        launches.shim.has_worker.store(false, Ordering::Release);
    }
}
