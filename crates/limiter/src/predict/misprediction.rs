//! Recent mispredictions, and the bound on work in flight that follows from them: a launch cannot be recalled if it takes longer
//! than predicted.

use crate::Refinement;
use core::sync::atomic::{AtomicU64, Ordering};

/// Least window while predictions are good (ns). A smaller one would cost wake-ups.
const LEAST_NS: u64 = 160_000;
/// Largest overrun of work in flight (ns), for a share whose refill meanwhile is negligible.
const OVERRUN_NS: u64 = 20_000_000;
/// Overrun of several launches together (ns) from which on one of them is taken to have had all of it: which one is not known, and
/// as many of its kind as the window has room for may follow.
const OF_ONE_NS: u64 = OVERRUN_NS / 2;
/// Unused GPU time from which on the window grows, and at which it is largest (ns). The first is above the swing of a share that
/// is used up; the second is the default burst.
const UNUSED_NS: (u64, u64) = (1_000_000, 5_000_000);
/// GPU time in which a misprediction decays to about a third (ns).
const FADE_NS: u64 = 3_000_000_000;
/// Factor from which on a prediction counts as far off.
const FAR: u64 = 16;
/// Number of fraction bits of the factor.
const BITS: u32 = 10;

/// Largest recent ratio of measured to predicted time.
#[derive(Debug)]
pub struct Misprediction {
    /// Ratio in fixed point with [`BITS`] fraction bits; 0 if nothing was measured.
    factor: AtomicU64,
}

impl Default for Misprediction {
    fn default() -> Self {
        Self::new()
    }
}

impl Misprediction {
    /// Creates a state without mispredictions.
    pub const fn new() -> Self {
        Self { factor: AtomicU64::new(0) }
    }

    /// Notes that `count` launches predicted at `predicted_ns` together took `took_ns`.
    pub fn note(&self, predicted_ns: u64, count: u32, took_ns: u64) {
        let before = self.factor.load(Ordering::Relaxed);
        let fades = u128::from(before) * u128::from(took_ns.min(FADE_NS)) / u128::from(FADE_NS);
        let faded = before.saturating_sub(u64::try_from(fades).unwrap_or(u64::MAX));
        let predicted_ns = if took_ns.saturating_sub(predicted_ns) >= OF_ONE_NS {
            predicted_ns / u64::from(count).max(1)
        } else {
            predicted_ns
        };
        let factor = (took_ns << BITS) / predicted_ns.max(1);
        self.factor.store(factor.max(faded), Ordering::Relaxed);
    }

    /// Notes a measurement beside neighbours. Short work may have waited for their slices, so what took less than [`OVERRUN_NS`]
    /// counts as expected (kernels of 10 us seemed to take 5 ms so beside three neighbours), and no launch is taken to have had the
    /// overrun of several.
    pub fn note_beside(&self, predicted_ns: u64, took_ns: u64) {
        let is_sure = took_ns >= OVERRUN_NS;
        self.note(predicted_ns, 1, if is_sure { took_ns } else { took_ns.min(predicted_ns) });
    }

    /// Whether a recent prediction was far off.
    pub fn is_recent(&self) -> bool {
        self.factor.load(Ordering::Relaxed) >= FAR << BITS
    }

    /// Most predicted work in flight (ns) of a tenant alone on a GPU with the rate `rate_permille`: its share of `whole_ns`. It is less
    /// after mispredictions, and more if the tenant does not use up its share, so that `unused_ns` of tokens are left.
    pub fn window_ns(&self, whole_ns: u64, rate_permille: u32, unused_ns: u64) -> u64 {
        let rate = u64::from(rate_permille.min(1000));
        // The refill goes on during an overrun, so only the rest of the time exceeds the share.
        let overrun_ns = OVERRUN_NS * 1000 / (1000 - rate).max(1);
        let shared_ns = (whole_ns * rate / 1000).max(LEAST_NS.min(whole_ns));
        let least_ns = shared_ns.min(self.that_may_take_ns(overrun_ns));
        let (from_ns, to_ns) = UNUSED_NS;
        let behind_ns = unused_ns.clamp(from_ns, to_ns) - from_ns;
        least_ns + (2 * whole_ns - least_ns) * behind_ns / (to_ns - from_ns)
    }

    /// How much work may be in flight (ns, as predicted) beside neighbours: `whole_ns`, less if predictions were far off of
    /// late. Work in flight has equal slices, however small the tenant's share, and a neighbour saves only a part of what it
    /// loses so.
    pub fn window_beside_ns(&self, whole_ns: u64) -> u64 {
        whole_ns.min(self.that_may_take_ns(OVERRUN_NS))
    }

    /// Predicted work that may turn out to take `ns` (ns).
    fn that_may_take_ns(&self, ns: u64) -> u64 {
        let factor = if Refinement::Misprediction.is_used() {
            self.factor.load(Ordering::Relaxed).max(1 << BITS)
        } else {
            1 << BITS
        };
        (ns << BITS) / factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_share_of_the_window_and_more_where_that_does_not_fill_it() {
        let none = Misprediction::new();
        assert!(!none.is_recent());
        for (permille, window_ns) in [(50, 160_000), (150, 300_000), (500, MS), (1000, 2 * MS)] {
            assert_eq!(none.window_ns(2 * MS, permille, 0), window_ns);
            assert_eq!(none.window_ns(2 * MS, permille, MS), window_ns);
            let behind_ns = none.window_ns(2 * MS, permille, 2 * MS);
            assert!((window_ns + 500_000..4 * MS).contains(&behind_ns), "{behind_ns}");
            assert_eq!(none.window_ns(2 * MS, permille, u64::MAX), 4 * MS);
        }
    }

    #[test]
    fn work_that_was_mispredicted_is_held_to_what_it_may_take() {
        let misprediction = Misprediction::new();
        misprediction.note(50_000, 1, 20 * MS);
        assert!(misprediction.is_recent());
        // A kernel of 50 us, or as many as the refill covers while they run.
        for (permille, most_ns) in [(50, 53_000), (500, 100_000), (900, 500_000)] {
            let window_ns = misprediction.window_ns(2 * MS, permille, 0);
            assert!((most_ns * 9 / 10..=most_ns).contains(&window_ns), "{window_ns}");
            assert!(misprediction.window_ns(2 * MS, permille, 5 * MS) == 4 * MS);
        }
        // A share of the whole GPU has no overrun.
        assert_eq!(misprediction.window_ns(2 * MS, 1000, 0), 2 * MS);
    }

    #[test]
    fn beside_neighbours_only_what_was_mispredicted_is_held_back() {
        let misprediction = Misprediction::new();
        assert_eq!(misprediction.window_beside_ns(4 * MS), 4 * MS);
        misprediction.note_beside(50_000, 19 * MS);
        assert_eq!(misprediction.window_beside_ns(4 * MS), 4 * MS);
        misprediction.note_beside(50_000, 20 * MS);
        assert_eq!(misprediction.window_beside_ns(4 * MS), 50_000);
    }

    #[test]
    fn one_of_several_launches_may_have_taken_all() {
        let of_seven = Misprediction::new();
        of_seven.note(7 * 50_000, 7, 20 * MS);
        assert!(of_seven.window_ns(2 * MS, 300, 0) < 100_000, "one launch at a time");
        // Many that took a little longer each, and a long one as predicted, are no reason.
        for (predicted_ns, count, took_ns) in [(MS, 100, 4 * MS), (30 * MS, 30, 31 * MS)] {
            let misprediction = Misprediction::new();
            misprediction.note(predicted_ns, count, took_ns);
            assert_eq!(misprediction.window_ns(2 * MS, 300, 0), 600_000);
        }
    }

    #[test]
    fn mispredictions_fade_and_expected_work_is_none() {
        let misprediction = Misprediction::new();
        misprediction.note(50_000, 1, 20 * MS);
        let after = |seconds: u64| {
            for _ in 0..1000 * seconds {
                misprediction.note(MS, 1, MS);
            }
            misprediction.window_ns(2 * MS, 500, 0)
        };
        let (soon_ns, later_ns) = (after(1), after(10));
        assert!(soon_ns < 200_000, "{soon_ns}");
        assert_eq!(later_ns, MS);
        assert!(!misprediction.is_recent());
        misprediction.note(u64::MAX >> 12, 1, u64::MAX >> 12);
        misprediction.note(0, 1, 0);
        assert!(!misprediction.is_recent());
    }
}
