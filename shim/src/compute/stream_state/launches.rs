//! The launches of a stream that are not measured yet: how many they are, which kernels, and what they should cost.

use core::sync::atomic::{AtomicU32, Ordering};

use vcuda_limiter::predict::Prediction;

use super::{StreamState, TimingEvent};

/// Launches after which a segment ends.
const LAUNCHES_MAX: u64 = 128;
/// Bits of [`StreamState::unmeasured`] that count launches.
const COUNT_BITS: u32 = 16;

impl StreamState {
    /// Counts a launch as unmeasured. Returns `true` if a timing event is due behind it: if the segment is long enough, or if it has too
    /// many different kernels and they are to be told apart.
    #[inline]
    pub(in crate::compute) fn note(&self, predicted: Prediction, segment_ns: u64) -> bool {
        let is_long = self.would_end_segment(predicted, segment_ns);
        self.unmeasured.fetch_add(pack_one(predicted.cost_ns), Ordering::Relaxed);
        let is_counted = self.note_part(predicted.index);
        is_long || !is_counted && self.is_told_apart()
    }

    /// Whether the segment is long enough for a timing event once this launch belongs to it.
    #[inline(always)]
    pub(in crate::compute) fn would_end_segment(&self, predicted: Prediction, segment_ns: u64) -> bool {
        let (count, ns) = self.unmeasured();
        count + 1 >= LAUNCHES_MAX || ns + predicted.cost_ns >= segment_ns
    }

    /// The counter of the kernel with this prediction; `None` if the segment has too many different kernels.
    #[inline(always)]
    pub(in crate::compute) fn place_of(&self, index: u16) -> Option<Place<'_>> {
        let index = u32::from(index);
        let mut parts = self.parts.iter().map(|word| (word, word.load(Ordering::Relaxed)));
        if let Some((word, seen)) = parts.clone().find(|(_, seen)| seen >> 16 == index) {
            let next = seen.wrapping_add(1);
            return Some(Place { word, next });
        }
        let (word, _) = parts.find(|(_, seen)| *seen == 0)?;
        let next = index << 16 | 1;
        Some(Place { word, next })
    }

    /// Counts a launch as unmeasured, in its counter `place`. It should be done at `done_ns` (`CLOCK_MONOTONIC`).
    #[inline(always)]
    pub(in crate::compute) fn count(&self, place: Place<'_>, predicted: Prediction, done_ns: u64) {
        self.busy_until_ns.store(done_ns, Ordering::Relaxed);
        self.unmeasured.fetch_add(pack_one(predicted.cost_ns), Ordering::Relaxed);
        place.word.store(place.next, Ordering::Relaxed);
    }

    /// Counts a launch of a kernel. Returns `false` if the segment has too many different kernels. Of two threads
    /// that launch on one stream one may lose its count here, which costs a later prediction a little accuracy.
    #[inline]
    fn note_part(&self, index: u16) -> bool {
        // The low half counts. If it overflowed, it would change the kernel's index.
        let place = self.place_of(index).filter(|place| place.next & 0xffff != 0);
        if let Some(place) = &place {
            place.word.store(place.next, Ordering::Relaxed);
        }
        place.is_some()
    }

    /// Takes the unmeasured launches: their number, and their charge (ns).
    pub(in crate::compute) fn take_unmeasured(&self) -> (u32, u64) {
        // The time was that of the first of them.
        self.unstarted_since_ns.store(0, Ordering::Relaxed);
        let (count, ns) = unpack(self.unmeasured.swap(0, Ordering::Relaxed));
        (u32::try_from(count).unwrap_or(u32::MAX), ns)
    }

    /// Unmeasured launches: their number, and their charge (ns).
    pub(in crate::compute) fn unmeasured(&self) -> (u64, u64) {
        unpack(self.unmeasured.load(Ordering::Relaxed))
    }

    /// Whether the unmeasured launches have changed since the last call. Only for the worker.
    pub(in crate::compute) fn has_more_unmeasured(&self) -> bool {
        let unmeasured = self.unmeasured.load(Ordering::Relaxed);
        self.unmeasured_seen.swap(unmeasured, Ordering::Relaxed) != unmeasured
    }

    /// Moves the segment's counts of kernels into its timing event.
    pub(in crate::compute) fn take_parts(&self, timing_event: &TimingEvent) {
        for (from, to) in self.parts.iter().zip(&timing_event.parts) {
            to.store(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The indices of the predictions of the running segment's kernels.
    pub(in crate::compute) fn parts_so_far(&self) -> impl Iterator<Item = u16> {
        let seen = self.parts.iter().map(|part| part.load(Ordering::Relaxed));
        seen.filter(|part| *part != 0).map(|part| u16::try_from(part >> 16).unwrap_or(0))
    }

    /// Forgets the segment's counts of kernels.
    pub(in crate::compute) fn drop_parts(&self) {
        for part in &self.parts {
            part.store(0, Ordering::Relaxed);
        }
    }
}

/// The counter of a kernel in a segment, and its next value.
#[derive(Debug)]
pub(in crate::compute) struct Place<'a> {
    word: &'a AtomicU32,
    next: u32,
}

impl Place<'_> {
    /// For a launch whose kernel is not counted.
    #[cold]
    pub(in crate::compute) fn nowhere() -> Self {
        static NOWHERE: AtomicU32 = AtomicU32::new(0);
        Self { word: &NOWHERE, next: 0 }
    }
}

/// Amount that one launch adds to [`StreamState::unmeasured`].
const fn pack_one(cost_ns: u64) -> u64 {
    (cost_ns << COUNT_BITS) + 1
}

const fn unpack(word: u64) -> (u64, u64) {
    (word & ((1 << COUNT_BITS) - 1), word >> COUNT_BITS)
}
