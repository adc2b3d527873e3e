//! The arithmetic of sharing one GPU among containers: who may use how much, and what elapsed time is worth while several
//! are busy. Pure: the arbiter (and later the manager) reads the containers' usage, asks here, and writes their limits.
//!
//! While contexts take time slices, the time that a container measures holds its neighbours' slices too. So each bin in
//! which `n` containers were busy counts `1/n` for each of them: the busy maps ([`crate::busy`]) say which bins those
//! are, and [`Scale`] follows the average over the last 100 ms. Every figure read from a container is hostile: it can only
//! move that container's own scale within its bounds, and a neighbour's by claiming to be busy.

mod throttle;

use crate::busy;
use crate::limits::Policy;

pub use throttle::{Throttle, Verdict, View};

/// How often the controller runs while containers compete (ns).
pub const CONTENDED_NS: u64 = 10_000_000;
/// How often it runs else (ns).
pub const QUIET_NS: u64 = 100_000_000;
/// How far back it looks (ns).
pub const LOOK_BACK_NS: u64 = 100_000_000;
/// Without a beat of the arbiter for this long, containers go by themselves: elapsed time is charged as it is (ns).
pub const STALE_BEAT_NS: u64 = 1_000_000_000;

/// Words of a busy map that cover [`LOOK_BACK_NS`] and the word of the present.
pub const LOOK_BACK_WORDS: u64 = LOOK_BACK_NS / (busy::BIN_NS * busy::BINS_PER_WORD) + 1;

/// The number of the busy map's word in which `now_ns` lies (counted since the clock's zero).
#[must_use]
pub const fn word_at(now_ns: u64) -> u64 {
    now_ns / (busy::BIN_NS * busy::BINS_PER_WORD)
}

/// How one container's busy time met the others'.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overlap {
    /// Bins in which it was busy.
    pub bins: u64,
    /// The sum over these bins of its part, in thousandths of a bin.
    pub parts_permille: u64,
    /// Bins in which others were busy as well.
    pub shared: u64,
}

impl Overlap {
    /// What a busy bin was worth on average (thousandths); 1000 if it was never busy.
    #[must_use]
    pub fn ratio_permille(self) -> u32 {
        let ratio = self.parts_permille.checked_div(self.bins).unwrap_or(1000);
        u32::try_from(ratio).unwrap_or(1000).min(1000)
    }
}

/// Compares the busy bins of all containers of one GPU over the same span: `maps[i]` holds the bins of container `i`, word
/// by word (48 bins each, see [`busy::bins_of`]).
#[must_use]
pub fn overlaps(maps: &[Vec<u64>]) -> Vec<Overlap> {
    let mut overlaps = vec![Overlap::default(); maps.len()];
    let length = maps.iter().map(Vec::len).max().unwrap_or(0);
    for word in 0..length {
        let words: Vec<u64> = maps
            .iter()
            .map(|map| map.get(word).copied().unwrap_or(0))
            .collect();
        let any = words.iter().fold(0, |all, word| all | word);
        if any == 0 {
            continue;
        }
        for bin in 0..busy::BINS_PER_WORD {
            let busy = words.iter().filter(|word| *word >> bin & 1 == 1).count() as u64;
            if busy == 0 {
                continue;
            }
            for (overlap, word) in overlaps.iter_mut().zip(&words) {
                if word >> bin & 1 == 1 {
                    overlap.bins += 1;
                    overlap.parts_permille += 1000 / busy;
                    overlap.shared += u64::from(busy > 1);
                }
            }
        }
    }
    overlaps
}

/// What measured time is worth for one container: follows [`Overlap::ratio_permille`] by half the difference each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    thousandths_of_permille: u32,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            thousandths_of_permille: 1_000_000,
        }
    }
}

impl Scale {
    /// Takes the last look into account. What a container is worth that was not busy then stays as it was: a small share
    /// is used in bursts, and each must not begin as if it were alone.
    pub fn follow(&mut self, overlap: Overlap) {
        if overlap.bins > 0 {
            let target = overlap.ratio_permille().saturating_mul(1000);
            self.thousandths_of_permille = u32::midpoint(self.thousandths_of_permille, target);
        }
    }

    /// For [`crate::account::Pace::scale_permille`], 1 to 1000. Within one percent of it, it is the whole.
    #[must_use]
    pub fn permille(self) -> u32 {
        let permille = (self.thousandths_of_permille + 500) / 1000;
        if permille >= 990 { 1000 } else { permille.max(1) }
    }
}

/// What the controller knows of one container on one GPU.
#[derive(Debug, Clone, Copy)]
pub struct Contender {
    /// How it competes.
    pub policy: Policy,
    /// Its share that is always there (thousandths).
    pub guarantee_permille: u32,
    /// Its share that is never exceeded (thousandths).
    pub cap_permille: u32,
    /// Its weight when idle time is divided.
    pub weight: u32,
    /// It was held, in debt or busy of late.
    pub in_demand: bool,
}

/// The rate of each container (thousandths of the GPU).
///
/// `fixed`: its cap, always. `burst`: its guarantee, and by weight what nobody demands, up to its cap. `best-effort`: by
/// weight what is left after those. One that does not demand anything keeps what it can start with at once: its guarantee
/// (`burst`) or a token (`best-effort`).
#[must_use]
pub fn rates(contenders: &[Contender]) -> Vec<u32> {
    let promised = |one: &Contender| match one.policy {
        Policy::Fixed => one.cap_permille,
        Policy::Burst => one.guarantee_permille.min(one.cap_permille),
        Policy::BestEffort => 0,
    };
    let demanded: u32 = contenders.iter().filter(|one| one.in_demand).map(promised).sum();
    let mut left = 1000_u32.saturating_sub(demanded);
    let mut rates: Vec<u32> = contenders.iter().map(promised).collect();
    for policy in [Policy::Burst, Policy::BestEffort] {
        let takes = |one: &Contender| one.policy == policy && one.in_demand;
        left -= share_out(contenders, &mut rates, left, takes);
    }
    for (rate, one) in rates.iter_mut().zip(contenders) {
        // A rate of nothing would hold a container for ever.
        *rate = (*rate).clamp(1, one.cap_permille.max(1));
    }
    rates
}

/// Divides `left` by weight among those who take, none beyond its cap. Returns what was given out.
fn share_out(
    contenders: &[Contender],
    rates: &mut [u32],
    left: u32,
    takes: impl Fn(&Contender) -> bool,
) -> u32 {
    let mut given = 0;
    loop {
        let open = |(rate, one): &(&u32, &Contender)| takes(one) && **rate < one.cap_permille;
        let weights: u64 = rates
            .iter()
            .zip(contenders)
            .filter(open)
            .map(|(_, one)| u64::from(one.weight))
            .sum();
        let rest = left - given;
        if weights == 0 || rest == 0 {
            return given;
        }
        let mut handed = 0;
        for (rate, one) in rates.iter_mut().zip(contenders) {
            if takes(one) && *rate < one.cap_permille {
                let part = u64::from(rest) * u64::from(one.weight) / weights;
                // At least one, or the last few thousandths would go round for ever.
                let part = u32::try_from(part)
                    .unwrap_or(0)
                    .max(1)
                    .min(rest - handed)
                    .min(one.cap_permille - *rate);
                *rate += part;
                handed += part;
            }
        }
        given += handed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contender(policy: Policy, guarantee: u32, cap: u32, in_demand: bool) -> Contender {
        Contender {
            policy,
            guarantee_permille: guarantee,
            cap_permille: cap,
            weight: guarantee.max(1),
            in_demand,
        }
    }

    #[test]
    fn bins_are_divided_among_the_busy() {
        let found = overlaps(&[vec![0b1111], vec![0b0011], vec![0b0001]]);
        assert_eq!(
            found[0],
            Overlap {
                bins: 4,
                parts_permille: 333 + 500 + 1000 + 1000,
                shared: 2
            }
        );
        assert_eq!(found[1].ratio_permille(), (333 + 500) / 2);
        assert_eq!(found[2].ratio_permille(), 333);
        assert_eq!(overlaps(&[vec![0], vec![]])[1].ratio_permille(), 1000);
    }

    #[test]
    fn alone_the_scale_is_whole_and_it_follows_a_neighbour_within_steps() {
        let mut scale = Scale::default();
        let alone = Overlap {
            bins: 100,
            parts_permille: 100_000,
            shared: 0,
        };
        scale.follow(alone);
        assert_eq!(scale.permille(), 1000);
        for _ in 0..10 {
            scale.follow(Overlap {
                bins: 100,
                parts_permille: 50_000,
                shared: 100,
            });
        }
        assert!((500..=501).contains(&scale.permille()));
        scale.follow(Overlap::default());
        assert!((500..=501).contains(&scale.permille()));
        for _ in 0..10 {
            scale.follow(alone);
        }
        assert_eq!(scale.permille(), 1000);
    }

    #[test]
    fn policies() {
        let fixed = contender(Policy::Fixed, 300, 300, true);
        let idle = contender(Policy::Fixed, 300, 300, false);
        let burst = contender(Policy::Burst, 200, 800, true);
        let effort = contender(Policy::BestEffort, 0, 1000, true);
        assert_eq!(rates(&[fixed, burst]), [300, 700]);
        assert_eq!(rates(&[idle, burst]), [300, 800]);
        assert_eq!(rates(&[fixed, burst, effort]), [300, 700, 1]);
        assert_eq!(rates(&[idle, burst, effort]), [300, 800, 200]);
        assert_eq!(rates(&[fixed, effort]), [300, 700]);
        let other = contender(Policy::Burst, 100, 1000, true);
        assert_eq!(rates(&[burst, other]), [667, 333]);
    }

    fn any_contender() -> impl Strategy<Value = Contender> {
        (
            0..3_usize,
            0..=1000_u32,
            1..=1000_u32,
            1..=10_000_u32,
            any::<bool>(),
        )
            .prop_map(|(policy, guarantee, cap, weight, in_demand)| Contender {
                policy: Policy::ALL[policy],
                guarantee_permille: guarantee.min(cap),
                cap_permille: cap,
                weight,
                in_demand,
            })
    }

    proptest! {
        /// Nobody gets more than its cap or less than its promise, and what is not promised is not given out twice.
        #[test]
        fn rates_keep_caps_and_promises(contenders in prop::collection::vec(any_contender(), 0..12)) {
            let rates = rates(&contenders);
            for (rate, one) in rates.iter().zip(&contenders) {
                prop_assert!((1..=one.cap_permille).contains(rate));
                match one.policy {
                    Policy::Fixed => prop_assert_eq!(*rate, one.cap_permille),
                    Policy::Burst => prop_assert!(*rate >= one.guarantee_permille),
                    Policy::BestEffort => {}
                }
            }
            let demanded = |pick: fn(&Contender) -> u32| -> u32 {
                contenders.iter().filter(|one| one.in_demand).map(pick).sum()
            };
            let promised = demanded(|one| match one.policy {
                Policy::Fixed => one.cap_permille,
                Policy::Burst => one.guarantee_permille,
                Policy::BestEffort => 0,
            });
            let total: u32 = rates.iter().zip(&contenders).filter(|(_, one)| one.in_demand).map(|(rate, _)| rate).sum();
            prop_assert!(total <= promised.max(1000) + u32::try_from(contenders.len()).unwrap());
        }

        /// The parts of all containers never exceed the time in which any of them was busy.
        #[test]
        fn parts_do_not_exceed_the_time(maps in prop::collection::vec(prop::collection::vec(0_u64..1 << 48, 0..8), 0..6)) {
            let found = overlaps(&maps);
            let longest = maps.iter().map(Vec::len).max().unwrap_or(0);
            let busy: u32 = (0..longest)
                .map(|word| maps.iter().filter_map(|map| map.get(word)).fold(0, |all, bins| all | bins).count_ones())
                .sum();
            let parts: u64 = found.iter().map(|overlap| overlap.parts_permille).sum();
            prop_assert!(parts <= u64::from(busy) * 1000);
        }
    }
}
