//! Launches for which the tenant has no tokens, because a kernel runs without end or longer than predicted. The kernel may wait for
//! those very launches. So they do not wait for its end: they proceed at the tenant's rate, as if the kernel were not there.

use super::{Pace, TokenBucket};
use crate::primitive::Ordering;

/// Longest wait for the next launch that a word can cause (ns), so that a damaged word does not block a thread for ever.
const AHEAD_MAX_NS: u64 = 600_000_000_000;

impl TokenBucket {
    /// Lets a launch of `cost_ns` proceed beside such a kernel at `now_ns` (`CLOCK_MONOTONIC`). It may once the refill has covered the
    /// launch before it, of any of the tenant's processes.
    ///
    /// # Errors
    /// The launch may not proceed now. The error is the time at which it may ask again (`CLOCK_MONOTONIC`, ns).
    pub fn go_beside(&self, pace: &Pace, cost_ns: u64, now_ns: u64) -> Result<(), u64> {
        let word = self.beside_ns.load(Ordering::Relaxed);
        let before_ns = believed_ns(word, now_ns);
        if before_ns > now_ns {
            return Err(before_ns);
        }
        let after_ns = now_ns.saturating_add(earned_in_ns(pace, cost_ns));
        self.beside_ns
            .compare_exchange(word, after_ns, Ordering::Relaxed, Ordering::Relaxed)
            .map_err(|other_ns| believed_ns(other_ns, now_ns).max(now_ns + 1))?;
        // So that the longest wait does not admit another launch at the same time.
        self.debt_admitted_ns.store(now_ns, Ordering::Relaxed);
        Ok(())
    }
}

/// Time in which the refill covers `cost_ns` (ns).
fn earned_in_ns(pace: &Pace, cost_ns: u64) -> u64 {
    (cost_ns.saturating_mul(1000) / u64::from(pace.rate_permille.max(1))).min(AHEAD_MAX_NS)
}

/// Time at which the refill has covered all earlier launches, at least `now_ns`. A time that is too far ahead is invalid (a tenant may
/// write it) and counts as `now_ns`.
fn believed_ns(word: u64, now_ns: u64) -> u64 {
    if word > now_ns.saturating_add(AHEAD_MAX_NS) { now_ns } else { word.max(now_ns) }
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
        assert_eq!(bucket.go_beside(&pace(500), 1_000, 7), Ok(()));
        assert_eq!(bucket.go_beside(&pace(500), 1_000, 8), Err(2_007));
        assert_eq!(bucket.go_beside(&pace(500), u64::MAX, 2_007), Ok(()));
        assert_eq!(bucket.go_beside(&pace(500), 1, 2_008), Err(2_007 + AHEAD_MAX_NS));
    }

    #[test]
    fn a_launch_beside_counts_as_the_periods_launch_on_debt() {
        let bucket = TokenBucket::default();
        assert_eq!(bucket.go_beside(&pace(500), 1_000, 50_000), Ok(()));
        assert_eq!(bucket.admit_on_debt(50_000, 10_000), Err(60_000));
        // A launch that has to wait leaves the period as it is.
        assert_eq!(bucket.go_beside(&pace(500), 1_000, 51_000), Err(52_000));
        assert_eq!(bucket.admit_on_debt(59_999, 10_000), Err(60_000));
        assert_eq!(bucket.admit_on_debt(60_000, 10_000), Ok(()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        /// However many threads ask, and whenever: the refill since the first launch covers all launches before the last.
        #[test]
        fn what_goes_beside_is_never_more_than_the_rate(
            asked in proptest::collection::vec((0..2_000_000_u64, 1..1_000_000_u64), 1..100),
            rate in 1..=1000_u32,
        ) {
            let (bucket, pace) = (TokenBucket::default(), pace(rate));
            let mut now_ns = 5_000;
            let (mut before_ns, mut first_ns) = (0_u64, None);
            for (wait_ns, cost_ns) in asked {
                now_ns += wait_ns;
                if bucket.go_beside(&pace, cost_ns, now_ns).is_ok() {
                    let since_ns = now_ns - *first_ns.get_or_insert(now_ns);
                    let earned_ns = u128::from(since_ns + 100) * u128::from(rate) / 1000;
                    prop_assert!(u128::from(before_ns) <= earned_ns + 100, "{before_ns} by {now_ns}");
                    before_ns += cost_ns;
                }
            }
        }
    }
}
