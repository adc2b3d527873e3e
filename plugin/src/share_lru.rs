//! Least recently used order of the shares. New containers get the shares that were free for longest, so that their files and
//! grants do not meet those of an earlier container.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

use crate::ids::Ids;

#[derive(Debug, Default)]
pub(crate) struct ShareLru(Mutex<Order>);

#[derive(Debug, Default)]
struct Order {
    /// Counts the calls of [`ShareLru::record_use`].
    step: u64,
    /// Step of each share's last use, by the share's number.
    last: HashMap<u32, u64>,
}

impl ShareLru {
    /// Records that these shares are in use, or were until now.
    pub(crate) fn record_use(&self, shares: &Ids) {
        let mut order = self.0.lock();
        order.step += 1;
        let step = order.step;
        order.last.extend(shares.iter().map(|share| (*share, step)));
    }

    /// Chooses `size` shares of `available`: all of `must`, then the least recently used. Returns fewer if there are fewer.
    pub(crate) fn preferred(&self, available: &Ids, must: &Ids, size: usize) -> Ids {
        let order = self.0.lock();
        let mut others: Vec<u32> = available.difference(must).copied().collect();
        others.sort_by_key(|share| (order.last.get(share).copied().unwrap_or(0), *share));
        let missing = size.saturating_sub(must.len());
        let chosen: BTreeSet<u32> = must.iter().copied().chain(others.into_iter().take(missing)).collect();
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_come_first_after_those_that_must() {
        let share_lru = ShareLru::default();
        let all = Ids::from([0, 1, 2, 3]);
        share_lru.record_use(&Ids::from([0, 1]));
        share_lru.record_use(&Ids::from([2]));
        assert_eq!(share_lru.preferred(&all, &Ids::new(), 2), Ids::from([0, 3]));
        share_lru.record_use(&Ids::from([0]));
        assert_eq!(share_lru.preferred(&all, &Ids::new(), 2), Ids::from([1, 3]));
        assert_eq!(share_lru.preferred(&all, &Ids::from([2]), 2), Ids::from([2, 3]));
        assert_eq!(share_lru.preferred(&Ids::from([1]), &Ids::new(), 2), Ids::from([1]));
    }
}
