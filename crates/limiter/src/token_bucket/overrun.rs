//! Work that runs far longer than it was predicted. It may wait for a launch that waits for tokens: a collective kernel spins until its
//! peers run, another kernel until the host tells it to go on. Its time is charged while it runs, so the tokens never come, and the two
//! would wait for each other. So a launch may then go although the tenant owes something: no more than that work has taken.

use super::TokenBucket;
use crate::primitive::{AtomicU64, Ordering};

/// Time beyond twice its prediction from which on work counts as overrunning (ns).
const LATE_NS: u64 = 20_000_000;
/// Time for which it is remembered (ns): such work often comes in rounds.
const REMEMBERED_NS: u64 = 10_000_000_000;
/// Longest time between two looks at work that runs (ns), beyond the part of its time after which the next look comes.
const LOOK_NS: u64 = 50_000_000;
const LOOK_PART: u64 = 4;

/// Whether work that was predicted to take `predicted_ns` overruns after `ran_ns`.
pub const fn is_overrun(predicted_ns: u64, ran_ns: u64) -> bool {
    ran_ns > predicted_ns.saturating_mul(2).saturating_add(LATE_NS)
}

impl TokenBucket {
    /// Notes that work has run for `ran_ns` at `now_ns` (`CLOCK_MONOTONIC`), longer than predicted, and goes on.
    pub fn note_running(&self, ran_ns: u64, now_ns: u64) {
        if ran_ns >= self.running_ns(now_ns) {
            self.running_ns.store(ran_ns, Ordering::Relaxed);
            self.running_at_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Notes that such work has ended at `now_ns`, after `ran_ns`. It `counts` as an overrun if its kernels were measured before.
    pub fn note_ended(&self, ran_ns: u64, counts: bool, now_ns: u64) {
        self.running_ns.store(0, Ordering::Relaxed);
        self.waited_ns.fetch_add(ran_ns, Ordering::Relaxed);
        if counts && ran_ns >= self.overran_ns(now_ns) {
            self.overran_ns.store(ran_ns, Ordering::Relaxed);
            self.overran_at_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// For how long work that runs longer than predicted has run (ns); 0 if there is none.
    pub fn running_ns(&self, now_ns: u64) -> u64 {
        let ran_ns = self.running_ns.load(Ordering::Relaxed);
        let within_ns = LOOK_NS + ran_ns / LOOK_PART;
        believed_ns(ran_ns, &self.running_at_ns, within_ns, now_ns)
    }

    /// As [`TokenBucket::running_ns`], if that was seen at `from_ns` or later (`CLOCK_MONOTONIC`).
    pub fn seen_running_ns(&self, from_ns: u64, now_ns: u64) -> u64 {
        let at_ns = self.running_at_ns.load(Ordering::Relaxed);
        if at_ns >= from_ns { self.running_ns(now_ns) } else { 0 }
    }

    /// The sum of such times since the tenant last had tokens (ns). It is what waiting may have cost it.
    pub fn waited_ns(&self, now_ns: u64) -> u64 {
        let ended_ns = self.waited_ns.load(Ordering::Relaxed);
        ended_ns.saturating_add(self.running_ns(now_ns))
    }

    /// Notes that the tenant has tokens: what it has waited is paid.
    pub fn note_paid(&self) {
        if self.waited_ns.load(Ordering::Relaxed) != 0 {
            self.waited_ns.store(0, Ordering::Relaxed);
        }
    }

    /// For how long work has overrun in the last ten seconds (ns); 0 if none has.
    pub fn overran_ns(&self, now_ns: u64) -> u64 {
        let ran_ns = self.overran_ns.load(Ordering::Relaxed);
        believed_ns(ran_ns, &self.overran_at_ns, REMEMBERED_NS, now_ns)
    }

    /// Notes at `now_ns` that work on this device was seen to wait for a launch that was held on another device or in another process.
    pub fn note_gang(&self, now_ns: u64) {
        self.gang_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    /// Whether work on this device has waited so in the last ten seconds: the tenant's launches on such devices wait together.
    pub fn is_gang(&self, now_ns: u64) -> bool {
        let at_ns = self.gang_ns.load(Ordering::Relaxed);
        at_ns != 0 && now_ns.saturating_sub(at_ns) < REMEMBERED_NS
    }
}

/// `ran_ns` if that was noted within `within_ns`. What a tenant writes here only lets its own launches go.
fn believed_ns(ran_ns: u64, at_ns: &AtomicU64, within_ns: u64, now_ns: u64) -> u64 {
    let since_ns = now_ns.saturating_sub(at_ns.load(Ordering::Relaxed));
    if since_ns <= within_ns { ran_ns } else { 0 }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn twice_the_prediction_and_some_more_is_an_overrun() {
        assert!(!is_overrun(100 * MS, 220 * MS));
        assert!(is_overrun(100 * MS, 220 * MS + 1));
        assert!(!is_overrun(u64::MAX, u64::MAX));
    }

    #[test]
    fn what_runs_is_known_until_it_ends_or_is_not_seen_any_more() {
        let bucket = TokenBucket::default();
        bucket.note_running(400 * MS, 1_000 * MS);
        bucket.note_running(300 * MS, 1_010 * MS);
        assert_eq!(bucket.running_ns(1_150 * MS), 400 * MS, "the longest counts");
        assert_eq!(bucket.seen_running_ns(1_000 * MS, 1_150 * MS), 400 * MS);
        assert_eq!(bucket.seen_running_ns(1_001 * MS, 1_150 * MS), 0, "it may have ended since");
        assert_eq!(bucket.running_ns(1_151 * MS), 0);
        bucket.note_running(500 * MS, 1_160 * MS);
        bucket.note_ended(600 * MS, false, 1_200 * MS);
        assert_eq!((bucket.running_ns(1_200 * MS), bucket.overran_ns(1_200 * MS)), (0, 0));
        bucket.note_running(10 * MS, 1_210 * MS);
        assert_eq!(bucket.waited_ns(1_210 * MS), 610 * MS);
        bucket.note_paid();
        assert_eq!(bucket.waited_ns(1_210 * MS), 10 * MS);
    }

    #[test]
    fn the_longest_overrun_is_known_for_ten_seconds() {
        let bucket = TokenBucket::default();
        bucket.note_ended(400 * MS, true, 1_000 * MS);
        bucket.note_ended(300 * MS, true, 2_000 * MS);
        assert_eq!(bucket.overran_ns(11_000 * MS), 400 * MS);
        assert_eq!(bucket.overran_ns(11_001 * MS), 0);
        bucket.note_ended(300 * MS, true, 12_000 * MS);
        assert_eq!(bucket.overran_ns(12_000 * MS), 300 * MS);
    }

    #[test]
    fn a_gang_lasts_for_ten_seconds() {
        let bucket = TokenBucket::default();
        assert!(!bucket.is_gang(0));
        bucket.note_gang(0);
        assert!(bucket.is_gang(9_999 * MS) && !bucket.is_gang(10_001 * MS));
    }
}
