//! Sums of the counts of a tenant's processes, living and dead, and the GPU time of the last second.

use std::collections::{HashMap, VecDeque};

use crate::registration::Key;

const RECENT_NS: u64 = 1_000_000_000;

/// Sums of the counts of a tenant's processes on a device, including dead ones. Processes that were dead before the manager's
/// first read are not included.
#[derive(Debug, Default)]
pub(super) struct Totals {
    sums: [u64; 3],
    /// Last counts of each slot, and its owner then.
    last: HashMap<usize, (Key, [u64; 3])>,
    recent: VecDeque<Recent>,
}

/// The tenant's GPU time at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recent {
    pub(super) at_ns: u64,
    pub(super) served_ns: u64,
}

impl Totals {
    /// Adds the increase of a process's counts. A count that falls is wrong, or the slot has a new process: the sums never fall.
    pub(super) fn add(&mut self, slot: usize, key: Key, now: [u64; 3]) {
        let before = self.last.insert(slot, (key, now));
        let before = before.filter(|(known, _)| *known == key).map_or([0; 3], |(_, counts)| counts);
        for ((sum, now), before) in self.sums.iter_mut().zip(now).zip(before) {
            *sum = sum.saturating_add(now.saturating_sub(before));
        }
    }

    pub(super) fn sums(&self) -> [u64; 3] {
        self.sums
    }

    /// The tenant's part of the last second (thousandths).
    pub(super) fn recent(&mut self, now: Recent) -> u32 {
        self.recent.push_back(now);
        // The last sample before that second stays, as the start of the period.
        while self.recent.get(1).is_some_and(|next| now.at_ns.saturating_sub(next.at_ns) >= RECENT_NS) {
            self.recent.pop_front();
        }
        let Some(first) = self.recent.front() else {
            return 0;
        };
        // After a long pause without samples, the tenant was idle until the last second.
        let elapsed_ns = match now.at_ns.saturating_sub(first.at_ns) {
            long if long > 2 * RECENT_NS => RECENT_NS,
            elapsed => elapsed,
        };
        let elapsed_ns = u128::from(elapsed_ns);
        let served_ns = u128::from(now.served_ns.saturating_sub(first.served_ns));
        let permille = (served_ns * 1000).checked_div(elapsed_ns).unwrap_or(0).min(1000);
        u32::try_from(permille).unwrap_or(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_dead_stay_and_nothing_is_taken_back() {
        let key = |pid| Key { pid, start_ticks: 1, pid_namespace: 1 };
        let mut totals = Totals::default();
        totals.add(0, key(1), [10, 1, 0]);
        totals.add(0, key(1), [15, 1, 2]);
        totals.add(1, key(2), [100, 0, 0]);
        assert_eq!(totals.sums(), [115, 1, 2]);
        totals.add(0, key(3), [4, 0, 0]);
        assert_eq!(totals.sums(), [119, 1, 2], "another process in the slot");
        totals.add(0, key(3), [1, 0, 0]);
        totals.add(0, key(3), [u64::MAX, 0, 0]);
        totals.add(1, key(2), [u64::MAX, 0, 0]);
        assert_eq!(totals.sums(), [u64::MAX, 1, 2], "nonsense stays within its bounds");
    }

    #[test]
    fn the_last_second_and_no_more() {
        let mut totals = Totals::default();
        let mut at = |ms: u64, served_ms: u64| {
            totals.recent(Recent { at_ns: ms * 1_000_000, served_ns: served_ms * 1_000_000 })
        };
        assert_eq!(at(0, 5000), 0);
        assert_eq!(at(500, 5250), 500);
        assert_eq!(at(1000, 5500), 500);
        assert_eq!(at(1500, 5500), 250);
        assert_eq!(at(2000, 5500), 0);
        assert_eq!(at(2500, 50_000), 1000, "more than there is");
        assert_eq!(at(3000, 0), 0, "less than before");
        assert_eq!(at(3500, 0), 0);
        assert_eq!(at(60_000, 250), 250, "after a long rest");
    }
}
