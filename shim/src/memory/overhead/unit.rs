//! Memory that the driver takes of the GPU for an allocation: its size, or that rounded up to a unit. The unit is not
//! documented; blocks of 2 MiB are likely (docs/hardware.md, "allocation unit").
//!
//! If there is a figure for this process, rounding shows there as overhead. It is measured after allocations that could
//! have been rounded up by some MiB together. Otherwise the unit is learnt from the application's own allocations whose
//! sizes distinguish units, by the memory in use before and after (`cuMemGetInfo`). Other processes may allocate at
//! that moment. So rounding is believed once it was seen several times, and disproved by one allocation that takes its
//! size. Small allocations may share a block: a piece that adds nothing to the memory in use shows that.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use super::{Overhead, gpu};
use crate::runtime::capture;
use crate::runtime::devices::{Device, current_context};
use crate::runtime::in_flight;
use crate::runtime::registration::Haste;

/// The largest unit considered, as a power of two.
const MAX_POWER: u32 = 25;
/// Below this, allocations may share a block (bytes).
const SMALL_BYTES: u64 = 1 << 20;
/// Number of allocations that fit no unit after which none is watched any more: other processes interfere all the time.
const MAX_MISFITS: u32 = 64;

/// Number of times that rounding must be seen before it is believed.
const ENOUGH: u32 = 4;
/// The likely unit (bytes).
const LIKELY_BYTES: u64 = 2 << 20;
/// Possible unseen rounding after which NVML's figure is read (bytes): at first, and at most if nothing is found.
const UNSEEN_BYTES: (u64, u64) = (16 << 20, 256 << 20);

/// The units of small and of other allocations, as learnt.
#[derive(Debug)]
pub(super) struct Units {
    small: Unit,
    large: Unit,
    /// Possible rounding since NVML's figure was last read (bytes).
    unseen_bytes: AtomicU64,
    /// Value of `unseen_bytes` at which the figure is read again.
    measure_at_bytes: AtomicU64,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            small: Unit::default(),
            large: Unit::default(),
            unseen_bytes: AtomicU64::new(0),
            measure_at_bytes: AtomicU64::new(UNSEEN_BYTES.0),
        }
    }
}

/// A unit as learnt.
#[derive(Debug, Default)]
struct Unit {
    range: Mutex<Range>,
    /// Set for good: nothing is rounded, or allocations are not watched any more.
    is_exact: AtomicBool,
}

/// The units that agree with all that was seen: powers of two from `low` to `high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    low: u32,
    high: u32,
    seen: u32,
    misfits: u32,
}

impl Default for Range {
    fn default() -> Self {
        Self { low: 0, high: MAX_POWER, seen: 0, misfits: 0 }
    }
}

impl Units {
    /// The unit of allocations of this size.
    fn unit_for(&self, bytes: u64) -> &Unit {
        if bytes < SMALL_BYTES { &self.small } else { &self.large }
    }
}

impl Unit {
    /// Memory taken for `bytes`, if that is known.
    #[inline]
    fn known(&self, bytes: u64) -> Option<u64> {
        if self.is_exact.load(Ordering::Relaxed) {
            return Some(bytes);
        }
        self.known_by_range(bytes)
    }

    #[cold]
    fn known_by_range(&self, bytes: u64) -> Option<u64> {
        self.range.lock().known(bytes)
    }

    /// Learns from an allocation of `bytes` that took `taken_bytes`, if known. Returns the memory taken, if known.
    fn learn(&self, bytes: u64, taken_bytes: Option<u64>) -> Option<u64> {
        let mut range = self.range.lock();
        if let Some(taken_bytes) = taken_bytes {
            range.learn(bytes, taken_bytes);
        }
        if range.is_exact() {
            self.is_exact.store(true, Ordering::Relaxed);
        }
        range.known(bytes)
    }
}

fn rounded(bytes: u64, power: u32) -> u64 {
    bytes.checked_next_multiple_of(1 << power).unwrap_or(bytes)
}

impl Range {
    /// Memory taken for `bytes`, if that is known.
    fn known(&self, bytes: u64) -> Option<u64> {
        if self.misfits >= MAX_MISFITS {
            return Some(bytes);
        }
        let taken = rounded(bytes, self.low);
        let is_believed = self.low == 0 || self.seen >= ENOUGH;
        // Whether small pieces share a block is not known before one has been seen.
        let is_seen = self.seen > 0 || bytes >= SMALL_BYTES;
        (is_believed && is_seen && taken == rounded(bytes, self.high)).then_some(taken)
    }

    /// Whether every size takes just that size, whatever is seen later.
    fn is_exact(&self) -> bool {
        self.misfits >= MAX_MISFITS || (self.seen >= ENOUGH && self.high == 0)
    }

    /// Learns from an allocation of `bytes`, for which `taken_bytes` more are in use.
    fn learn(&mut self, bytes: u64, taken_bytes: u64) {
        let is_exact = taken_bytes == bytes || (bytes < SMALL_BYTES && taken_bytes == 0);
        if is_exact && (self.low > 0 || bytes < SMALL_BYTES) {
            // Nothing is rounded. What seemed so was another process's, or the first piece of a block.
            (self.low, self.high) = (0, bytes.trailing_zeros().min(MAX_POWER));
            self.seen = ENOUGH;
            if bytes < SMALL_BYTES {
                self.high = 0;
            }
            return;
        }
        let fits = |power: &u32| rounded(bytes, *power) == taken_bytes;
        let low = (self.low..=self.high).find(fits);
        let high = (self.low..=self.high).rfind(fits);
        match low.zip(high) {
            Some((low, high)) => (self.low, self.high, self.seen) = (low, high, self.seen.saturating_add(1)),
            None => self.misfits += 1,
        }
    }
}

/// An allocation whose memory is measured.
#[derive(Debug)]
pub(crate) struct WatchedAllocation {
    unit: &'static Unit,
    context: CUcontext,
    bytes: u64,
    before_bytes: u64,
    quiet_epoch: u64,
}

impl Overhead {
    /// Memory taken for an allocation of `bytes`, as far as that is known and no figure of NVML tells.
    pub(crate) fn rounded(&self, bytes: u64) -> u64 {
        if self.source.is_known() {
            return bytes;
        }
        self.units.unit_for(bytes).known(bytes).unwrap_or(bytes)
    }

    /// As [`Overhead::rounded`], before the allocation is made. `None` if the memory taken is not known, and should be
    /// looked at ([`Overhead::watch_allocation`]).
    #[inline(always)]
    pub(crate) fn expected_bytes(&'static self, device: &'static Device, bytes: u64) -> Option<u64> {
        if self.source.is_known() {
            self.measure_rounding_if_due(device, bytes);
            return Some(bytes);
        }
        self.units.unit_for(bytes).known(bytes)
    }

    /// Called before an allocation of `bytes`. If earlier ones may have been rounded up by much, NVML's figure is read;
    /// ever more seldom, while nothing is found.
    fn measure_rounding_if_due(&'static self, device: &'static Device, bytes: u64) {
        let beyond_bytes = bytes % LIKELY_BYTES;
        if beyond_bytes == 0 {
            return;
        }
        let units = &self.units;
        let more_bytes = LIKELY_BYTES - beyond_bytes;
        let unseen_bytes = units.unseen_bytes.fetch_add(more_bytes, Ordering::Relaxed) + more_bytes;
        let measure_at_bytes = units.measure_at_bytes.load(Ordering::Relaxed);
        if unseen_bytes < measure_at_bytes || capture::any_open() {
            return;
        }
        units.unseen_bytes.store(0, Ordering::Relaxed);
        let before_bytes = device.overhead_bytes();
        // Less than `remeasure` notices is within NVML's own granularity.
        self.remeasure(device, Haste::Now);
        let found_bytes = device.overhead_bytes().saturating_sub(before_bytes);
        let (least, most) = UNSEEN_BYTES;
        let next_bytes =
            if found_bytes > unseen_bytes / 4 { least } else { (measure_at_bytes * 2).min(most) };
        units.measure_at_bytes.store(next_bytes, Ordering::Relaxed);
    }

    /// Reads the memory in use before an allocation of `bytes`; `None` while other threads move memory, or a capture
    /// forbids the question.
    pub(crate) fn watch_allocation(&'static self, bytes: u64) -> Option<WatchedAllocation> {
        if capture::any_open() {
            return None;
        }
        let quiet_epoch = in_flight::quiet_epoch()?;
        let context = current_context();
        let before_bytes = gpu::used_by_driver(context)?;
        Some(WatchedAllocation {
            unit: self.units.unit_for(bytes),
            context,
            bytes,
            before_bytes,
            quiet_epoch,
        })
    }

    /// Memory that the allocation has taken (bytes), as far as that is known.
    #[cold]
    pub(crate) fn taken_bytes(&self, watched: &WatchedAllocation) -> u64 {
        let after_bytes = gpu::used_by_driver(watched.context);
        if in_flight::quiet_epoch() != Some(watched.quiet_epoch) {
            return watched.bytes;
        }
        let taken_bytes = after_bytes.and_then(|bytes| bytes.checked_sub(watched.before_bytes));
        watched.unit.learn(watched.bytes, taken_bytes).unwrap_or(watched.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Number of allocations that were watched, on a driver that takes `take` for each.
    fn watched(range: &mut Range, sizes: &[u64], take: impl Fn(u64) -> u64) -> usize {
        let mut looks = 0;
        for &bytes in sizes {
            match range.known(bytes) {
                Some(taken) => assert_eq!(taken, take(bytes), "{bytes}"),
                None => {
                    looks += 1;
                    range.learn(bytes, take(bytes));
                }
            }
        }
        looks
    }

    #[test]
    fn a_driver_that_rounds_is_found_out_by_the_sizes_that_tell() {
        let sizes = [64 * MIB, 3 * MIB, 3 * MIB, 2 * MIB + 1, 5 * MIB, 2 * MIB, 7 * MIB + 9, 9 * MIB];
        let mut range = Range::default();
        let rounds = |bytes: u64| bytes.next_multiple_of(2 * MIB);
        assert_eq!(watched(&mut range, &sizes, rounds), 4);
        assert_eq!((range.low, range.high), (21, 21));
        assert!(!range.is_exact());
    }

    #[test]
    fn a_driver_that_does_not_round_is_believed_at_once() {
        let mut range = Range::default();
        let sizes = [2 * MIB, 6 * MIB, 20 * MIB, 3 * MIB + 1, 3 * MIB + 7, MIB + 5];
        assert_eq!(watched(&mut range, &sizes, |bytes| bytes), 2);
    }

    #[test]
    fn small_pieces_that_share_a_block_are_not_rounded() {
        let mut range = Range::default();
        assert_eq!(range.known(1), None);
        range.learn(1, 2 * MIB);
        assert_eq!(range.known(1), None, "it may have been the first of a block");
        range.learn(1, 0);
        assert_eq!(range.known(1), Some(1));
        assert!(range.is_exact());
        let mut other = Range::default();
        assert_eq!(watched(&mut other, &[1, 7, 9, 100, 11, 12], |_| 2 * MIB), 4);
    }

    #[test]
    fn what_neighbours_take_at_the_same_moment_is_not_believed() {
        let mut range = Range::default();
        // An allocation of the same size looks like a unit of 2 MiB.
        (1..ENOUGH).for_each(|_| range.learn(MIB, 2 * MIB));
        assert_eq!(range.known(MIB), None);
        range.learn(MIB, MIB);
        assert_eq!(range.known(MIB), Some(MIB));
        range.learn(MIB, 2 * MIB);
        assert_eq!(range.known(MIB), Some(MIB));
        let mut busy = Range::default();
        (0..MAX_MISFITS).for_each(|_| busy.learn(3 * MIB, 480 * MIB));
        assert_eq!(busy.known(3 * MIB), Some(3 * MIB), "no more is looked at");
        assert!(busy.is_exact());
    }
}
