//! Order in which shares were last used, so that new containers get those that were free for longest: they meet no
//! remains of another.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

use crate::ids::Ids;

/// Time of each share's last use, in steps of a counter.
#[derive(Debug, Default)]
pub struct Recency(Mutex<Order>);

#[derive(Debug, Default)]
struct Order {
    step: u64,
    last: HashMap<u32, u64>,
}

impl Recency {
    /// These are in use, or were until now.
    pub fn used(&self, shares: &Ids) {
        let mut order = self.0.lock();
        order.step += 1;
        let step = order.step;
        order.last.extend(shares.iter().map(|share| (*share, step)));
    }

    /// `size` of `available`, all of `must` among them, the longest unused first. Fewer if there are not so many.
    #[must_use]
    pub fn preferred(&self, available: &Ids, must: &Ids, size: usize) -> Ids {
        let order = self.0.lock();
        let mut others: Vec<u32> = available.difference(must).copied().collect();
        others.sort_by_key(|share| (order.last.get(share).copied().unwrap_or(0), *share));
        let missing = size.saturating_sub(must.len());
        let chosen: BTreeSet<u32> = must
            .iter()
            .copied()
            .chain(others.into_iter().take(missing))
            .collect();
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_come_first_after_those_that_must() {
        let recency = Recency::default();
        let all = Ids::from([0, 1, 2, 3]);
        recency.used(&Ids::from([0, 1]));
        recency.used(&Ids::from([2]));
        assert_eq!(recency.preferred(&all, &Ids::new(), 2), Ids::from([0, 3]));
        recency.used(&Ids::from([0]));
        assert_eq!(recency.preferred(&all, &Ids::new(), 2), Ids::from([1, 3]));
        assert_eq!(recency.preferred(&all, &Ids::from([2]), 2), Ids::from([2, 3]));
        assert_eq!(recency.preferred(&Ids::from([1]), &Ids::new(), 2), Ids::from([1]));
    }
}
