//! The state of one stream in use: its launches that are not measured yet, and its timing events on the way.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::CUevent;
use vcuda_limiter::predict::{Lesson, PARTS};
use vcuda_region::clock::now_ns;

use super::clock::Clock;
use super::device_limiter::DeviceLimiter;

mod host_waits;
mod launches;
mod recording;
mod ring;

use host_waits::HostWaits;
pub(super) use launches::Place;
pub(super) use ring::{
    AT_MOST, BOUNDED, EVENTS_MAX, FIRST, HOST_WAIT, MEASURED, OVERDUE_PART, PAIR, PREDICTED, RESTART, START,
    TimingEvent, parts_of,
};

/// Delay of the host from which on it counts as late for a launch (ns).
pub(super) const LATE_NS: u64 = 20_000;

/// The state of one stream.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct StreamState {
    /// The stream's key ([`super::Stream::key`]), or 0 if the entry is free.
    pub(super) key: AtomicU64,
    /// The key for which a thread has taken the entry.
    pub(super) wanted: AtomicU64,
    pub(super) limiter: AtomicPtr<DeviceLimiter>,
    /// Set while a thread places a timing event. Other threads do not wait for it.
    recording: AtomicBool,
    /// Set once the stream or its context is going away: no new timing events.
    pub(super) closing: AtomicBool,
    /// Set once the driver refuses to record events on it: its launches go alone ([`super::alone`]).
    unmeasurable: AtomicBool,
    /// Launches of the present burst that are still to be measured one by one.
    samples_left: AtomicU32,
    /// See [`StreamState::is_told_apart`].
    told_apart: AtomicBool,
    busy_until_ns: AtomicU64,
    pub(super) clock: Clock,
    /// Launches since the last timing event: count in the lowest 16 bits, predicted ns above.
    unmeasured: AtomicU64,
    /// Value of `unmeasured` at the worker's last visit. Only the worker uses it.
    unmeasured_seen: AtomicU64,
    parts: [AtomicU32; PARTS],
    /// Whether the next segment begins at the last timing event.
    pub(super) chained: AtomicBool,
    pub(super) host_waits: HostWaits,
    /// Whether the application has waited for the stream since a launch on it last waited for tokens.
    pub(super) was_waited_for: AtomicBool,
    /// Begin of a segment without a start timing event: its first launch, on an idle stream (`CLOCK_MONOTONIC`, ns).
    /// 0 if it has a start timing event, or if the time is not known.
    pub(super) unstarted_since_ns: AtomicU64,
    /// Time just after the last start timing event was recorded (`CLOCK_MONOTONIC`, ns).
    pub(super) started_at_ns: AtomicU64,
    /// Time at which it was last proved to have run dry (`CLOCK_MONOTONIC`, ns).
    pub(super) dry_at_ns: AtomicU64,
    /// Whether its first event was placed: what was launched before launches were metered ended there.
    pub(super) has_first: AtomicBool,
    /// The stream's context.
    pub(super) context: AtomicUsize,
    /// The context that the worker makes current to query the stream: the stream's own, or one that stands for it and
    /// that any thread may use.
    pub(super) asked_in: AtomicUsize,
    /// Ring of timing events: the next to settle (`head`) and the next to place (`tail`).
    pub(super) head: AtomicU32,
    pub(super) tail: AtomicU32,
    /// One more than the `tail` at which the newest timing event was seen reached, 0 if none was: it is not asked for twice.
    pub(super) done_up_to: AtomicU64,
    /// End of the last settled segment (`CLOCK_MONOTONIC`, ns), 0 if unknown. Only a thread that settles uses it.
    pub(super) settled_to_ns: AtomicU64,
    /// Time until which a thread that waits for the stream queries the timing events itself (`CLOCK_MONOTONIC`, ns).
    pub(super) attended_until_ns: AtomicU64,
    /// End of the part of the running segment that is entered in the busy map (ns), and its charge. Only a thread
    /// that settles uses them.
    pub(super) entered_to_ns: AtomicU64,
    pub(super) entered_charge_ns: AtomicU64,
    /// Measured segments that predictions have not learnt from. Used by who settles, and by who has waited for the stream.
    pub(super) lesson: Mutex<Lesson>,
    pub(super) timing_events: [TimingEvent; EVENTS_MAX],
}

impl StreamState {
    /// The limiter of the stream's device.
    #[inline]
    pub(super) fn limiter(&self) -> Option<&'static DeviceLimiter> {
        // SAFETY: null, or one of the limiters of `Launches`, which is never freed or moved.
        unsafe { self.limiter.load(Ordering::Relaxed).as_ref() }
    }

    /// Whether the next launch of the present burst is measured by itself.
    #[inline]
    pub(super) fn is_sampled(&self) -> bool {
        self.samples_left.load(Ordering::Relaxed) > 0
    }

    /// Whether predictions are to learn from the running segment: else it may have any number of different kernels.
    #[inline]
    pub(super) fn is_told_apart(&self) -> bool {
        self.told_apart.load(Ordering::Relaxed)
    }

    /// Begins a segment of a burst that goes on.
    pub(super) fn goes_on(&self, told_apart: bool) {
        self.told_apart.store(told_apart, Ordering::Relaxed);
    }

    /// Begins a burst on the idle stream, of which so many launches are measured one by one.
    pub(super) fn begins(&self, samples: u32) {
        self.samples_left.store(samples, Ordering::Relaxed);
        self.goes_on(samples > 0);
    }

    /// Notes that a launch of a sampled burst is measured. `goes_on`: so are all behind it.
    pub(super) fn sample_is_placed(&self, goes_on: bool) {
        let left = self.samples_left.load(Ordering::Relaxed);
        self.samples_left.store(if goes_on { left } else { left.saturating_sub(1) }, Ordering::Relaxed);
    }

    /// The handle of the stream's context.
    pub(super) fn context(&self) -> usize {
        self.context.load(Ordering::Relaxed)
    }

    /// Whether both streams' contexts take the same time slices: green ones take those of the primary context.
    pub(super) fn shares_context(&self, other: &Self) -> bool {
        self.asked_in.load(Ordering::Relaxed) == other.asked_in.load(Ordering::Relaxed)
    }

    /// Time at which the stream's work should be done (`CLOCK_MONOTONIC`, ns).
    #[inline]
    pub(super) fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns.load(Ordering::Relaxed)
    }

    /// Time just after the last start timing event was recorded (`CLOCK_MONOTONIC`, ns).
    pub(super) fn started_at_ns(&self) -> u64 {
        self.started_at_ns.load(Ordering::Relaxed)
    }

    /// Adds `cost_ns` of work that was launched at `now_ns` (ns). A racing launch on the same stream may get lost
    /// here: the value only predicts when the stream becomes idle.
    #[inline]
    pub(super) fn extend(&self, now_ns: u64, cost_ns: u64) {
        let from = self.busy_until_ns().max(now_ns);
        self.busy_until_ns.store(from.saturating_add(cost_ns), Ordering::Relaxed);
    }

    /// Declares the stream idle since `at_ns` (`CLOCK_MONOTONIC`), whatever was predicted.
    pub(super) fn is_idle_since(&self, at_ns: u64) {
        self.busy_until_ns.store(at_ns, Ordering::Relaxed);
    }

    /// Declares the stream idle, unless another thread has launched on it since `busy_until_ns` was read.
    pub(super) fn is_idle_unless_extended(&self, busy_until_ns: u64) {
        let _ = self.busy_until_ns.compare_exchange(busy_until_ns, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes that the first timing event on the way was reached at `at_ns`. If it was also the last, the stream is
    /// idle now, even if predictions that were too long say otherwise.
    pub(super) fn ran_until(&self, at_ns: u64) {
        let predicted_ns = self.busy_until_ns();
        if predicted_ns > at_ns && self.pending() == 1 && self.unmeasured().0 == 0 {
            // Fails if more was launched meanwhile.
            let _ = self.busy_until_ns.compare_exchange(
                predicted_ns,
                at_ns,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Notes that the launch that was made at `launched_ns` (`CLOCK_MONOTONIC`) has reached the GPU. If a segment without a start event
    /// begins with it, that begins now. A call that took longer may have waited for its kernel.
    #[inline]
    pub(super) fn first_was_launched(&self, launched_ns: u64) {
        if self.unstarted_since_ns.load(Ordering::Relaxed) == launched_ns {
            let now = now_ns();
            if now < launched_ns + LATE_NS {
                self.unstarted_since_ns.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Whether a stream has this entry.
    pub(super) fn in_use(&self) -> bool {
        !matches!(self.key.load(Ordering::Acquire), FREE | TAKEN)
    }

    /// Whether it is the legacy default stream of a context.
    pub(super) fn is_legacy(&self) -> bool {
        self.key.load(Ordering::Relaxed) & 7 == LEGACY_KEY
    }

    /// Whether the stream is gone. The entry becomes free once its timing events are settled.
    pub(super) fn is_orphan(&self) -> bool {
        self.key.load(Ordering::Relaxed) == ORPHAN
    }

    /// Notes that the stream is gone: its handle may become another stream's.
    pub(super) fn orphan(&self) {
        // Pairs with the load in `visits::visit`.
        self.key.store(ORPHAN, Ordering::SeqCst);
    }

    /// Whether a stream has this entry, or had it and still has work on the way.
    pub(super) fn is_held(&self) -> bool {
        self.key.load(Ordering::Acquire) != FREE
    }

    /// Whether nothing is on the way, and by prediction nothing was since `ns` (`CLOCK_MONOTONIC`).
    pub(super) fn is_unused_since(&self, ns: u64) -> bool {
        self.pending() == 0 && self.unmeasured().0 == 0 && self.busy_until_ns() < ns
    }

    /// Notes that the driver refuses to record an event on the stream. The stream counts as idle for good, so no
    /// launch takes the short path ([`super::at_once()`]).
    pub(super) fn cannot_be_measured(&self) {
        self.unmeasurable.store(true, Ordering::Relaxed);
        self.is_idle_since(0);
    }

    /// Whether the driver refused to record an event on the stream.
    #[inline]
    pub(super) fn is_unmeasurable(&self) -> bool {
        self.unmeasurable.load(Ordering::Relaxed)
    }

    /// Frees the entry, which is taken, for another stream.
    pub(super) fn free(&self) {
        self.reset();
        self.wanted.store(0, Ordering::SeqCst);
        self.key.store(FREE, Ordering::Release);
    }

    /// Frees an entry that was taken and is not used. A launch of the stream that had it before may still be counted there: that is
    /// settled first.
    pub(super) fn give_back(&self) {
        if self.pending() > 0 || self.unmeasured().0 > 0 {
            self.orphan();
        } else {
            self.free();
        }
    }

    /// Takes the driver's events out of the ring.
    pub(super) fn take_events(&self) -> [CUevent; EVENTS_MAX] {
        core::array::from_fn(|place| {
            let event = self.timing_events.get(place).map(|one| one.event.swap(0, Ordering::Relaxed));
            CUevent(event.unwrap_or(0))
        })
    }

    /// Clears the state of the stream.
    pub(super) fn reset(&self) {
        self.settled_to_ns.store(0, Ordering::Relaxed);
        self.entered_to_ns.store(0, Ordering::Relaxed);
        self.entered_charge_ns.store(0, Ordering::Relaxed);
        self.chained.store(false, Ordering::Relaxed);
        self.host_waits.forget();
        self.busy_until_ns.store(0, Ordering::Relaxed);
        self.drop_parts();
        self.closing.store(false, Ordering::Relaxed);
        self.unmeasurable.store(false, Ordering::Relaxed);
        self.has_first.store(false, Ordering::Relaxed);
        self.dry_at_ns.store(0, Ordering::Relaxed);
        self.begins(0);
        self.was_waited_for.store(false, Ordering::Relaxed);
        self.lesson.lock().forget();
        self.unstarted_since_ns.store(0, Ordering::Relaxed);
        self.done_up_to.store(0, Ordering::Relaxed);
    }
}

pub(super) const FREE: u64 = 0;
/// The low bits of [`super::Stream::key`] of a legacy default stream.
const LEGACY_KEY: u64 = 1;
pub(super) const TAKEN: u64 = 3;
pub(super) const ORPHAN: u64 = 7;
