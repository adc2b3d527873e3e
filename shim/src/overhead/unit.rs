//! What the driver takes of the GPU for an allocation: what is asked for, or that rounded up to a unit. The unit is not
//! documented; blocks of 2 MiB are likely. It is learnt from the application's own allocations, as far as their sizes tell
//! units apart, by what the driver says is in use before and after (`cuMemGetInfo`). Until then each such allocation is
//! counted as what it was seen to take.
//!
//! Small allocations may share a block: a piece for which nothing more is in use shows that.

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use super::{Overhead, gpu};
use crate::capture;
use crate::devices::current_context;

/// The largest unit that is believed, as a power of two.
const MOST: u32 = 25;
/// Below this, allocations may share a block (bytes).
const SMALL_BYTES: u64 = 1 << 20;
/// So many allocations that fit no unit, and no more is looked at: neighbours take and give all the time.
const MOST_MISFITS: u32 = 64;

/// What is known of the units: of small allocations, and of others.
#[derive(Debug, Default)]
pub(super) struct Units {
    small: Mutex<Range>,
    large: Mutex<Range>,
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
    fn range(&self, bytes: u64) -> &Mutex<Range> {
        if bytes < SMALL_BYTES {
            &self.small
        } else {
            &self.large
        }
    }
}

fn rounded(bytes: u64, power: u32) -> u64 {
    bytes.checked_next_multiple_of(1 << power).unwrap_or(bytes)
}

impl Range {
    /// What so many bytes take, if that is known.
    fn known(&self, bytes: u64) -> Option<u64> {
        let taken = rounded(bytes, self.low);
        // One look at a small piece shows a block, which the next may share.
        let is_seen = self.seen > 1 || bytes >= SMALL_BYTES;
        let is_known = is_seen && taken == rounded(bytes, self.high) || self.misfits >= MOST_MISFITS;
        is_known.then_some(taken)
    }

    /// `bytes` were asked for, and `taken_bytes` more are in use. Whether that goes together with what was seen before.
    fn learn(&mut self, bytes: u64, taken_bytes: u64) -> bool {
        if bytes < SMALL_BYTES && taken_bytes == 0 {
            // It shares a block: nothing is rounded.
            (self.low, self.high, self.seen) = (0, 0, 2);
            return true;
        }
        let fits = |power: &u32| rounded(bytes, *power) == taken_bytes;
        let low = (self.low..=self.high).find(fits);
        let high = (self.low..=self.high).rfind(fits);
        let Some((low, high)) = low.zip(high) else {
            self.misfits += 1;
            return false;
        };
        (self.low, self.high, self.seen) = (low, high, self.seen.saturating_add(1));
        true
    }
}

/// An allocation that is looked at.
#[derive(Debug)]
pub(crate) struct Look {
    range: &'static Mutex<Range>,
    context: CUcontext,
    bytes: u64,
    before_bytes: u64,
    still: u64,
}

impl Overhead {
    /// What an allocation of so many bytes takes (bytes), as far as that is known.
    pub(crate) fn rounded(&self, bytes: u64) -> u64 {
        self.units.range(bytes).lock().known(bytes).unwrap_or(bytes)
    }

    /// As [`Overhead::rounded`]; and where that is not known, a look at the GPU before the allocation.
    pub(crate) fn expect_allocation(&'static self, bytes: u64) -> (u64, Option<Look>) {
        let range = self.units.range(bytes);
        let known = range.lock().known(bytes);
        match known {
            Some(taken_bytes) => (taken_bytes, None),
            None => (bytes, self.look_before(range, bytes)),
        }
    }

    /// A look at the GPU; nothing while other threads move memory, or a capture forbids the question.
    #[cold]
    fn look_before(&self, range: &'static Mutex<Range>, bytes: u64) -> Option<Look> {
        if capture::any_open() {
            return None;
        }
        let still = self.moving.still()?;
        let context = current_context();
        let before_bytes = gpu::used_by_driver(context)?;
        Some(Look {
            range,
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
        if self.moving.still() != Some(look.still) {
            return look.bytes;
        }
        let taken_bytes = after_bytes.and_then(|bytes| bytes.checked_sub(look.before_bytes));
        match taken_bytes {
            Some(taken_bytes) if look.range.lock().learn(look.bytes, taken_bytes) => {
                taken_bytes.max(look.bytes)
            }
            _ => look.bytes,
        }
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
                    assert!(range.learn(bytes, take(bytes)));
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
        assert_eq!(looks(&mut range, &sizes, rounds), 2);
        assert_eq!((range.low, range.high), (21, 21));
    }

    #[test]
    fn a_driver_that_does_not_round_is_soon_believed() {
        let mut range = Range::default();
        let sizes = [2 * MIB, 6 * MIB, 20 * MIB, 3 * MIB + 1, 3 * MIB + 7, MIB + 5];
        assert_eq!(looks(&mut range, &sizes, |bytes| bytes), 2);
    }

    #[test]
    fn small_pieces_that_share_a_block_are_not_rounded() {
        let mut range = Range::default();
        assert_eq!(range.known(1), None);
        assert!(range.learn(1, 2 * MIB));
        assert_eq!(range.known(1), None, "it may have been the first of a block");
        assert!(range.learn(1, 0));
        assert_eq!(range.known(1), Some(1));
        let mut other = Range::default();
        assert_eq!(looks(&mut other, &[1, 7, 9, 100], |_| 2 * MIB), 2);
    }

    #[test]
    fn what_a_neighbour_took_fits_no_unit_and_is_not_believed() {
        let mut range = Range::default();
        assert!(!range.learn(3 * MIB, 480 * MIB));
        assert_eq!(range.known(3 * MIB), None);
        (1..MOST_MISFITS).for_each(|_| assert!(!range.learn(3 * MIB, 480 * MIB)));
        assert_eq!(range.known(3 * MIB), Some(3 * MIB), "no more is looked at");
    }
}
