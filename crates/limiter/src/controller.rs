//! The division of a GPU among tenants: the rate of each, and the factor of measured time while several are busy. The arbiter
//! reads the tenants' usage, computes both here, and writes their limits.
//!
//! While contexts take time slices, the time that a tenant measures includes the slices of its neighbours. So a bin in which `n`
//! tenants were busy counts `1/n` for each of them. The busy maps ([`crate::busy`]) show those bins, and [`Scale`] is the
//! average over the last 100 ms. Every figure of a tenant may be forged. It can only change that tenant's own scale within
//! its bounds, and a neighbour's scale by pretending to be busy.

mod demand;
mod rates;
mod sets;
mod settlement;
mod throttle;
mod turns;

use crate::{Refinement, busy};

pub use demand::{Activity, RECENT_NS};
pub use rates::{Contender, FLOOR_PERMILLE, rates};
pub use settlement::{Measured, Settlement};
pub use throttle::{Throttle, Verdict, View, WINDOW_NS, WINDOW_YIELDING_NS};
pub use turns::{Got, SLICE_NS, Turns};

/// Interval of the controller while tenants compete (ns).
pub const CONTENDED_NS: u64 = 10_000_000;
/// Interval of the controller otherwise (ns).
pub const QUIET_NS: u64 = 100_000_000;
/// Time of the past that the controller evaluates (ns).
pub const LOOK_BACK_NS: u64 = 100_000_000;
/// Age of the arbiter's beat from which on tenants proceed without it (ns): elapsed time is then charged unscaled.
pub const STALE_BEAT_NS: u64 = 1_000_000_000;

/// Number of words of a busy map that cover [`LOOK_BACK_NS`] and the present.
pub const LOOK_BACK_WORDS: u64 = LOOK_BACK_NS / (busy::BIN_NS * busy::BINS_PER_WORD) + 1;

/// Number of the busy map's word for `now_ns` (counted since the clock's zero).
pub const fn word_at(now_ns: u64) -> u64 {
    now_ns / (busy::BIN_NS * busy::BINS_PER_WORD)
}

/// Overlap of a tenant's busy time with that of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Number of bins in which the tenant was busy.
    pub bins: u64,
    /// Sum of the tenant's parts of these bins (thousandths of a bin).
    pub parts_permille: u64,
    /// Number of these bins in which others were busy too.
    pub shared: u64,
}

impl Overlap {
    /// The tenant's average part of a busy bin (thousandths); 1000 if it was never busy.
    pub fn ratio_permille(self) -> u32 {
        let ratio = self.parts_permille.checked_div(self.bins).unwrap_or(1000);
        u32::try_from(ratio).unwrap_or(1000).min(1000)
    }
}

/// Average number of a tenant's contexts that have work while it is busy. The GPU's time slices go round the contexts, not the
/// tenants. It is a moving average of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contexts {
    permille: u64,
}

impl Default for Contexts {
    fn default() -> Self {
        Self { permille: ONE_CONTEXT }
    }
}

impl Contexts {
    /// Adds a sample in which `count` processes had work; 0 is ignored, as the tenant was idle then. Processes whose work waits for
    /// its first slice are not in the busy map. So the sample is bounded by `elapsed_ns`, the sum of the measured times of all
    /// contexts since the last sample, over `busy_ns`, the time in which there was work.
    pub fn follow(&mut self, count: u64, elapsed_ns: u64, busy_ns: u64) {
        if !Refinement::ContextCount.is_used() {
            return;
        }
        let Some(together) = elapsed_ns.saturating_mul(1000).checked_div(busy_ns) else {
            return;
        };
        if count > 0 {
            let seen = count.saturating_mul(1000).min(together.max(ONE_CONTEXT));
            self.permille = (self.permille * 7 + seen) / 8;
        }
    }
}

/// Number of contexts of a tenant with a single context (thousandths).
const ONE_CONTEXT: u64 = 1000;

/// A tenant's busy time.
#[derive(Debug, Clone, Default)]
pub struct Busy {
    /// Bins, word by word (48 bins each, see [`busy::bins_of`]).
    pub map: Vec<u64>,
    /// Number of contexts that share the time slices.
    pub contexts: Contexts,
    /// Whether it has several processes, and so causes switches between its own contexts.
    pub has_several_processes: bool,
}

/// Compares the busy bins of all tenants of a GPU over the same span. Tenants that are busy in the same bin get a part of it in
/// proportion to their contexts. This is the immediate estimate: the exact parts depend on the order of the slices ([`Turns`]).
pub fn overlaps(tenants: &[Busy]) -> Vec<Overlap> {
    let mut overlaps = vec![Overlap::default(); tenants.len()];
    sets::for_each_run(tenants, |set, bins| {
        let all = sets::sum_of_contexts(tenants, set);
        for (one, overlap) in sets::members(set, &mut overlaps) {
            overlap.bins += bins;
            overlap.parts_permille += bins * 1000 * sets::contexts_of(tenants, one) / all;
            overlap.shared += if set.count_ones() > 1 { bins } else { 0 };
        }
    });
    overlaps
}

/// Factor of a tenant's measured time. Each step moves it by half the difference to [`Overlap::ratio_permille`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    thousandths_of_permille: u32,
}

impl Default for Scale {
    fn default() -> Self {
        Self { thousandths_of_permille: 1_000_000 }
    }
}

impl Scale {
    /// Continues the factor of an earlier arbiter (thousandths).
    pub fn from_permille(permille: u32) -> Self {
        Self { thousandths_of_permille: permille.clamp(1, 1000) * 1000 }
    }

    /// Adds a sample. The factor of an idle tenant stays: a small share is used in bursts, and a burst must not begin as if the
    /// tenant were alone.
    pub fn follow(&mut self, overlap: Overlap) {
        if overlap.bins > 0 {
            let target = overlap.ratio_permille().saturating_mul(1000);
            self.thousandths_of_permille = u32::midpoint(self.thousandths_of_permille, target);
        }
    }

    /// Value of [`crate::token_bucket::Pace::scale_permille`], 1 to 1000. Values within one percent of 1000 are 1000.
    pub fn permille(self) -> u32 {
        let permille = (self.thousandths_of_permille + 500) / 1000;
        if permille >= 990 { 1000 } else { permille.max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A word with all bins busy.
    const BINS: u64 = (1 << busy::BINS_PER_WORD) - 1;

    /// Tenants with a single context each.
    fn busy(maps: &[&[u64]]) -> Vec<Busy> {
        let one = |map: &&[u64]| Busy { map: map.to_vec(), ..Busy::default() };
        maps.iter().map(one).collect()
    }

    #[test]
    fn bins_are_divided_among_the_busy() {
        let found = overlaps(&busy(&[&[0b1111], &[0b0011], &[0b0001]]));
        assert_eq!(found[0], Overlap { bins: 4, parts_permille: 333 + 500 + 1000 + 1000, shared: 2 });
        assert_eq!(found[1].ratio_permille(), (333 + 500) / 2);
        assert_eq!(found[2].ratio_permille(), 333);
        assert_eq!(overlaps(&busy(&[&[0], &[]]))[1].ratio_permille(), 1000);
    }

    #[test]
    fn time_goes_round_the_contexts_not_the_tenants() {
        let mut tenants = busy(&[&[BINS], &[BINS]]);
        (0..100).for_each(|_| tenants[0].contexts.follow(3, 3, 1));
        // A sample while idle is ignored.
        tenants[0].contexts.follow(0, 1, 1);
        let found = overlaps(&tenants);
        assert!((745..=750).contains(&found[0].ratio_permille()), "{found:?}");
        assert!((250..=255).contains(&found[1].ratio_permille()), "{found:?}");
    }

    #[test]
    fn work_that_waits_for_its_first_slice_is_no_context_yet() {
        // Four processes have work, but the contexts overlap only for a fifth of the time.
        let mut contexts = Contexts::default();
        (0..100).for_each(|_| contexts.follow(4, 1200, 1000));
        assert!((1190..=1200).contains(&contexts.permille), "{contexts:?}");
        // Streams of a process are a single context. A sample without measured time is ignored.
        (0..100).for_each(|_| contexts.follow(1, 4000, 1000));
        let one = contexts;
        contexts.follow(4, 0, 0);
        assert_eq!((one.permille / 10, contexts), (100, one));
    }

    #[test]
    fn alone_the_scale_is_whole_and_it_follows_a_neighbour_within_steps() {
        let mut scale = Scale::default();
        let alone = Overlap { bins: 100, parts_permille: 100_000, shared: 0 };
        scale.follow(alone);
        assert_eq!(scale.permille(), 1000);
        for _ in 0..10 {
            scale.follow(Overlap { bins: 100, parts_permille: 50_000, shared: 100 });
        }
        assert!((500..=501).contains(&scale.permille()));
        scale.follow(Overlap::default());
        assert!((500..=501).contains(&scale.permille()));
        for _ in 0..10 {
            scale.follow(alone);
        }
        assert_eq!(scale.permille(), 1000);
    }

    proptest! {
        /// The sum of all tenants' parts never exceeds the time in which any of them was busy.
        #[test]
        fn parts_do_not_exceed_the_time(
            maps in prop::collection::vec(prop::collection::vec(0_u64..1 << 48, 0..8), 0..6),
            contexts in prop::collection::vec(1_u64..600_000, 6),
        ) {
            let tenants: Vec<Busy> = maps
                .iter()
                .zip(contexts)
                .map(|(map, permille)| Busy { map: map.clone(), contexts: Contexts { permille }, ..Busy::default() })
                .collect();
            let found = overlaps(&tenants);
            let longest = maps.iter().map(Vec::len).max().unwrap_or(0);
            let busy: u32 = (0..longest)
                .map(|word| maps.iter().filter_map(|map| map.get(word)).fold(0, |all, bins| all | bins).count_ones())
                .sum();
            let parts: u64 = found.iter().map(|overlap| overlap.parts_permille).sum();
            prop_assert!(parts <= u64::from(busy) * 1000);
        }
    }
}
