//! What the driver takes of the GPU for an allocation: what is asked for, or that rounded up to a unit. The unit is not
//! documented; blocks of 2 MiB are likely (docs/hardware.md, "allocation unit").
//!
//! Where NVML tells what this process has, rounding shows there as overhead: after allocations that could have been rounded up
//! by some MiB together, it is measured. Where only the difference on the GPU tells, the unit is learnt from the application's
//! own allocations, as far as their sizes tell units apart, by what the driver says is in use before and after
//! (`cuMemGetInfo`). Neighbours may do the same at that moment: so rounding is believed when it was seen several times, and
//! disproved by one allocation that takes what was asked for. Small allocations may share a block: a piece for which nothing
//! more is in use shows that.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use super::{Overhead, gpu};
use crate::runtime::capture;
use crate::runtime::devices::{Device, current_context};
use crate::runtime::in_flight;
use crate::runtime::registration::Haste;

/// The largest unit that is believed, as a power of two.
const MOST: u32 = 25;
/// Below this, allocations may share a block (bytes).
const SMALL_BYTES: u64 = 1 << 20;
/// So many allocations that fit no unit, and no more is looked at: neighbours take and give all the time.
const MOST_MISFITS: u32 = 64;

/// Rounding is believed when it was seen so often.
const ENOUGH: u32 = 4;
/// The unit that is likely (bytes).
const LIKELY_BYTES: u64 = 2 << 20;
/// What may have been rounded up unseen before NVML's figure is looked at: at least, and at most where nothing was found (bytes).
const UNSEEN_BYTES: (u64, u64) = (16 << 20, 256 << 20);

/// What is known of the units: of small allocations, and of others.
#[derive(Debug)]
pub(super) struct Units {
    small: Unit,
    large: Unit,
    /// What may have been rounded up since NVML's figure was looked at (bytes).
    unseen_bytes: AtomicU64,
    /// So much of that is a reason to look (bytes).
    look_at_bytes: AtomicU64,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            small: Unit::default(),
            large: Unit::default(),
            unseen_bytes: AtomicU64::new(0),
            look_at_bytes: AtomicU64::new(UNSEEN_BYTES.0),
        }
    }
}

/// What is known of one unit.
#[derive(Debug, Default)]
struct Unit {
    range: Mutex<Range>,
    /// For good: nothing is rounded, or it is not looked at any more.
    is_exact: AtomicBool,
}

/// The units that agree with all that was seen, as powers of two from `low` to `high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    low: u32,
    high: u32,
    seen: u32,
    misfits: u32,
}

impl Default for Range {
    fn default() -> Self {
        Self {
            low: 0,
            high: MOST,
            seen: 0,
            misfits: 0,
        }
    }
}

impl Units {
    /// What is known of the unit of allocations of this size.
    fn of(&self, bytes: u64) -> &Unit {
        if bytes < SMALL_BYTES {
            &self.small
        } else {
            &self.large
        }
    }
}

impl Unit {
    /// What so many bytes take, if that is known.
    fn known(&self, bytes: u64) -> Option<u64> {
        if self.is_exact.load(Ordering::Relaxed) {
            return Some(bytes);
        }
        self.range.lock().known(bytes)
    }

    /// `bytes` were asked for, and `taken_bytes` more are in use, if that was told. Returns what they took, if it is known.
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
    /// What so many bytes take, if that is known.
    fn known(&self, bytes: u64) -> Option<u64> {
        if self.misfits >= MOST_MISFITS {
            return Some(bytes);
        }
        let taken = rounded(bytes, self.low);
        let is_believed = self.low == 0 || self.seen >= ENOUGH;
        // Whether small pieces share a block is not known before one has been seen.
        let is_seen = self.seen > 0 || bytes >= SMALL_BYTES;
        (is_believed && is_seen && taken == rounded(bytes, self.high)).then_some(taken)
    }

    /// Whether any size takes what was asked for, whatever is seen later.
    fn is_exact(&self) -> bool {
        self.misfits >= MOST_MISFITS || (self.seen >= ENOUGH && self.high == 0)
    }

    /// `bytes` were asked for, and `taken_bytes` more are in use.
    fn learn(&mut self, bytes: u64, taken_bytes: u64) {
        let is_exact = taken_bytes == bytes || (bytes < SMALL_BYTES && taken_bytes == 0);
        if is_exact && (self.low > 0 || bytes < SMALL_BYTES) {
            // Nothing is rounded; what seemed so was a neighbour's, or the first piece of a block.
            (self.low, self.high) = (0, bytes.trailing_zeros().min(MOST));
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

/// An allocation that is looked at.
#[derive(Debug)]
pub(crate) struct Look {
    unit: &'static Unit,
    context: CUcontext,
    bytes: u64,
    before_bytes: u64,
    still: u64,
}

impl Overhead {
    /// What an allocation of so many bytes takes (bytes), as far as that is known and no figure of NVML tells.
    pub(crate) fn rounded(&self, bytes: u64) -> u64 {
        if self.source.tells() {
            return bytes;
        }
        self.units.of(bytes).known(bytes).unwrap_or(bytes)
    }

    /// As [`Overhead::rounded`]; and where that is not known, a look at the GPU before the allocation.
    #[inline(always)]
    pub(crate) fn expect_allocation(
        &'static self,
        device: &'static Device,
        bytes: u64,
    ) -> (u64, Option<Look>) {
        if self.source.tells() {
            self.look_for_rounding(device, bytes);
            return (bytes, None);
        }
        let unit = self.units.of(bytes);
        match unit.known(bytes) {
            Some(taken_bytes) => (taken_bytes, None),
            None => (bytes, self.look_before(unit, bytes)),
        }
    }

    /// An allocation of so many bytes is about to be made. If those before it may have been rounded up by much, NVML's figure
    /// is looked at; ever more seldom, while nothing is found.
    fn look_for_rounding(&'static self, device: &'static Device, bytes: u64) {
        let beyond_bytes = bytes % LIKELY_BYTES;
        if beyond_bytes == 0 {
            return;
        }
        let units = &self.units;
        let more_bytes = LIKELY_BYTES - beyond_bytes;
        let unseen_bytes = units.unseen_bytes.fetch_add(more_bytes, Ordering::Relaxed) + more_bytes;
        let look_at_bytes = units.look_at_bytes.load(Ordering::Relaxed);
        if unseen_bytes < look_at_bytes || capture::any_open() {
            return;
        }
        units.unseen_bytes.store(0, Ordering::Relaxed);
        let before_bytes = device.overhead_bytes();
        // Less than this would see is NVML's own granularity.
        self.follow(device, Haste::Now);
        let found_bytes = device.overhead_bytes().saturating_sub(before_bytes);
        let (least, most) = UNSEEN_BYTES;
        let next_bytes = if found_bytes > unseen_bytes / 4 {
            least
        } else {
            (look_at_bytes * 2).min(most)
        };
        units.look_at_bytes.store(next_bytes, Ordering::Relaxed);
    }

    /// A look at the GPU; nothing while other threads move memory, or a capture forbids the question.
    #[cold]
    fn look_before(&self, unit: &'static Unit, bytes: u64) -> Option<Look> {
        if capture::any_open() {
            return None;
        }
        let still = in_flight::quiet_epoch()?;
        let context = current_context();
        let before_bytes = gpu::used_by_driver(context)?;
        Some(Look {
            unit,
            context,
            bytes,
            before_bytes,
            still,
        })
    }

    /// What the allocation has taken (bytes), as far as that can be told.
    #[cold]
    pub(crate) fn taken_bytes(&self, look: &Look) -> u64 {
        let after_bytes = gpu::used_by_driver(look.context);
        if in_flight::quiet_epoch() != Some(look.still) {
            return look.bytes;
        }
        let taken_bytes = after_bytes.and_then(|bytes| bytes.checked_sub(look.before_bytes));
        look.unit.learn(look.bytes, taken_bytes).unwrap_or(look.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// How many of these allocations were looked at, on a driver that takes `take` for each.
    fn looks(range: &mut Range, sizes: &[u64], take: impl Fn(u64) -> u64) -> usize {
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
        let sizes = [
            64 * MIB,
            3 * MIB,
            3 * MIB,
            2 * MIB + 1,
            5 * MIB,
            2 * MIB,
            7 * MIB + 9,
            9 * MIB,
        ];
        let mut range = Range::default();
        let rounds = |bytes: u64| bytes.next_multiple_of(2 * MIB);
        assert_eq!(looks(&mut range, &sizes, rounds), 4);
        assert_eq!((range.low, range.high), (21, 21));
        assert!(!range.is_exact());
    }

    #[test]
    fn a_driver_that_does_not_round_is_believed_at_once() {
        let mut range = Range::default();
        let sizes = [2 * MIB, 6 * MIB, 20 * MIB, 3 * MIB + 1, 3 * MIB + 7, MIB + 5];
        assert_eq!(looks(&mut range, &sizes, |bytes| bytes), 2);
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
        assert_eq!(looks(&mut other, &[1, 7, 9, 100, 11, 12], |_| 2 * MIB), 4);
    }

    #[test]
    fn what_neighbours_take_at_the_same_moment_is_not_believed() {
        let mut range = Range::default();
        // One that allocates as much looks like a unit of 2 MiB.
        (1..ENOUGH).for_each(|_| range.learn(MIB, 2 * MIB));
        assert_eq!(range.known(MIB), None);
        range.learn(MIB, MIB);
        assert_eq!(range.known(MIB), Some(MIB));
        range.learn(MIB, 2 * MIB);
        assert_eq!(range.known(MIB), Some(MIB));
        let mut busy = Range::default();
        (0..MOST_MISFITS).for_each(|_| busy.learn(3 * MIB, 480 * MIB));
        assert_eq!(busy.known(3 * MIB), Some(3 * MIB), "no more is looked at");
        assert!(busy.is_exact());
    }
}
