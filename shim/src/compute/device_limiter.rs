//! The limiter of a device: the tenant's bucket, this process's meter, and the current limits.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use vcuda_limiter::controller::{Throttle, Verdict, View, WINDOW_NS};
use vcuda_limiter::predict::Misprediction;
use vcuda_limiter::queue::Member;
use vcuda_limiter::sampling::Sampling;
use vcuda_limiter::token_bucket::{LEASE_PART_NS, Meter, Pace, TokenBucket};
use vcuda_quota::DeviceConfig;
use vcuda_region::DeviceIndex;
use vcuda_region::clock::now_ns;
use vcuda_region::limits::NOT_METERED;

use super::context_maps::ContextMaps;

use crate::runtime::limits;
use crate::runtime::region::Region;
use crate::runtime::shim::Shim;

mod turn_queue;

use turn_queue::TurnQueue;

/// Reasons for which launches wait, as bits of [`TokenBucket::waiters`]: work in flight, tokens, or another process's
/// turn (one of several bits, chosen by that process's slot).
pub(crate) const WINDOW: u32 = 1;
pub(crate) const TOKENS: u32 = 2;
pub(super) const TURNS: u32 = !(WINDOW | TOKENS);
/// Shortest segment that one timing event measures (ns).
const SEGMENT_LEAST_NS: u64 = 125_000;

/// Upper bound of a timing event's own time (ns): public estimates are 1 to 3 us.
const EVENT_COST_MAX_NS: u64 = 10_000;
/// Number of empty pairs to measure; the shortest counts. Other work may come between the two events of a pair.
const PAIRS: u32 = 16;
/// Divisor of the time that is forgiven if the host is late for its launches.
const FORGIVEN_PART: u64 = 50;
/// Longest lateness forgiven at once (ns): the host may run something else for a few time slices.
const FORGIVEN_AT_ONCE_NS: u64 = 5_000_000;

/// A device of the tenant.
#[derive(Debug)]
pub(crate) struct DeviceLimiter {
    pub(super) region: &'static Region,
    pub(super) device: DeviceIndex,
    metered: &'static AtomicU32,
    /// The tenant's bucket.
    pub(crate) bucket: &'static TokenBucket,
    /// This process's meter.
    pub(crate) meter: &'static Meter,
    /// Recent mispredictions.
    pub(crate) misprediction: Misprediction,
    /// Which bursts on idle streams are measured.
    pub(super) sampling: Sampling,
    segment_ns: AtomicU64,
    lease_part_ns: AtomicU64,
    /// Number of threads of this process whose launches wait.
    pub(super) held: AtomicU32,
    /// Whether neighbours were busy at the last read of `limits`.
    pub(crate) contended: AtomicBool,
    throttle: Throttle,
    /// Times at which each of this process's contexts had work.
    pub(super) contexts: ContextMaps,
    /// This process among the tenant's processes that wait; `None` without a slot.
    pub(super) member: Option<Member>,
    /// Waiting launches of this process.
    pub(super) line: TurnQueue,
    /// Time at which a launch last went beside long work (`CLOCK_MONOTONIC`, ns).
    pub(super) passed_long_work_ns: AtomicU64,
    /// Average lateness of recent sleeps (ns).
    pub(super) sleeps_late_ns: AtomicU64,
    /// Time that a timing event itself takes in its stream, by the shortest empty pair (ns); [`u64::MAX`] before the
    /// first.
    event_cost_ns: AtomicU64,
    /// Empty pairs that are still to be measured.
    pairs_left: AtomicU32,
    /// End of the time for which the host's lateness is forgiven, in units of [`FORGIVEN_PART`] (`CLOCK_MONOTONIC`,
    /// ns).
    forgiven_to_ns: AtomicU64,
}

impl DeviceLimiter {
    /// The limiter of `device`. A process that found no free slot (and so gets no memory) is metered all the same.
    pub(crate) fn new(shim: &'static Shim, region: &'static Region, device: DeviceIndex) -> Self {
        let meter = match shim.slot() {
            Some(slot) => slot.meter(device),
            None => Box::leak(Box::new(Meter::default())),
        };
        Self {
            region,
            device,
            metered: region.limits.metered_word(device),
            bucket: region.usage.bucket(device),
            meter,
            misprediction: Misprediction::new(),
            sampling: Sampling::default(),
            segment_ns: AtomicU64::new(SEGMENT_LEAST_NS),
            lease_part_ns: AtomicU64::new(0),
            held: AtomicU32::new(0),
            contended: AtomicBool::new(false),
            throttle: Throttle::default(),
            contexts: ContextMaps::default(),
            member: shim.slot().map(|slot| Member::new(slot.index())),
            line: TurnQueue::default(),
            passed_long_work_ns: AtomicU64::new(0),
            sleeps_late_ns: AtomicU64::new(0),
            event_cost_ns: AtomicU64::new(u64::MAX),
            pairs_left: AtomicU32::new(PAIRS),
            forgiven_to_ns: AtomicU64::new(0),
        }
    }

    /// Position of the device in `limits`.
    pub(crate) fn position(&self) -> usize {
        self.device.get()
    }

    /// Whether GPU time is metered on the device.
    #[inline]
    pub(crate) fn is_metered(&self) -> bool {
        self.metered.load(Ordering::Relaxed) != NOT_METERED
    }

    /// Predicted work that one timing event measures (ns).
    #[inline]
    pub(crate) fn segment_ns(&self) -> u64 {
        self.segment_ns.load(Ordering::Relaxed)
    }

    /// Amount that a process pays ahead of its launches (ns), a small part of what may be in flight.
    pub(crate) fn lease_part_ns(&self) -> u64 {
        self.lease_part_ns.load(Ordering::Relaxed)
    }

    /// Follows `limits` if they are older than `age_ns` or have changed.
    pub(crate) fn follow_limits(&self, age_ns: u64, now_ns: u64) {
        limits::follow_if_due(self.region, age_ns, now_ns);
    }

    /// The limits in force at `now_ns`.
    #[inline(never)]
    pub(crate) fn view(&self, now_ns: u64) -> View {
        let limits = &self.region.limits;
        let config = limits.config(self.device).unwrap_or(DeviceConfig::new(0, 1));
        let mut pace = limits.pace(self.device).unwrap_or(STARVED);
        if self.bucket.is_gang(now_ns) {
            // What is in flight may wait for the next launch: a gang does not yield.
            pace.window_ns = pace.window_ns.max(WINDOW_NS);
        }
        let mut view = View::new(pace, config, limits.arbiter_beat_ns(), now_ns);
        self.contended.store(view.contended, Ordering::Relaxed);
        let tokens_ns = self.bucket.tokens(&view.pace, now_ns);
        view.window_ns = if view.contended {
            self.misprediction.window_beside_ns(view.window_ns)
        } else {
            let unused_ns = u64::try_from(tokens_ns).unwrap_or(0);
            self.misprediction.window_ns(view.window_ns, view.pace.rate_permille, unused_ns)
        };
        view.segment_ns = view.segment_ns.min(view.window_ns.max(SEGMENT_LEAST_NS));
        self.lease_part_ns.store(LEASE_PART_NS.min(view.window_ns / 4), Ordering::Relaxed);
        self.segment_ns.store(view.segment_ns, Ordering::Relaxed);
        view
    }

    /// Whether the tenant's tokens let a launch proceed, see [`Throttle::verdict`].
    pub(crate) fn verdict(&self, view: &View, now_ns: u64) -> Verdict {
        self.throttle.verdict(self.bucket, view, now_ns)
    }

    /// Work in flight of the tenant's processes at `now_ns`: nanoseconds as predicted, and launches
    /// ([`Usage::in_flight`](vcuda_region::slots::Usage::in_flight)).
    pub(crate) fn in_flight(&self, now_ns: u64) -> (u64, u64) {
        self.region.usage.in_flight(self.device, now_ns)
    }

    /// Whether it is known when work in flight will be done: not beside neighbours, nor while predictions are far off.
    pub(crate) fn is_foreseen(&self) -> bool {
        !self.contended.load(Ordering::Relaxed) && !self.misprediction.is_recent()
    }

    /// Whether the end of work may become known late though no launch waits: predictions hold, or the tenant has saved what they may
    /// be wrong by, so that it would lose tokens and not time.
    pub(super) fn affords_mispredictions(&self, now_ns: u64) -> bool {
        !self.misprediction.is_recent() || self.has_savings(now_ns)
    }

    /// Whether the tenant has saved half of the tokens that it may: it does not use up its share.
    pub(super) fn has_savings(&self, now_ns: u64) -> bool {
        let view = self.view(now_ns);
        let tokens_ns = self.bucket.tokens(&view.pace, now_ns);
        tokens_ns > 0 && tokens_ns.unsigned_abs() >= view.config.burst_ns / 2
    }

    /// Whether a waiting launch may settle its stream itself: no other launch waits for the same work, and
    /// predictions hold. Another waiter would learn of the end later and come too late each time.
    pub(super) fn is_sole(&self) -> bool {
        self.held.load(Ordering::Relaxed) <= 1
            && !self.region.usage.had_several()
            && !self.misprediction.is_recent()
    }

    /// Whether a launch waits for work to finish, or for a turn, which begins when work has finished. Other processes
    /// of the tenant with work in flight count as waiting, as this one cannot know.
    pub(crate) fn is_awaited(&self) -> bool {
        let (in_flight_ns, _) = self.in_flight(now_ns());
        self.bucket.waiters.load(Ordering::Relaxed) & (WINDOW | TURNS) != 0
            || in_flight_ns > self.meter.in_flight_ns()
    }

    /// Part of a measured segment that the timing event behind it takes (ns): docs/hardware.md, "time of an event".
    pub(super) fn event_cost_ns(&self) -> u64 {
        let known_ns = self.event_cost_ns.load(Ordering::Relaxed);
        if known_ns <= EVENT_COST_MAX_NS { known_ns } else { 0 }
    }

    /// Whether an empty pair of timing events is to be placed.
    #[inline]
    pub(super) fn wants_event_cost(&self) -> bool {
        self.pairs_left.load(Ordering::Relaxed) > 0
    }

    /// Notes that an empty pair of timing events took `ns`.
    pub(super) fn note_event_cost(&self, ns: u64) {
        self.event_cost_ns.fetch_min(ns, Ordering::Relaxed);
        let left = self.pairs_left.load(Ordering::Relaxed);
        self.pairs_left.store(left.saturating_sub(1), Ordering::Relaxed);
    }

    /// Whether the host's lateness of `late_ns` for a launch is forgiven. If it is, the work's own time is not known.
    /// A program whose launch calls wait for their kernels is late each time, and so runs out of forgiveness.
    pub(super) fn forgives_lateness(&self, late_ns: u64) -> bool {
        let now = now_ns();
        let from_ns = self.forgiven_to_ns.load(Ordering::Relaxed).max(now);
        let to_ns = from_ns.saturating_add(late_ns.saturating_mul(FORGIVEN_PART));
        let is_forgiven = to_ns - now <= FORGIVEN_AT_ONCE_NS * FORGIVEN_PART;
        if is_forgiven {
            self.forgiven_to_ns.store(to_ns, Ordering::Relaxed);
        }
        is_forgiven
    }

    /// Settles `count` launches as done, charged as predicted.
    pub(crate) fn settle_as_predicted(&self, predicted_ns: u64, count: u32) {
        self.meter.finish(predicted_ns, count);
        self.meter.charged_ns.fetch_add(predicted_ns, Ordering::Relaxed);
        self.bucket.served_ns.fetch_add(predicted_ns, Ordering::Relaxed);
    }

    /// Wakes the tenant's launches that wait for one of `reasons` ([`TOKENS`] and its neighbours).
    pub(crate) fn wake_waiters(&self, reasons: u32) {
        // Pairs with the exchange in `sleep`: either the sleeper sees the change, or this thread sees the sleeper.
        fence(Ordering::SeqCst);
        if self.bucket.waiters.load(Ordering::Relaxed) & reasons != 0 {
            // All launches that wait for work or tokens are woken: a single one would proceed before the others each time.
            let woken = if reasons & TURNS == 0 { !TURNS } else { reasons };
            self.bucket.waiters.fetch_and(!woken, Ordering::Relaxed);
            self.bucket.wake.fetch_add(1, Ordering::Release);
            crate::runtime::futex::wake_for(&self.bucket.wake, woken);
        }
    }

    /// Sleeps until [`DeviceLimiter::wake_waiters`] of any process of the tenant, or for `ns`.
    pub(crate) fn sleep(&self, reason: u32, ns: u64, still: impl FnOnce() -> bool) {
        let seen = self.bucket.wake.load(Ordering::Acquire);
        // Flags, not a count: a process killed while asleep causes only a single needless wake-up.
        self.bucket.waiters.fetch_or(reason, Ordering::SeqCst);
        if still() {
            crate::runtime::futex::wait_on_time(&self.bucket.wake, seen, reason, now_ns().saturating_add(ns));
        }
    }
}

/// Pace of a tenant whose limits are damaged.
const STARVED: Pace = Pace {
    epoch_ns: 0,
    credit_ns: 0,
    rate_permille: 1,
    scale_permille: 1000,
    window_ns: 500_000,
    metered: true,
    contended: false,
};
