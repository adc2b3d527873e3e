//! Which bursts of launches on an idle stream are measured. Two timing events and more for each would cost the host of a program with
//! many short bursts too much, so it is one burst in a power of two, at random: a random sample is fair, whatever the program does,
//! and what is learnt from it is the cost of the bursts in between.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Time for each timing event of sampled bursts, on average (ns): such an event takes the host about a microsecond.
const EVENT_EVERY_NS: u64 = 200_000;
/// Time after which the share of sampled bursts is adjusted (ns).
const PERIOD_NS: u64 = 16_000_000;
/// Least share of bursts that are sampled: one in two to the power of this.
const HALVINGS_MAX: u32 = 8;

/// Most launches of a sampled burst that are measured one by one. Of a longer one its segments tell enough.
pub const LAUNCHES_MAX: u32 = 32;
/// Time that may be charged without a measurement before all is measured for a while: an amount at once (ns), and one part in this many
/// of the time. A thread that is preempted before it waits for its work has less.
const UNPROVEN_NS: u64 = 5_000_000;
const UNPROVEN_PART: u64 = 1_000;
/// Time for which all is measured then (ns).
const DOUBT_NS: u64 = 1_000_000_000;

/// The share of bursts that a process measures on a device. Of threads that use it at once one may lose its note.
#[derive(Debug, Default)]
pub struct Sampling {
    /// One burst in two to the power of this is measured.
    halvings: AtomicU32,
    /// Bursts until the next sample.
    to_skip: AtomicU64,
    /// Timing events placed since `since_ns`.
    events: AtomicU32,
    /// Time of the last adjustment (`CLOCK_MONOTONIC`, ns).
    since_ns: AtomicU64,
    /// Time at which all that was charged without a measurement is allowed (`CLOCK_MONOTONIC`, ns).
    allowed_at_ns: AtomicU64,
    /// Time until which all is measured (`CLOCK_MONOTONIC`, ns).
    all_until_ns: AtomicU64,
    /// State of the random numbers.
    random: AtomicU64,
}

impl Sampling {
    /// How many launches of a burst that begins at `now_ns` (`CLOCK_MONOTONIC`) are to be measured one by one.
    #[inline]
    pub fn launches(&self, now_ns: u64) -> u32 {
        if self.is_in_doubt(now_ns) {
            return LAUNCHES_MAX;
        }
        let elapsed_ns = now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed));
        if elapsed_ns >= PERIOD_NS {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            self.adjust(elapsed_ns / EVENT_EVERY_NS);
            self.skip(now_ns);
        }
        let left = self.to_skip.load(Ordering::Relaxed);
        if left > 0 {
            self.to_skip.store(left - 1, Ordering::Relaxed);
            return 0;
        }
        self.skip(now_ns);
        LAUNCHES_MAX
    }

    /// Whether all is measured, bursts that go on as well.
    #[inline]
    pub fn is_in_doubt(&self, now_ns: u64) -> bool {
        now_ns < self.all_until_ns.load(Ordering::Relaxed)
    }

    /// Notes that a timing event was placed for a sample.
    pub fn placed(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that work may have run for `ns` more than it was charged, or less. If that is much, all is measured for a while.
    pub fn doubt(&self, ns: u64, now_ns: u64) {
        let most_ns = now_ns.saturating_add(2 * UNPROVEN_NS * UNPROVEN_PART);
        let from_ns = self.allowed_at_ns.load(Ordering::Relaxed).max(now_ns);
        let allowed_at_ns = from_ns.saturating_add(ns.saturating_mul(UNPROVEN_PART)).min(most_ns);
        self.allowed_at_ns.store(allowed_at_ns, Ordering::Relaxed);
        if allowed_at_ns - now_ns > UNPROVEN_NS * UNPROVEN_PART {
            self.all_until_ns.store(now_ns.saturating_add(DOUBT_NS), Ordering::Relaxed);
        }
    }

    /// A step towards the `allowed` number of events.
    fn adjust(&self, allowed: u64) {
        let events = u64::from(self.events.swap(0, Ordering::Relaxed));
        let before = self.halvings.load(Ordering::Relaxed);
        let halvings = if events > allowed {
            (before + 1).min(HALVINGS_MAX)
        } else if 2 * events < allowed {
            before.saturating_sub(1)
        } else {
            before
        };
        self.halvings.store(halvings, Ordering::Relaxed);
    }

    /// Draws how many bursts are skipped before the next sample.
    #[cold]
    fn skip(&self, now_ns: u64) {
        // From 0 to twice the mean, which is one less than the bursts for each sample.
        let below = (2 << self.halvings.load(Ordering::Relaxed)) - 1;
        self.to_skip.store(self.random(now_ns) % below, Ordering::Relaxed);
    }

    /// A random number that the program cannot foresee, as the time is in it (SplitMix64).
    fn random(&self, now_ns: u64) -> u64 {
        let state = self.random.load(Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15) ^ now_ns;
        self.random.store(state, Ordering::Relaxed);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays bursts that begin each `every_ns`, of `events` timing events where they are measured. Returns how many of `count` were.
    fn taken(sampling: &Sampling, every_ns: u64, events: u32, count: u64) -> Vec<u64> {
        let is_taken = |burst: &u64| {
            let is_taken = sampling.launches((1 << 40) + burst * every_ns) > 0;
            (0..if is_taken { events } else { 0 }).for_each(|_| sampling.placed());
            is_taken
        };
        (0..count).filter(is_taken).collect()
    }

    #[test]
    fn rare_bursts_are_all_measured_and_frequent_ones_cost_few_events() {
        assert_eq!(taken(&Sampling::default(), 2 * EVENT_EVERY_NS, 2, 10_000).len(), 10_000);
        for (every_ns, events) in [(20_000, 2), (40_000, 2), (40_000, 15), (300_000, 3)] {
            let count = 200_000;
            let placed =
                taken(&Sampling::default(), every_ns, events, count).len() as u64 * u64::from(events);
            let allowed = count * every_ns / EVENT_EVERY_NS;
            assert!(
                (allowed / 4..allowed * 5 / 4).contains(&placed),
                "{placed} of {allowed}, each {every_ns} ns"
            );
        }
    }

    /// Bursts that take turns are sampled alike, however long the turn is.
    #[test]
    fn no_pattern_of_bursts_escapes() {
        for turn in [2, 3, 8, 64] {
            let taken = taken(&Sampling::default(), 40_000, 2, 400_000);
            let of_first = taken.iter().filter(|burst| *burst % turn == 0).count() as f64;
            let share = of_first * turn as f64 / taken.len() as f64;
            assert!((0.8..1.2).contains(&share), "one in {turn}: {share:.2} times as often");
        }
    }

    #[test]
    fn all_are_measured_after_much_doubt() {
        const MS: u64 = 1_000_000;
        let sampling = Sampling::default();
        taken(&sampling, 20_000, 2, 10_000);
        for second in 0..1_000 {
            sampling.doubt(MS, (1 << 40) + second * 1_000 * MS);
        }
        assert!(taken(&sampling, 20_000, 2, 10_000).len() < 5_000, "a thousandth of the time");
        (0..5).for_each(|_| sampling.doubt(MS, 1 << 40));
        assert_eq!(taken(&sampling, 20_000, 2, 10_000).len(), 10_000);
    }
}
