//! Histogram of the lateness of launches after waits whose end was computed, with two bins per octave.

use crate::primitive::{AtomicU32, Ordering};

/// Number of bins of a histogram.
const BINS: usize = 30;
/// Bin 0 ends at 2 to the power of this (ns). The last but one ends at 16.8 ms.
const FIRST_BITS: u32 = 10;

/// The tenant's histogram on a device, in the layout of `usage`.
#[repr(C)]
#[derive(Debug)]
pub struct Lateness {
    counts: [AtomicU32; BINS],
}

impl Default for Lateness {
    fn default() -> Self {
        Self { counts: core::array::from_fn(|_| AtomicU32::new(0)) }
    }
}

impl Lateness {
    /// Counts a launch that proceeded `late_ns` after the computed end of its wait.
    pub fn count(&self, late_ns: u64) {
        if let Some(count) = self.counts.get(bin_of(late_ns)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Copy of a histogram at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatenessUse {
    counts: [u32; BINS],
}

impl LatenessUse {
    /// Creates a copy from the counts in the layout of `usage`.
    pub fn of_counts(count: impl Fn(usize) -> u32) -> Self {
        Self { counts: core::array::from_fn(count) }
    }

    /// Number of counted waits.
    pub fn waits(&self) -> u64 {
        self.counts.iter().copied().map(u64::from).sum()
    }

    /// Counts since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self::of_counts(|bin| {
            let [now, then] = [self, before].map(|of| of.counts.get(bin).copied().unwrap_or(0));
            now.wrapping_sub(then)
        })
    }

    /// Sum of both histograms.
    pub fn and(&self, other: &Self) -> Self {
        Self::of_counts(|bin| {
            let [one, two] = [self, other].map(|of| of.counts.get(bin).copied().unwrap_or(0));
            one.wrapping_add(two)
        })
    }

    /// The quantile of the lateness at `permille` thousandths (ns). It is the upper end of a bin, so up to half as much again as the
    /// true value. `None` without waits; `u64::MAX` beyond 16.8 ms.
    pub fn at_most_ns(&self, permille: u64) -> Option<u64> {
        let waits = self.waits();
        let wanted = (waits * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        let within = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        });
        within.filter(|_| waits > 0).map(end_of)
    }
}

/// Index of the bin of a lateness.
fn bin_of(late_ns: u64) -> usize {
    let Some(bits) = late_ns.checked_ilog2().filter(|bits| *bits >= FIRST_BITS) else {
        return 0;
    };
    let upper_half = (late_ns >> (bits - 1)) & 1;
    let octave = u64::from(bits - FIRST_BITS);
    usize::try_from(1 + 2 * octave + upper_half).map_or(BINS - 1, |bin| bin.min(BINS - 1))
}

/// End of a bin (ns).
fn end_of(bin: usize) -> u64 {
    if bin + 1 >= BINS {
        return u64::MAX;
    }
    let Some(above) = bin.checked_sub(1) else {
        return 1 << FIRST_BITS;
    };
    let (octave, half) = (above / 2, above as u64 % 2);
    (3 + half) << (FIRST_BITS as usize - 1 + octave)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(late_ns: &[u64]) -> LatenessUse {
        let lateness = Lateness::default();
        late_ns.iter().for_each(|late| lateness.count(*late));
        LatenessUse::of_counts(|bin| lateness.counts[bin].load(Ordering::Relaxed))
    }

    #[test]
    fn bins_follow_each_other_without_gaps() {
        for bin in 0..BINS - 1 {
            let end = end_of(bin);
            assert_eq!((bin_of(end - 1), bin_of(end)), (bin, bin + 1), "{end}");
        }
        assert_eq!((bin_of(0), bin_of(u64::MAX)), (0, BINS - 1));
        // The bins distinguish the goals from values that miss them.
        assert!((1..BINS).any(|bin| (60_000..=70_000).contains(&end_of(bin))));
        assert!((1..BINS).any(|bin| (190_000..=200_000).contains(&end_of(bin))));
    }

    #[test]
    fn a_quantile_is_at_least_the_truth_and_at_most_half_as_much_again() {
        let mut late: Vec<u64> = (1..=1000).map(|at| at * 1_700).collect();
        let of = seen(&late);
        late.sort_unstable();
        for permille in [1, 10, 500, 990, 1000] {
            let truth = late[usize::try_from(permille).unwrap() - 1];
            let told = of.at_most_ns(permille).unwrap();
            assert!(told >= truth && told <= truth.max(1024) * 3 / 2 + 1, "{permille}: {told}, {truth}");
        }
        assert_eq!(of.waits(), 1000);
        assert_eq!(seen(&[]).at_most_ns(500), None);
        assert_eq!(seen(&[1, 1, u64::MAX]).at_most_ns(990), Some(u64::MAX));
    }

    #[test]
    fn what_came_before_does_not_count() {
        let (before, after) = (seen(&[5_000_000]), seen(&[5_000_000, 2_000, 2_100]));
        let since = after.since(&before);
        assert_eq!((since.waits(), since.at_most_ns(1000)), (2, Some(3072)));
        assert_eq!(since.and(&before), after);
    }
}
