//! The timing events of a stream that are on the way, in the order in which they will be reached.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use vcuda_limiter::predict::{PARTS, Part};

use super::StreamState;

/// Most timing events of one stream on the way.
pub(in crate::compute) const EVENTS_MAX: usize = 64;
/// Divisor of the delay of overdue work: the next query comes after this part of it.
pub(in crate::compute) const OVERDUE_PART: u64 = 8;

/// A timing event: an event behind a segment of work.
#[derive(Debug, core::default::Default)]
#[repr(align(64))]
pub(in crate::compute) struct TimingEvent {
    /// The driver's event, 0 before it is made. It is kept when the timing event is done, for the next one in this
    /// place.
    pub(in crate::compute) event: AtomicUsize,
    /// [`START`], [`MEASURED`], [`PREDICTED`], [`HOST_WAIT`], [`FIRST`], [`PAIR`], [`BOUNDED`], [`RESTART`] or [`AT_MOST`].
    pub(in crate::compute) kind: AtomicU32,
    /// Launches in the segment.
    pub(in crate::compute) count: AtomicU32,
    /// Charge of these launches (ns).
    pub(in crate::compute) predicted_ns: AtomicU64,
    /// Time at which the segment should be done (`CLOCK_MONOTONIC`, ns).
    pub(in crate::compute) expected_ns: AtomicU64,
    /// Host's delay from the start event to the launch on an idle stream (ns), which is no work of the segment. For a
    /// [`START`], [`RESTART`], [`FIRST`] or [`PAIR`] event: the time at which it was recorded. For a [`BOUNDED`] event: the time
    /// of its first launch, or just after (both `CLOCK_MONOTONIC`, ns). For an [`AT_MOST`] event: that, or 0 if the segment began at the event before.
    pub(in crate::compute) gap_ns: AtomicU64,
    /// Kernels in the segment: index of the prediction and count of launches.
    pub(in crate::compute) parts: [AtomicU32; PARTS],
}

/// The stream was idle: the timing event only starts the next segment.
pub(in crate::compute) const START: u32 = 0;
/// The segment began at the timing event before.
pub(in crate::compute) const MEASURED: u32 = 1;
/// It is not known when the segment began: it stays charged as predicted.
pub(in crate::compute) const PREDICTED: u32 = 2;

/// As [`START`], behind an operation that waits for the host.
pub(in crate::compute) const HOST_WAIT: u32 = 3;
/// As [`START`], for the first event on the stream since launches are metered. The work that it waits for was
/// launched before and is charged from the moment at which the timing event was recorded.
pub(in crate::compute) const FIRST: u32 = 4;
/// No timing event says when the segment began. It began no earlier than its first launch on the idle stream, whose
/// time is known.
pub(in crate::compute) const BOUNDED: u32 = 6;
/// As [`START`], right behind another timing event: the time between the two is the cost of a timing event.
pub(in crate::compute) const PAIR: u32 = 5;

/// As [`START`], after a launch has waited for tokens in the middle of a burst. Its launches from there on are charged what
/// they take, but are no fair sample of all.
pub(in crate::compute) const RESTART: u32 = 7;

/// As [`MEASURED`] or [`BOUNDED`], but the stream may have waited for the host within the segment.
pub(in crate::compute) const AT_MOST: u32 = 8;

impl TimingEvent {
    /// Writes what the thread that settles is to know: the kind, the number of launches before the event and their charge (ns), and
    /// the time at which it should be reached (`CLOCK_MONOTONIC`, ns).
    pub(in crate::compute) fn describe(
        &self,
        kind: u32,
        (count, predicted_ns): (u32, u64),
        expected_ns: u64,
    ) {
        self.kind.store(kind, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        self.predicted_ns.store(predicted_ns, Ordering::Relaxed);
        self.expected_ns.store(expected_ns, Ordering::Relaxed);
    }
}

impl StreamState {
    /// The timing event at a position of the ring.
    pub(in crate::compute) fn timing_event(&self, position: u32) -> &TimingEvent {
        #[expect(clippy::indexing_slicing, reason = "taken modulo the ring's length")]
        &self.timing_events[position as usize % EVENTS_MAX]
    }

    /// The timing event that was placed last. Its place is empty if none ever was.
    pub(in crate::compute) fn newest(&self) -> &TimingEvent {
        self.timing_event(self.tail.load(Ordering::Relaxed).wrapping_sub(1))
    }

    /// Timing events on the way.
    pub(in crate::compute) fn pending(&self) -> u32 {
        self.tail.load(Ordering::Acquire).wrapping_sub(self.head.load(Ordering::Relaxed))
    }

    /// Moves the times of settled timing events earlier by `ns`, as they turned out to be too late.
    pub(in crate::compute) fn settled_earlier(&self, ns: u64) {
        for time in [&self.settled_to_ns, &self.entered_to_ns] {
            let at_ns = time.load(Ordering::Relaxed);
            if at_ns != 0 {
                time.store(at_ns.saturating_sub(ns), Ordering::Relaxed);
            }
        }
    }

    /// Time at which `ns` of the predicted work on the way should be done (`CLOCK_MONOTONIC`, ns); `None` if less is
    /// on the way.
    pub(in crate::compute) fn expected_ns(&self, ns: u64) -> Option<u64> {
        let head = self.head.load(Ordering::Relaxed);
        let mut left_ns = ns;
        (0..self.pending()).find_map(|ahead| {
            let timing_event = self.timing_event(head.wrapping_add(ahead));
            left_ns = left_ns.saturating_sub(timing_event.predicted_ns.load(Ordering::Relaxed));
            (left_ns == 0).then(|| timing_event.expected_ns.load(Ordering::Relaxed))
        })
    }

    /// Time of the next query of the first `timing_event` on the way, which was not reached at `seen_ns`
    /// (`CLOCK_MONOTONIC`, ns). `doubted`: recent predictions were far off.
    pub(in crate::compute) fn next_look_ns(
        &self,
        timing_event: &TimingEvent,
        seen_ns: u64,
        doubted: bool,
    ) -> u64 {
        let expected_ns = timing_event.expected_ns.load(Ordering::Relaxed);
        let overdue_ns = seen_ns.saturating_sub(expected_ns);
        if overdue_ns > 0 {
            // The end cannot be predicted any more. The interval grows with the delay.
            return seen_ns + overdue_ns / OVERDUE_PART;
        }
        let from_ns = self.settled_to_ns.load(Ordering::Relaxed);
        if doubted && from_ns != 0 {
            // It may be done long before.
            return expected_ns.min(seen_ns + seen_ns.saturating_sub(from_ns));
        }
        expected_ns
    }

    /// Time for which the work before the next timing event was seen to run (ns).
    pub(in crate::compute) fn seen_running_ns(&self) -> u64 {
        let from_ns = self.settled_to_ns.load(Ordering::Relaxed);
        if self.pending() == 0 || from_ns == 0 {
            return 0;
        }
        self.entered_to_ns.load(Ordering::Relaxed).saturating_sub(from_ns)
    }

    /// What the work before the next timing event was charged beyond its prediction so far (ns).
    pub(in crate::compute) fn overrun_charge_ns(&self) -> u64 {
        if self.pending() == 0 {
            return 0;
        }
        let first = self.timing_event(self.head.load(Ordering::Relaxed));
        let predicted_ns = first.predicted_ns.load(Ordering::Relaxed);
        self.entered_charge_ns.load(Ordering::Relaxed).saturating_sub(predicted_ns)
    }

    /// Earliest begin of the work that is not settled (`CLOCK_MONOTONIC`, ns); 0 if that is not known.
    pub(in crate::compute) fn at_work_since_ns(&self) -> u64 {
        let first = self.timing_event(self.head.load(Ordering::Relaxed));
        let of = match (self.pending(), first.kind.load(Ordering::Relaxed)) {
            (0, _) if !self.chained.load(Ordering::Relaxed) => &self.unstarted_since_ns,
            (1.., START | RESTART | FIRST | PAIR | BOUNDED) => &first.gap_ns,
            (0, _) | (_, MEASURED) => &self.settled_to_ns,
            (_, AT_MOST) => {
                let settled_to_ns = self.settled_to_ns.load(Ordering::Relaxed);
                return settled_to_ns.max(first.gap_ns.load(Ordering::Relaxed));
            }
            _ => return 0,
        };
        of.load(Ordering::Relaxed)
    }

    /// Earliest begin of the launches behind the newest timing event (`CLOCK_MONOTONIC`, ns); 0 if that is not known.
    pub(in crate::compute) fn unmeasured_since_ns(&self) -> u64 {
        match (self.chained.load(Ordering::Relaxed), self.pending()) {
            (false, _) => self.unstarted_since_ns.load(Ordering::Relaxed),
            (true, 0) => self.settled_to_ns.load(Ordering::Relaxed),
            (true, _) => 0,
        }
    }

    /// Forgets the timing events on the way. Returns how many launches they measure, and the charge of these (ns).
    pub(in crate::compute) fn drop_timing_events(&self) -> (u32, u64) {
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

    /// Whether all that was measured before an operation that waits for the host is done, and that is not.
    pub(in crate::compute) fn waits_for_host_now(&self) -> bool {
        let first = self.timing_event(self.head.load(Ordering::Relaxed));
        self.pending() > 0 && first.kind.load(Ordering::Relaxed) == HOST_WAIT
    }

    /// Whether the stream waits for the host, or will once it reaches such an operation, or may.
    pub(in crate::compute) fn waits_for_host(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        (0..self.pending()).any(|ahead| {
            let timing_event = self.timing_event(head.wrapping_add(ahead));
            matches!(timing_event.kind.load(Ordering::Relaxed), HOST_WAIT | AT_MOST)
        })
    }
}

/// The parts of a segment, as predictions know them.
pub(in crate::compute) fn parts_of(timing_event: &TimingEvent) -> ([Part; PARTS], usize) {
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
