//! One entry per stream in use: what was launched on it and not yet measured, and its timing events on the way.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use vcuda_limiter::predict::{Part, Prediction};

use super::clock::Clock;
use super::device_limiter::DeviceLimiter;

/// Timing events of one stream on the way.
pub(super) const EVENTS_MAX: usize = 64;
/// Different kernels that one segment can tell apart.
pub(super) const PARTS: usize = 6;
/// Launches after which a segment ends.
const LAUNCHES_MAX: u64 = 128;
/// Part of the time that work is overdue until the next look.
pub(super) const OVERDUE_PART: u64 = 8;
const COUNT_SHIFT: u32 = 48;

/// One timing event: an event behind a segment of work.
#[derive(Debug, core::default::Default)]
#[repr(align(64))]
pub(super) struct TimingEvent {
    /// The event; kept when the timing event is done, for the next one in this place. 0: none made yet.
    pub(super) event: AtomicUsize,
    /// [`START`], [`MEASURED`], [`PREDICTED`], [`HOST_WAIT`], [`FIRST`], [`PAIR`] or [`BOUNDED`].
    pub(super) kind: AtomicU32,
    /// Launches in the segment.
    pub(super) count: AtomicU32,
    /// What they were charged (ns).
    pub(super) predicted_ns: AtomicU64,
    /// When it should be done (`CLOCK_MONOTONIC`, ns).
    pub(super) expected_ns: AtomicU64,
    /// How long after the start event the host launched, where the stream was idle (ns): no work of the segment. Of a [`START`],
    /// [`FIRST`] or [`PAIR`] event, when it was recorded, and of a [`BOUNDED`] one, when its first launch was made (`CLOCK_MONOTONIC`, ns).
    pub(super) gap_ns: AtomicU64,
    /// Who is in it: index and count of a prediction each.
    pub(super) parts: [AtomicU32; PARTS],
}

/// The stream was idle: the timing event only starts the next segment.
pub(super) const START: u32 = 0;
/// The segment began at the timing event before.
pub(super) const MEASURED: u32 = 1;
/// Nobody knows when the segment began: it stays charged as predicted.
pub(super) const PREDICTED: u32 = 2;

/// As [`START`], behind something that waits for the host.
pub(super) const HOST_WAIT: u32 = 3;
/// As [`START`], the first on the stream since launches are metered: what it waits for was launched before, and is charged
/// from the moment at which the timing event was recorded.
pub(super) const FIRST: u32 = 4;
/// No timing event says when the segment began, but when its first launch was made is known, on an idle stream: it began no earlier.
pub(super) const BOUNDED: u32 = 6;
/// As [`START`], right behind another timing event: the time between the two is what a timing event itself takes.
pub(super) const PAIR: u32 = 5;

/// A stream.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct StreamState {
    /// What `key_of` gives; 0: free.
    pub(super) key: AtomicU64,
    pub(super) limiter: AtomicPtr<DeviceLimiter>,
    /// A thread is placing a timing event. Tried, never waited for.
    recording: AtomicBool,
    /// The stream or its context is going away: no new timing events.
    pub(super) closing: AtomicBool,
    /// The driver refuses to record events on it: its launches go alone ([`super::alone`]).
    unmeasurable: AtomicBool,
    busy_until_ns: AtomicU64,
    pub(super) clock: Clock,
    /// Launches since the last timing event: count in the upper 16 bits, predicted ns below.
    unmeasured: AtomicU64,
    parts: [AtomicU32; PARTS],
    /// The next segment begins at the last timing event.
    pub(super) chained: AtomicBool,
    /// When the first launch of a segment without a start timing event was made, on an idle stream (`CLOCK_MONOTONIC`, ns); 0: it has
    /// a start timing event, or that is not known.
    pub(super) unstarted_since_ns: AtomicU64,
    /// When the last start timing event had been recorded (`CLOCK_MONOTONIC`, ns).
    pub(super) started_at_ns: AtomicU64,
    /// When a segment of its own was last measured for an idle stream (`CLOCK_MONOTONIC`, ns).
    pub(super) sampled_at_ns: AtomicU64,
    /// The stream's context.
    pub(super) context: AtomicUsize,
    /// The context that the worker makes current to ask about it: the same, or what any thread may have in its place.
    pub(super) asked_in: AtomicUsize,
    /// Ring of timing events: next to settle, next to place.
    pub(super) head: AtomicU32,
    pub(super) tail: AtomicU32,
    /// End of the last settled segment (`CLOCK_MONOTONIC`, ns), 0 if unknown. The worker's.
    pub(super) settled_to_ns: AtomicU64,
    /// Until then a thread that waits for the stream looks at the timing events itself (`CLOCK_MONOTONIC`, ns).
    pub(super) attended_until_ns: AtomicU64,
    /// How far the running segment was entered in the busy map (ns), and what that will be charged. The worker's.
    pub(super) entered_to_ns: AtomicU64,
    pub(super) entered_charge_ns: AtomicU64,
    pub(super) timing_events: [TimingEvent; EVENTS_MAX],
}

impl StreamState {
    /// Its device.
    #[inline]
    pub(super) fn limiter(&self) -> Option<&'static DeviceLimiter> {
        // SAFETY: null, or one of the limiters of `Launches`, which is never freed or moved.
        unsafe { self.limiter.load(Ordering::Relaxed).as_ref() }
    }

    /// Its context's handle.
    pub(super) fn context(&self) -> usize {
        self.context.load(Ordering::Relaxed)
    }

    /// When its work should be done (`CLOCK_MONOTONIC`, ns).
    #[inline]
    pub(super) fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns.load(Ordering::Relaxed)
    }

    /// When the last start timing event had been recorded (`CLOCK_MONOTONIC`, ns).
    pub(super) fn started_at_ns(&self) -> u64 {
        self.started_at_ns.load(Ordering::Relaxed)
    }

    /// More work was launched, at `now_ns` (ns). A racing launch on the same stream may be lost
    /// here: it only tells when the stream runs dry.
    #[inline]
    pub(super) fn extend(&self, now_ns: u64, cost_ns: u64) {
        let from = self.busy_until_ns().max(now_ns);
        self.busy_until_ns
            .store(from.saturating_add(cost_ns), Ordering::Relaxed);
    }

    /// The next launch finds the stream idle, whatever was predicted.
    pub(super) fn is_idle_from_now(&self) {
        self.busy_until_ns.store(0, Ordering::Relaxed);
    }

    /// The first timing event on the way was reached at `at_ns`. If it was the last too, nothing is left to do on the stream, though
    /// predictions that were too long say that there is.
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

    /// Counts a launch as unmeasured. `true`: the segment is long enough for a timing event.
    #[inline]
    pub(super) fn note(&self, predicted: Prediction, segment_ns: u64) -> bool {
        let before = self
            .unmeasured
            .fetch_add((1 << COUNT_SHIFT) | predicted.cost_ns, Ordering::Relaxed);
        let (count, ns) = unpack(before);
        let told_apart = self.note_part(predicted.index);
        !told_apart || ns + predicted.cost_ns >= segment_ns || count + 1 >= LAUNCHES_MAX
    }

    /// Where a launch is counted that no timing event is due behind: the word of its kernel in this segment.
    #[inline(always)]
    pub(super) fn place_within(&self, predicted: Prediction, segment_ns: u64) -> Option<Place<'_>> {
        let (count, ns) = self.unmeasured();
        if count + 1 >= LAUNCHES_MAX || ns + predicted.cost_ns >= segment_ns {
            return None;
        }
        self.place_of(predicted.index)
    }

    /// Where a launch of the kernel with this prediction is counted; nothing if the segment has too many kinds of kernels.
    #[inline(always)]
    fn place_of(&self, index: u16) -> Option<Place<'_>> {
        let index = u32::from(index);
        let mut parts = self.parts.iter().map(|word| (word, word.load(Ordering::Relaxed)));
        let (word, seen) = parts.find(|(_, seen)| seen >> 16 == index || *seen == 0)?;
        Some(Place {
            word,
            next: (seen | index << 16).wrapping_add(1),
        })
    }

    /// Counts a launch as unmeasured, in its place. It should be done at `done_ns` (`CLOCK_MONOTONIC`).
    #[inline(always)]
    pub(super) fn count(&self, place: Place<'_>, predicted: Prediction, done_ns: u64) {
        self.busy_until_ns.store(done_ns, Ordering::Relaxed);
        self.unmeasured
            .fetch_add((1 << COUNT_SHIFT) | predicted.cost_ns, Ordering::Relaxed);
        place.word.store(place.next, Ordering::Relaxed);
    }

    /// Two threads that launch on one stream may lose a count here: a little accuracy of a later prediction.
    #[inline]
    fn note_part(&self, index: u16) -> bool {
        // The low half counts; one that comes round would be another kernel's.
        let place = self.place_of(index).filter(|place| place.next & 0xffff != 0);
        if let Some(place) = &place {
            place.word.store(place.next, Ordering::Relaxed);
        }
        place.is_some()
    }

    /// Takes the unmeasured launches: how many, and what they were charged (ns).
    pub(super) fn take_unmeasured(&self) -> (u32, u64) {
        // With them goes when the first of them was made.
        self.unstarted_since_ns.store(0, Ordering::Relaxed);
        let (count, ns) = unpack(self.unmeasured.swap(0, Ordering::Relaxed));
        (u32::try_from(count).unwrap_or(u32::MAX), ns)
    }

    /// Unmeasured launches: how many, and what they were charged (ns).
    pub(super) fn unmeasured(&self) -> (u64, u64) {
        unpack(self.unmeasured.load(Ordering::Relaxed))
    }

    /// Moves who is in the segment into its timing event.
    pub(super) fn take_parts(&self, timing_event: &TimingEvent) {
        for (from, to) in self.parts.iter().zip(&timing_event.parts) {
            to.store(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Forgets who is in the segment.
    pub(super) fn drop_parts(&self) {
        for part in &self.parts {
            part.store(0, Ordering::Relaxed);
        }
    }

    /// The right to place timing events, if no other thread has it.
    pub(super) fn try_recording(&self) -> Option<RecordingRight<'_>> {
        if self.recording.swap(true, Ordering::Acquire) {
            return None;
        }
        let recording = RecordingRight { stream_state: self };
        // Pairs with `close`: either it sees the timing event that we place, or we see that it closes.
        if self.closing.load(Ordering::SeqCst) {
            None
        } else {
            Some(recording)
        }
    }

    /// The timing event at a position of the ring.
    pub(super) fn timing_event(&self, position: u32) -> &TimingEvent {
        #[expect(clippy::indexing_slicing, reason = "taken modulo the ring's length")]
        &self.timing_events[position as usize % EVENTS_MAX]
    }

    /// Timing events on the way.
    pub(super) fn pending(&self) -> u32 {
        self.tail
            .load(Ordering::Acquire)
            .wrapping_sub(self.head.load(Ordering::Relaxed))
    }

    /// The times of the timing events that were settled turn out to be earlier by so much (ns).
    pub(super) fn settled_earlier(&self, ns: u64) {
        for time in [&self.settled_to_ns, &self.entered_to_ns] {
            let at_ns = time.load(Ordering::Relaxed);
            if at_ns != 0 {
                time.store(at_ns.saturating_sub(ns), Ordering::Relaxed);
            }
        }
    }

    /// When so much of what is on the way (ns, as predicted) should be done (`CLOCK_MONOTONIC`, ns); nothing if it is less.
    pub(super) fn expected_ns(&self, ns: u64) -> Option<u64> {
        let head = self.head.load(Ordering::Relaxed);
        let mut left_ns = ns;
        (0..self.pending()).find_map(|ahead| {
            let timing_event = self.timing_event(head.wrapping_add(ahead));
            left_ns = left_ns.saturating_sub(timing_event.predicted_ns.load(Ordering::Relaxed));
            (left_ns == 0).then(|| timing_event.expected_ns.load(Ordering::Relaxed))
        })
    }

    /// When the first `timing_event` on the way, not reached at `seen_ns`, is to be looked at again (`CLOCK_MONOTONIC`, ns).
    /// `doubted`: predictions were far off of late.
    pub(super) fn next_look_ns(&self, timing_event: &TimingEvent, seen_ns: u64, doubted: bool) -> u64 {
        let expected_ns = timing_event.expected_ns.load(Ordering::Relaxed);
        let overdue_ns = seen_ns.saturating_sub(expected_ns);
        if overdue_ns > 0 {
            // Nobody knows any more. The later, the less does a little more matter.
            return seen_ns + overdue_ns / OVERDUE_PART;
        }
        let from_ns = self.settled_to_ns.load(Ordering::Relaxed);
        if doubted && from_ns != 0 {
            // It may be done long before.
            return expected_ns.min(seen_ns + seen_ns.saturating_sub(from_ns));
        }
        expected_ns
    }

    /// For how long the work before its next timing event was seen to run (ns).
    pub(super) fn seen_running_ns(&self) -> u64 {
        let from_ns = self.settled_to_ns.load(Ordering::Relaxed);
        if self.pending() == 0 || from_ns == 0 {
            return 0;
        }
        self.entered_to_ns.load(Ordering::Relaxed).saturating_sub(from_ns)
    }

    /// When what is not settled yet began at the earliest (`CLOCK_MONOTONIC`, ns); 0 if that is not known.
    pub(super) fn at_work_since_ns(&self) -> u64 {
        let first = self.timing_event(self.head.load(Ordering::Relaxed));
        let of = match (self.pending(), first.kind.load(Ordering::Relaxed)) {
            (0, _) if !self.chained.load(Ordering::Relaxed) => &self.unstarted_since_ns,
            (1.., START | FIRST | PAIR | BOUNDED) => &first.gap_ns,
            (0, _) | (_, MEASURED) => &self.settled_to_ns,
            _ => return 0,
        };
        of.load(Ordering::Relaxed)
    }

    /// Forgets the timing events on the way: how many launches they measure, and what these were charged (ns).
    pub(super) fn drop_timing_events(&self) -> (u32, u64) {
        let mut all = (0, 0);
        while self.pending() > 0 {
            let head = self.head.load(Ordering::Relaxed);
            let timing_event = self.timing_event(head);
            all.0 += timing_event.count.load(Ordering::Relaxed);
            all.1 += timing_event.predicted_ns.load(Ordering::Relaxed);
            self.head.store(head.wrapping_add(1), Ordering::Release);
        }
        all
    }

    /// Whether the stream waits for the host, or will when it comes to that.
    pub(super) fn waits_for_host(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        (0..self.pending()).any(|ahead| {
            let timing_event = self.timing_event(head.wrapping_add(ahead));
            timing_event.kind.load(Ordering::Relaxed) == HOST_WAIT
        })
    }

    /// Whether a stream has this entry.
    pub(super) fn in_use(&self) -> bool {
        !matches!(self.key.load(Ordering::Acquire), FREE | TAKEN)
    }

    /// Whether its stream is gone, so that the entry is free once its timing events are settled.
    pub(super) fn is_orphan(&self) -> bool {
        self.key.load(Ordering::Relaxed) == ORPHAN
    }

    /// The stream's handle is not its any more.
    pub(super) fn orphan(&self) {
        self.key.store(ORPHAN, Ordering::Release);
    }

    /// Whether a stream has this entry, or had it and has work on the way.
    pub(super) fn is_held(&self) -> bool {
        self.key.load(Ordering::Acquire) != FREE
    }

    /// Whether nothing is on the way, and was not at `ns` (`CLOCK_MONOTONIC`) as far as is predicted.
    pub(super) fn is_unused_since(&self, ns: u64) -> bool {
        self.pending() == 0 && self.unmeasured().0 == 0 && self.busy_until_ns() < ns
    }

    /// The driver refuses to record an event on the stream. No launch goes there at once any more: it is idle for good.
    pub(super) fn cannot_be_measured(&self) {
        self.unmeasurable.store(true, Ordering::Relaxed);
        self.is_idle_from_now();
    }

    /// Whether the driver refused to record an event on the stream.
    #[inline]
    pub(super) fn is_unmeasurable(&self) -> bool {
        self.unmeasurable.load(Ordering::Relaxed)
    }

    /// The entry may be given to another stream.
    pub(super) fn free(&self) {
        self.reset();
        self.key.store(FREE, Ordering::Release);
    }

    /// Nothing is known of the stream any more.
    pub(super) fn reset(&self) {
        self.settled_to_ns.store(0, Ordering::Relaxed);
        self.entered_to_ns.store(0, Ordering::Relaxed);
        self.entered_charge_ns.store(0, Ordering::Relaxed);
        self.chained.store(false, Ordering::Relaxed);
        self.busy_until_ns.store(0, Ordering::Relaxed);
        self.drop_parts();
        self.closing.store(false, Ordering::Relaxed);
        self.unmeasurable.store(false, Ordering::Relaxed);
        self.sampled_at_ns.store(0, Ordering::Relaxed);
        self.unstarted_since_ns.store(0, Ordering::Relaxed);
    }
}

/// Where a launch is counted among its segment's.
#[derive(Debug)]
pub(super) struct Place<'a> {
    word: &'a AtomicU32,
    next: u32,
}

/// The right to place timing events on a stream.
#[derive(Debug)]
pub(super) struct RecordingRight<'a> {
    stream_state: &'a StreamState,
}

impl Drop for RecordingRight<'_> {
    fn drop(&mut self) {
        self.stream_state.recording.store(false, Ordering::Release);
    }
}

/// The parts of a segment, as predictions know them.
pub(super) fn parts_of(timing_event: &TimingEvent) -> ([Part; PARTS], usize) {
    let mut parts = [Part::default(); PARTS];
    let mut used = 0;
    for (word, part) in timing_event.parts.iter().zip(&mut parts) {
        let word = word.load(Ordering::Relaxed);
        if word == 0 {
            break;
        }
        part.index = u16::try_from(word >> 16).unwrap_or(0);
        part.count = u16::try_from(word & 0xffff).unwrap_or(0);
        used += 1;
    }
    (parts, used)
}

const fn unpack(word: u64) -> (u64, u64) {
    (word >> COUNT_SHIFT, word & ((1 << COUNT_SHIFT) - 1))
}

pub(super) const FREE: u64 = 0;
pub(super) const TAKEN: u64 = 3;
const ORPHAN: u64 = 7;
