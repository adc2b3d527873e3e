//! Launches beside a kernel that runs on and on. It may wait for the very threads that are held on its bucket, so they are
//! not held until it ends: they go at the container's rate, as if it were not there.

use super::{Pace, TokenBucket};
use crate::primitive::Ordering;

/// What was promised to others is believed so far ahead (ns): one damaged word is not to hold anybody for ever.
const AHEAD_MAX_NS: u64 = 10_000_000_000;

impl TokenBucket {
    /// When a launch of `cost_ns` may go beside such a kernel (`CLOCK_MONOTONIC`, ns): once its cost was earned since the one
    /// before it went, in any of the container's processes.
    pub fn beside(&self, pace: &Pace, cost_ns: u64, now_ns: u64) -> u64 {
        let earned_in_ns = cost_ns.saturating_mul(1000) / u64::from(pace.rate_permille.max(1));
        let at = |before_ns: u64| {
            before_ns
                .clamp(now_ns, now_ns.saturating_add(AHEAD_MAX_NS))
                .saturating_add(earned_in_ns)
        };
        let mut before_ns = self.beside_ns.load(Ordering::Relaxed);
        loop {
            let at_ns = at(before_ns);
            match self
                .beside_ns
                .compare_exchange_weak(before_ns, at_ns, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return at_ns,
                Err(now) => before_ns = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pace(rate_permille: u32) -> Pace {
        Pace {
            epoch_ns: 0,
            credit_ns: 0,
            rate_permille,
            scale_permille: 1000,
            window_ns: 2_000_000,
            metered: true,
            contended: false,
        }
    }

    #[test]
    fn a_damaged_word_holds_nobody_for_ever() {
        let bucket = TokenBucket::default();
        bucket.beside_ns.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(bucket.beside(&pace(500), 1_000, 7), 7 + AHEAD_MAX_NS + 2_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// However many threads ask, and whenever: what went by any instant is no more than was earned since the first asked.
        #[test]
        fn what_goes_beside_is_never_more_than_the_rate(
            asked in proptest::collection::vec((0..2_000_000_u64, 1..1_000_000_u64), 1..100),
            rate in 1..=1000_u32,
        ) {
            let (bucket, pace) = (TokenBucket::default(), pace(rate));
            let mut now_ns = 5_000;
            let mut went = Vec::new();
            for (wait_ns, cost_ns) in asked {
                now_ns += wait_ns;
                // Threads whose turns are a second ahead ask no more: they wait.
                let ahead_ns = bucket.beside_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
                if ahead_ns < AHEAD_MAX_NS {
                    went.push((bucket.beside(&pace, cost_ns, now_ns), cost_ns));
                }
            }
            let mut total_ns = 0;
            for (at_ns, cost_ns) in went {
                prop_assert!(at_ns >= 5_000);
                total_ns += cost_ns;
                let earned_ns = u128::from(at_ns - 5_000 + 100) * u128::from(rate) / 1000;
                prop_assert!(u128::from(total_ns) <= earned_ns + 1, "{total_ns} by {at_ns}");
            }
        }
    }
}
