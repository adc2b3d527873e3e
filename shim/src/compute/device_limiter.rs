//! One device as the limiter sees it: the container's bucket, this process's meter, and what `limits` says now.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use vcuda_limiter::controller::{Throttle, Verdict, View};
use vcuda_limiter::predict::Misprediction;
use vcuda_limiter::queue::Member;
use vcuda_limiter::token_bucket::{LEASE_PART_NS, Meter, Pace, TokenBucket};
use vcuda_quota::DeviceConfig;
use vcuda_region::limits::NOT_METERED;
use vcuda_region::{DeviceIndex, clock};

use super::context_maps::ContextMaps;
use super::turn_queue::TurnQueue;

use crate::runtime::shim::{Region, Shim};

/// Why a launch is held: work in flight, the tokens, or that another process goes first (a bit of several, by its slot).
/// Bits of [`TokenBucket::waiters`].
pub(crate) const WINDOW: u32 = 1;
pub(crate) const TOKENS: u32 = 2;
pub(super) const TURNS: u32 = !(WINDOW | TOKENS);
/// A segment that one timing event measures, at least (ns).
const SEGMENT_LEAST_NS: u64 = 125_000;

/// No timing event takes longer than this (ns): public estimates are 1 to 3 us.
const EVENT_COST_MAX_NS: u64 = 10_000;
/// Empty pairs of which the shortest tells. Some are spoilt by other work that comes between the two.
const PAIRS: u32 = 16;
/// Of how much of the time the host may be late for its launches, without their cost (one part of so many).
const FORGIVEN_PART: u64 = 50;
/// So much at once (ns): the host runs something else for a few time slices.
const FORGIVEN_AT_ONCE_NS: u64 = 5_000_000;

/// A device of the container.
#[derive(Debug)]
pub(crate) struct DeviceLimiter {
    pub(super) region: &'static Region,
    pub(super) device: DeviceIndex,
    metered: &'static AtomicU32,
    /// The container's bucket.
    pub(crate) bucket: &'static TokenBucket,
    /// This process's meter.
    pub(crate) meter: &'static Meter,
    /// By how much they turned out to cost more than predicted.
    pub(crate) misprediction: Misprediction,
    segment_ns: AtomicU64,
    lease_part_ns: AtomicU64,
    /// Threads of this process whose launches are held.
    pub(super) held: AtomicU32,
    /// Neighbours were busy when that was last looked at.
    pub(crate) contended: AtomicBool,
    throttle: Throttle,
    /// When each of its contexts had work.
    pub(super) contexts: ContextMaps,
    /// This process among those of the container that wait; nothing of one without a slot.
    pub(super) member: Option<Member>,
    /// Its launches that are held.
    pub(super) line: TurnQueue,
    /// When a launch last went beside work that ran on and on (`CLOCK_MONOTONIC`, ns).
    pub(super) passed_long_work_ns: AtomicU64,
    /// By how much sleeps of held launches ended late, on average of late (ns).
    pub(super) sleeps_late_ns: AtomicU64,
    /// What a timing event itself takes in its stream, by the shortest empty pair (ns); [`u64::MAX`] before the first.
    event_cost_ns: AtomicU64,
    /// Empty pairs that are still to be measured.
    pairs_left: AtomicU32,
    /// Until when lateness of the host was forgiven, at [`FORGIVEN_PART`] of the time (`CLOCK_MONOTONIC`, ns).
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

    /// Where the device stands in `limits`.
    pub(crate) fn position(&self) -> usize {
        self.device.get()
    }

    /// Whether GPU time is metered on the device.
    #[inline]
    pub(crate) fn is_metered(&self) -> bool {
        self.metered.load(Ordering::Relaxed) != NOT_METERED
    }

    /// How much predicted work is measured by one timing event (ns); 0 if each launch is.
    #[inline]
    pub(crate) fn segment_ns(&self) -> u64 {
        self.segment_ns.load(Ordering::Relaxed)
    }

    /// What a process pays for ahead of its launches (ns): little of what may be in flight.
    pub(crate) fn lease_part_ns(&self) -> u64 {
        self.lease_part_ns.load(Ordering::Relaxed)
    }

    /// Follows `limits` if they are older than `age_ns` or have changed.
    pub(crate) fn follow_limits(&self, age_ns: u64, now_ns: u64) {
        super::follow_if_due(self.region, age_ns, now_ns);
    }

    /// What `limits` says at `now_ns`.
    #[inline(never)]
    pub(crate) fn view(&self, now_ns: u64) -> View {
        let limits = &self.region.limits;
        let config = limits.config(self.device).unwrap_or(DeviceConfig::new(0, 1));
        let pace = limits.pace(self.device).unwrap_or(STARVED);
        let mut view = View::new(pace, config, limits.arbiter_beat_ns(), now_ns);
        self.contended.store(view.contended, Ordering::Relaxed);
        if !view.contended {
            let tokens_ns = self.bucket.tokens(&view.pace, now_ns);
            let unused_ns = u64::try_from(tokens_ns).unwrap_or(0);
            view.window_ns = self
                .misprediction
                .window_ns(view.window_ns, view.pace.rate_permille, unused_ns);
            view.segment_ns = view.segment_ns.min(view.window_ns.max(SEGMENT_LEAST_NS));
        }
        self.lease_part_ns
            .store(LEASE_PART_NS.min(view.window_ns / 4), Ordering::Relaxed);
        if self.bucket.is_watched(now_ns) {
            view.segment_ns = 0;
        }
        self.segment_ns.store(view.segment_ns, Ordering::Relaxed);
        view
    }

    /// Whether the container's tokens let a launch go, see [`Throttle::verdict`].
    pub(crate) fn verdict(&self, view: &View, now_ns: u64) -> Verdict {
        self.throttle.verdict(self.bucket, view, now_ns)
    }

    /// Work in flight of all the container's processes: nanoseconds as predicted, and launches.
    pub(crate) fn in_flight(&self) -> (u64, u64) {
        self.region.usage.in_flight(self.device)
    }

    /// Whether it is known when work in flight will be done: not beside neighbours, nor while predictions are far off.
    pub(crate) fn is_foreseen(&self) -> bool {
        !self.contended.load(Ordering::Relaxed) && !self.misprediction.is_recent()
    }

    /// Whether a launch that is held may look after itself: nobody else waits for the same work, who would be told of its
    /// end later and so come too late each time, and predictions hold.
    pub(super) fn is_sole(&self) -> bool {
        self.held.load(Ordering::Relaxed) <= 1
            && !self.region.usage.had_several()
            && !self.misprediction.is_recent()
    }

    /// Whether somebody waits for work to finish, or for a turn, which begins when it has: or may without our knowing, another
    /// process of the container.
    pub(crate) fn is_awaited(&self) -> bool {
        let (in_flight_ns, _) = self.in_flight();
        self.bucket.waiters.load(Ordering::Relaxed) & (WINDOW | TURNS) != 0
            || in_flight_ns > self.meter.in_flight_ns()
    }

    /// What of a measured segment is the timing event behind it (ns): docs/hardware.md, "time of an event".
    pub(super) fn event_cost_ns(&self) -> u64 {
        let known_ns = self.event_cost_ns.load(Ordering::Relaxed);
        if known_ns <= EVENT_COST_MAX_NS {
            known_ns
        } else {
            0
        }
    }

    /// Whether an empty pair of timing events is to be placed.
    #[inline]
    pub(super) fn wants_event_cost(&self) -> bool {
        self.pairs_left.load(Ordering::Relaxed) > 0
    }

    /// An empty pair of timing events took so long (ns).
    pub(super) fn note_event_cost(&self, ns: u64) {
        self.event_cost_ns.fetch_min(ns, Ordering::Relaxed);
        let left = self.pairs_left.load(Ordering::Relaxed);
        self.pairs_left.store(left.saturating_sub(1), Ordering::Relaxed);
    }

    /// Whether the host was late for a launch by `late_ns` as it may be: then nobody knows how long the work took. A program's
    /// launch calls that wait for their kernels are late each time.
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

    /// Work of this process ended, and nothing says when: it may have run for `hidden_ns` longer than predicted. If that is too much, each
    /// launch is measured from now on.
    pub(super) fn ended_unseen(&self, hidden_ns: u64, now_ns: u64) {
        self.bucket.ended_unseen(hidden_ns, now_ns);
        if self.bucket.is_watched(now_ns) {
            self.segment_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Launches are done, as far as is known, and stay charged as predicted.
    pub(crate) fn settle_as_predicted(&self, predicted_ns: u64, count: u32) {
        self.meter.finish(predicted_ns, count);
        self.meter.charged_ns.fetch_add(predicted_ns, Ordering::Relaxed);
        self.bucket.served_ns.fetch_add(predicted_ns, Ordering::Relaxed);
    }

    /// Tells those who are held in this container for such a [`reason`](TOKENS) that it has changed.
    pub(crate) fn wake_waiters(&self, reasons: u32) {
        // Pairs with the exchange in `sleep`: either it sees what has changed, or we see that it sleeps.
        fence(Ordering::SeqCst);
        if self.bucket.waiters.load(Ordering::Relaxed) & reasons != 0 {
            // All who wait for work or the tokens look together: who looked alone would come before the others each time.
            let woken = if reasons & TURNS == 0 { !TURNS } else { reasons };
            self.bucket.waiters.fetch_and(!woken, Ordering::Relaxed);
            self.bucket.wake.fetch_add(1, Ordering::Release);
            crate::runtime::futex::wake_for(&self.bucket.wake, woken);
        }
    }

    /// Sleeps until [`DeviceLimiter::wake_waiters`] of any process of the container, or for `ns`.
    pub(crate) fn sleep(&self, reason: u32, ns: u64, still: impl FnOnce() -> bool) {
        let seen = self.bucket.wake.load(Ordering::Acquire);
        // Flags, not a count: who is killed while asleep leaves nothing but one needless wake-up.
        self.bucket.waiters.fetch_or(reason, Ordering::SeqCst);
        if still() {
            crate::runtime::futex::wait_on_time(&self.bucket.wake, seen, reason, now_ns().saturating_add(ns));
        }
    }
}

/// What a container earns whose limits are damaged.
const STARVED: Pace = Pace {
    epoch_ns: 0,
    credit_ns: 0,
    rate_permille: 1,
    scale_permille: 1000,
    window_ns: 500_000,
    metered: true,
    contended: false,
};

/// The clock of all buckets.
#[inline]
pub(crate) fn now_ns() -> u64 {
    clock::now_ns()
}
