//! Times at which each context of this process recently had work on a device. Time slices go round contexts, so the
//! arbiter must know how many of the tenant's had work at once. The tenant's own map holds a moment once, however
//! many had.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use vcuda_limiter::busy;

/// Most contexts with a map of their own on a device. Further ones share a map and count as a single one.
const CONTEXTS: usize = 32;
/// Words of a context's map, 31 ms: longer than the worker takes to see the end of work on another stream of the context.
const WORDS: usize = 64;

/// The contexts of one device.
#[derive(Debug)]
pub(super) struct ContextMaps {
    maps: Box<[ContextMap]>,
}

#[derive(Debug)]
struct ContextMap {
    /// 0: none.
    context: AtomicUsize,
    words: [AtomicU64; WORDS],
    /// Until when its waits were counted (`CLOCK_MONOTONIC`, ns).
    waited_to_ns: AtomicU64,
}

impl Default for ContextMaps {
    fn default() -> Self {
        let empty = || ContextMap {
            context: AtomicUsize::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
            waited_to_ns: AtomicU64::new(0),
        };
        Self { maps: (0..CONTEXTS).map(|_| empty()).collect() }
    }
}

impl ContextMaps {
    /// Enters that a context had work from `from_ns` to `to_ns` (`CLOCK_MONOTONIC`). Returns the part that was not
    /// entered before (ns).
    pub(super) fn enter(&self, context: usize, from_ns: u64, to_ns: u64) -> u64 {
        let elapsed_ns = to_ns.saturating_sub(from_ns);
        self.map_of(context)
            .map_or(elapsed_ns, |map| busy::mark(&map.words, from_ns, to_ns).charge_ns(elapsed_ns))
    }

    /// Enters that a context waited from `from_ns` to `to_ns` (`CLOCK_MONOTONIC`) for a time slice. Returns how long
    /// in that span it had no other work while another context of this process had (ns). Each moment counts once.
    pub(super) fn wait(&self, context: usize, from_ns: u64, to_ns: u64) -> u64 {
        let Some(own) = self.map_of(context) else {
            return 0;
        };
        let from_ns = from_ns.max(own.waited_to_ns.fetch_max(to_ns, Ordering::Relaxed));
        let busy_ns = |map: &ContextMap| busy::busy_ns(&map.words, from_ns, to_ns);
        let is_other = |map: &&ContextMap| ![0, context].contains(&map.context.load(Ordering::Relaxed));
        let others_ns = self.maps.iter().filter(is_other).map(busy_ns).max();
        let waited_ns = to_ns.saturating_sub(from_ns).saturating_sub(busy_ns(own));
        waited_ns.min(others_ns.unwrap_or(0))
    }

    /// Forgets a context that is gone.
    pub(super) fn forget(&self, context: usize) {
        let of_context = |map: &&ContextMap| map.context.load(Ordering::Relaxed) == context;
        for map in self.maps.iter().filter(of_context) {
            map.context.store(0, Ordering::Relaxed);
        }
    }

    fn map_of(&self, context: usize) -> Option<&ContextMap> {
        let is_its = |map: &&ContextMap| {
            let claimed = map.context.compare_exchange(0, context, Ordering::Relaxed, Ordering::Relaxed);
            claimed.map_or_else(|other| other == context, |_| true)
        };
        self.maps.iter().find(is_its).or_else(|| self.maps.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// A moment far from the clock's zero (ns).
    const BEGIN: u64 = 1 << 40;

    #[test]
    fn streams_of_a_context_count_once_and_contexts_each() {
        let maps = ContextMaps::default();
        let enter = |context| maps.enter(context, BEGIN, BEGIN + MS);
        assert_eq!([enter(0x10), enter(0x10), enter(0x20), enter(0x20)], [MS, 0, MS, 0]);
        maps.forget(0x10);
        assert_eq!(maps.enter(0x30, BEGIN + MS, BEGIN + 2 * MS), MS, "its place is free");
    }

    #[test]
    fn a_wait_counts_once_while_another_context_has_work() {
        let maps = ContextMaps::default();
        let wait = || maps.wait(0x10, BEGIN, BEGIN + 3 * MS);
        assert_eq!(wait(), 0, "nothing else to do");
        maps.enter(0x20, BEGIN + 3 * MS, BEGIN + 5 * MS);
        assert_eq!(maps.wait(0x10, BEGIN, BEGIN + 4 * MS), MS);
        assert_eq!(wait(), 0, "counted");
        maps.enter(0x10, BEGIN + 4 * MS, BEGIN + 5 * MS);
        assert_eq!(maps.wait(0x10, BEGIN, BEGIN + 5 * MS), 0, "it had work itself");
    }

    #[test]
    fn contexts_beyond_the_last_place_count_as_one() {
        let maps = ContextMaps::default();
        let entered = (1..=2 * CONTEXTS).map(|context| maps.enter(context, BEGIN, BEGIN + MS));
        assert_eq!(entered.sum::<u64>(), CONTEXTS as u64 * MS);
    }
}
