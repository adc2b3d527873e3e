//! Work that ended unseen: no event stood behind it, and the application did not wait for it, so nothing says whether it took as long as
//! predicted. It is charged as predicted. Little of it is let pass; a tenant with more of it has each launch measured for a while, as its
//! programs pause so.

use super::TokenBucket;
use crate::primitive::Ordering;

/// Work that may have ended unseen at once (ns), and of how much of the time later (one part of so many): a program that pauses now and
/// then has no event behind each launch for that, and one that means to hide work gains a thousandth.
const UNWATCHED_NS: u64 = 20_000_000;
const UNWATCHED_PART: u64 = 1_000;
/// For how long each launch is measured at most after work that ended unseen (ns): of a tenant that means to hide work, one kernel in so
/// long is hidden.
const WATCHED_NS: u64 = 10_000_000_000;
/// How far ahead the time may be at which all that ended unseen is paid for, without a watch (ns).
const AHEAD_NS: u64 = UNWATCHED_NS * UNWATCHED_PART;

impl TokenBucket {
    /// Notes at `now_ns` (`CLOCK_MONOTONIC`) that work ended unseen, which may have run for `hidden_ns` longer than predicted.
    pub fn ended_unseen(&self, hidden_ns: u64, now_ns: u64) {
        let latest_ns = now_ns.saturating_add(AHEAD_NS + WATCHED_NS);
        let before_ns = self.unseen_paid_ns.load(Ordering::Relaxed);
        let from_ns = if before_ns > latest_ns {
            now_ns
        } else {
            before_ns.max(now_ns)
        };
        let paid_ns = from_ns.saturating_add(hidden_ns.saturating_mul(UNWATCHED_PART));
        // Of two threads that note at once, one may be lost.
        self.unseen_paid_ns
            .store(paid_ns.min(latest_ns), Ordering::Relaxed);
    }

    /// Whether each launch is to be measured.
    pub fn is_watched(&self, now_ns: u64) -> bool {
        // A time that is too far ahead is nonsense, which a tenant may write.
        let ahead_ns = self.unseen_paid_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        (AHEAD_NS + 1..=AHEAD_NS + WATCHED_NS).contains(&ahead_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_tenant_that_hides_much_is_watched_for_a_while() {
        let bucket = TokenBucket::default();
        assert!(!bucket.is_watched(7));
        bucket.ended_unseen(u64::MAX, 7);
        assert!(bucket.is_watched(7) && bucket.is_watched(6 + WATCHED_NS));
        assert!(!bucket.is_watched(7 + WATCHED_NS));
        bucket.unseen_paid_ns.store(u64::MAX, Ordering::Relaxed);
        assert!(!bucket.is_watched(7), "nonsense");
        bucket.ended_unseen(u64::MAX, 7);
        assert!(bucket.is_watched(7), "nonsense does not last");
    }

    #[test]
    fn what_is_hidden_now_and_then_is_let_pass() {
        let bucket = TokenBucket::default();
        bucket.ended_unseen(10 * MS, 0);
        bucket.ended_unseen(10 * MS, 0);
        assert!(!bucket.is_watched(0));
        bucket.ended_unseen(MS, 0);
        assert!(bucket.is_watched(0) && !bucket.is_watched(1_000 * MS));
    }

    /// Whatever is hidden at a time, unless each launch is measured.
    #[test]
    fn a_thousandth_of_the_time_is_hidden_at_most() {
        const STEPS: u64 = 1_000_000;
        for hidden_ns in [MS / 10, MS, 5 * MS] {
            let bucket = TokenBucket::default();
            let all_ns: u64 = (0..STEPS)
                .map(|step| step * MS)
                .filter(|now_ns| {
                    let is_hidden = !bucket.is_watched(*now_ns);
                    if is_hidden {
                        bucket.ended_unseen(hidden_ns, *now_ns);
                    }
                    is_hidden
                })
                .map(|_| hidden_ns)
                .sum();
            let most_ns = UNWATCHED_NS + hidden_ns + STEPS * MS / UNWATCHED_PART;
            assert!(all_ns <= most_ns, "{all_ns} of {most_ns}");
        }
    }
}
