//! Memory that the driver takes of the GPU for an allocation: its size, or whole blocks of 2 MiB (docs/hardware.md,
//! "allocation unit").
//!
//! If there is a figure for this process, rounding shows there as overhead. It is measured after allocations that could
//! have been rounded up by some MiB together. Otherwise it is learnt from the application's own allocations, by the
//! memory in use before and after (`cuMemGetInfo`). Other processes may allocate at that moment. So rounding is believed
//! once it was seen several times, and disproved by one allocation that takes its size. Small allocations may share a
//! block: one that adds nothing to the memory in use shows that.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;

use super::{Overhead, gpu};
use crate::runtime::capture;
use crate::runtime::registration::Haste;
use crate::runtime::shim::Shim;
use crate::runtime::shim::devices::{Device, current_context};

/// Size of a block (bytes).
const BLOCK_BYTES: u64 = 2 << 20;
/// Below this, allocations may share a block (bytes).
const SMALL_BYTES: u64 = 1 << 20;
/// Number of allocations that fit neither after which none is watched any more: other processes interfere all the time.
const MAX_MISFITS: u32 = 64;
/// Number of times that rounding must be seen before it is believed.
const ENOUGH: u32 = 4;
/// Possible unseen rounding after which NVML's figure is read (bytes): at first, and at most if nothing is found.
const UNSEEN_BYTES: (u64, u64) = (16 << 20, 256 << 20);

/// What is known of small and of other allocations.
#[derive(Debug)]
pub(super) struct Units {
    small: Rounding,
    large: Rounding,
    /// Possible rounding since NVML's figure was last read (bytes).
    unseen_bytes: AtomicU64,
    /// Value of `unseen_bytes` at which the figure is read again.
    measure_at_bytes: AtomicU64,
}

impl Default for Units {
    fn default() -> Self {
        Self {
            small: Rounding::default(),
            large: Rounding::default(),
            unseen_bytes: AtomicU64::new(0),
            measure_at_bytes: AtomicU64::new(UNSEEN_BYTES.0),
        }
    }
}

impl Units {
    fn of(&self, bytes: u64) -> &Rounding {
        if bytes < SMALL_BYTES { &self.small } else { &self.large }
    }
}

const UNKNOWN: u8 = 0;
/// An allocation takes its size, or is not watched any more.
const EXACT: u8 = 1;
/// An allocation takes whole blocks.
const BLOCKS: u8 = 2;

/// Whether allocations are rounded up, as learnt.
#[derive(Debug, Default)]
struct Rounding {
    /// [`UNKNOWN`] until it is [`EXACT`] or [`BLOCKS`] for good.
    kind: AtomicU8,
    /// Number of allocations that took whole blocks.
    seen: AtomicU32,
    misfits: AtomicU32,
}

fn in_blocks(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(bytes)
}

impl Rounding {
    /// Memory taken for `bytes`, if that is known.
    #[inline]
    fn known(&self, bytes: u64) -> Option<u64> {
        match self.kind.load(Ordering::Relaxed) {
            EXACT => Some(bytes),
            BLOCKS => Some(in_blocks(bytes)),
            _ => (bytes == in_blocks(bytes)).then_some(bytes),
        }
    }

    /// Learns from an allocation of `bytes`, for which `taken_bytes` more are in use.
    fn learn(&self, bytes: u64, taken_bytes: u64) {
        let count = |counter: &AtomicU32| counter.fetch_add(1, Ordering::Relaxed) + 1;
        let kind = if taken_bytes == bytes || (bytes < SMALL_BYTES && taken_bytes == 0) {
            // What seemed to be rounded was another process's, or the first piece of a block.
            EXACT
        } else if taken_bytes == in_blocks(bytes) {
            if count(&self.seen) < ENOUGH {
                return;
            }
            BLOCKS
        } else if count(&self.misfits) >= MAX_MISFITS {
            EXACT
        } else {
            return;
        };
        // Another thread may have decided meanwhile.
        let _ = self.kind.compare_exchange(UNKNOWN, kind, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// An allocation whose memory is measured.
#[derive(Debug)]
pub(crate) struct WatchedAllocation {
    rounding: &'static Rounding,
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
        self.units.of(bytes).known(bytes).unwrap_or(bytes)
    }

    /// As [`Overhead::rounded`], before the allocation is made. `None` if the memory taken is not known, and should be
    /// looked at ([`Overhead::watch_allocation`]).
    #[inline(always)]
    pub(crate) fn expected_bytes(&'static self, device: &'static Device, bytes: u64) -> Option<u64> {
        if self.source.is_known() {
            self.measure_rounding_if_due(device, bytes);
            return Some(bytes);
        }
        self.units.of(bytes).known(bytes)
    }

    /// Called before an allocation of `bytes`. If earlier ones may have been rounded up by much, NVML's figure is read;
    /// ever more seldom, while nothing is found.
    fn measure_rounding_if_due(&'static self, device: &'static Device, bytes: u64) {
        let beyond_bytes = bytes % BLOCK_BYTES;
        if beyond_bytes == 0 {
            return;
        }
        let units = &self.units;
        let more_bytes = BLOCK_BYTES - beyond_bytes;
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
    pub(crate) fn watch_allocation(&'static self, shim: &Shim, bytes: u64) -> Option<WatchedAllocation> {
        if capture::any_open() {
            return None;
        }
        let quiet_epoch = shim.in_flight.quiet_epoch()?;
        let context = current_context();
        let before_bytes = gpu::used_by_driver(context)?;
        Some(WatchedAllocation { rounding: self.units.of(bytes), context, bytes, before_bytes, quiet_epoch })
    }

    /// Memory that the allocation has taken (bytes), as far as that is known.
    #[cold]
    pub(crate) fn taken_bytes(&self, shim: &Shim, watched: &WatchedAllocation) -> u64 {
        let after_bytes = gpu::used_by_driver(watched.context);
        if shim.in_flight.quiet_epoch() != Some(watched.quiet_epoch) {
            return watched.bytes;
        }
        if let Some(taken_bytes) = after_bytes.and_then(|bytes| bytes.checked_sub(watched.before_bytes)) {
            watched.rounding.learn(watched.bytes, taken_bytes);
        }
        watched.rounding.known(watched.bytes).unwrap_or(watched.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Number of allocations that were watched, on a driver that takes `take` for each.
    fn watched(rounding: &Rounding, sizes: &[u64], take: impl Fn(u64) -> u64) -> usize {
        let mut looks = 0;
        for &bytes in sizes {
            match rounding.known(bytes) {
                Some(taken) => assert_eq!(taken, take(bytes), "{bytes}"),
                None => {
                    looks += 1;
                    rounding.learn(bytes, take(bytes));
                }
            }
        }
        looks
    }

    #[test]
    fn rounding_is_believed_after_four_sizes_that_tell() {
        let sizes = [64 * MIB, 3 * MIB, 3 * MIB, 2 * MIB + 1, 5 * MIB, 2 * MIB, 7 * MIB + 9, 9 * MIB];
        assert_eq!(watched(&Rounding::default(), &sizes, in_blocks), 4);
        assert_eq!(watched(&Rounding::default(), &[1, 7, 9, 100, 11, 12], in_blocks), 4);
    }

    #[test]
    fn one_exact_allocation_disproves_rounding() {
        let sizes = [2 * MIB, 6 * MIB, 20 * MIB, 3 * MIB + 1, 3 * MIB + 7, MIB + 5];
        assert_eq!(watched(&Rounding::default(), &sizes, |bytes| bytes), 1);
        let beside = Rounding::default();
        // A neighbour's allocation of the same size at the same moment.
        (1..ENOUGH).for_each(|_| beside.learn(MIB, 2 * MIB));
        assert_eq!(beside.known(MIB), None);
        beside.learn(MIB, MIB);
        beside.learn(MIB, 2 * MIB);
        assert_eq!(beside.known(MIB), Some(MIB));
    }

    #[test]
    fn small_pieces_that_share_a_block_are_not_rounded() {
        let rounding = Rounding::default();
        rounding.learn(1, 2 * MIB);
        assert_eq!(rounding.known(1), None, "it may have been the first of a block");
        rounding.learn(1, 0);
        assert_eq!(rounding.known(1), Some(1));
    }

    #[test]
    fn beside_busy_neighbours_no_more_is_looked_at() {
        let rounding = Rounding::default();
        (0..MAX_MISFITS).for_each(|_| rounding.learn(3 * MIB, 480 * MIB));
        assert_eq!(rounding.known(3 * MIB), Some(3 * MIB));
    }
}
