//! Work that ended unseen: no timing event was behind it, and the application did not wait for it, so its duration is not known. It is
//! charged as predicted. A small amount of it is tolerated, as programs pause this way. If a tenant has more, it is watched for a while:
//! each of its launches is measured. While it has tokens to spare it is charged for its pauses instead, which needs fewer timing events.

use super::TokenBucket;
use crate::primitive::Ordering;

/// Tolerated work that ended unseen: an amount at once (ns), and later one part in this many of the time. A program that pauses now and
/// then has less, and is not measured at each launch. A tenant that hides work gains at most a thousandth.
const UNWATCHED_NS: u64 = 20_000_000;
const UNWATCHED_PART: u64 = 1_000;
/// Longest time for which each launch is measured after work that ended unseen (ns). A tenant that hides work can hide a kernel in each
/// such time.
const WATCHED_NS: u64 = 10_000_000_000;
/// Tolerated distance of the time at which the unseen work is paid for (ns). Beyond it each launch is measured.
const AHEAD_NS: u64 = UNWATCHED_NS * UNWATCHED_PART;

/// Whether a watched tenant is charged for its pauses as if it had worked, instead of having each launch measured. It begins with
/// nine tenths of the tokens that it may save (`burst_ns`) and ends at half of them: these tokens would be lost soon, so no launch
/// waits for what the pauses cost. `is_charged`: whether it was so until now.
pub fn can_pay_for_pauses(tokens_ns: i64, burst_ns: u64, is_charged: bool) -> bool {
    let least_ns = if is_charged { burst_ns / 2 } else { burst_ns - burst_ns / 10 };
    tokens_ns > 0 && tokens_ns.unsigned_abs() >= least_ns
}

impl TokenBucket {
    /// Notes at `now_ns` (`CLOCK_MONOTONIC`) that work ended unseen, which may have run for `hidden_ns` longer than predicted.
    pub fn ended_unseen(&self, hidden_ns: u64, now_ns: u64) {
        let latest_ns = now_ns.saturating_add(AHEAD_NS + WATCHED_NS);
        let before_ns = self.unseen_paid_ns.load(Ordering::Relaxed);
        let from_ns = if before_ns > latest_ns { now_ns } else { before_ns.max(now_ns) };
        let paid_ns = from_ns.saturating_add(hidden_ns.saturating_mul(UNWATCHED_PART));
        // If two threads note at the same time, one note may be lost.
        self.unseen_paid_ns.store(paid_ns.min(latest_ns), Ordering::Relaxed);
    }

    /// Whether each launch has to be measured at `now_ns` (`CLOCK_MONOTONIC`).
    pub fn is_watched(&self, now_ns: u64) -> bool {
        // A time that is too far ahead is invalid; a tenant may write it.
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

    #[test]
    fn pauses_are_paid_for_with_tokens_that_would_be_lost() {
        let can_pay = |tokens_ms: i64, was| can_pay_for_pauses(tokens_ms * 1_000_000, 5 * MS, was);
        assert!(!can_pay(4, false) && can_pay(5, false));
        assert!(can_pay(3, true) && !can_pay(2, true) && !can_pay(-5, true));
        assert!(!can_pay_for_pauses(0, 0, true), "a bucket that saves nothing");
    }

    /// Bounds the hidden time for any pattern of launches, as long as not each launch is measured.
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
