//! Work that ended unseen: no event stood behind it, and the application did not wait for it, so nothing says whether it took as long as
//! predicted. It is charged as predicted once; then each launch of the tenant is measured for a while, as its programs pause so.

use super::TokenBucket;
use crate::primitive::Ordering;

/// For how long each launch is measured after work that ended unseen (ns): of a tenant that means to hide work, one kernel in so long is
/// hidden.
const WATCHED_NS: u64 = 10_000_000_000;

impl TokenBucket {
    /// Notes at `now_ns` (`CLOCK_MONOTONIC`) that work ended unseen.
    pub fn ended_unseen(&self, now_ns: u64) {
        self.watched_to_ns
            .store(now_ns.saturating_add(WATCHED_NS), Ordering::Relaxed);
    }

    /// Whether each launch is to be measured.
    pub fn is_watched(&self, now_ns: u64) -> bool {
        // A time that is too far ahead is nonsense, which a tenant may write.
        let left_ns = self.watched_to_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        (1..=WATCHED_NS).contains(&left_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_watched_for_a_while() {
        let bucket = TokenBucket::default();
        assert!(!bucket.is_watched(7));
        bucket.ended_unseen(7);
        assert!(bucket.is_watched(7) && bucket.is_watched(6 + WATCHED_NS));
        assert!(!bucket.is_watched(7 + WATCHED_NS));
        bucket.watched_to_ns.store(u64::MAX, Ordering::Relaxed);
        assert!(!bucket.is_watched(7), "nonsense");
    }
}
