//! Sets of tenants that are busy at the same time, a bit for each: runs of bins with the same set, and their contexts.

use super::Busy;
use crate::busy;

/// Most tenants of a GPU that are considered.
const MOST: usize = 64;

/// Tenants that are busy in bin `bin`, and the number of bins from there on, within the words, in which the same ones are.
fn run(words: &[u64], bin: u64) -> (u64, u64) {
    let mut set = 0;
    let mut bins = busy::BINS_PER_WORD - bin;
    for (position, word) in words.iter().take(MOST).enumerate() {
        let from = word >> bin;
        set |= (from & 1) << position;
        let same = if from & 1 == 1 { from.trailing_ones() } else { from.trailing_zeros() };
        bins = bins.min(u64::from(same));
    }
    (set, bins)
}

/// Calls `tell` for each run of bins, with the busy tenants (a bit for each) and the number of bins.
pub(super) fn for_each_run(tenants: &[Busy], mut tell: impl FnMut(u64, u64)) {
    let length = tenants.iter().map(|one| one.map.len()).max().unwrap_or(0);
    let mut words = vec![0; tenants.len()];
    for place in 0..length {
        for (word, one) in words.iter_mut().zip(tenants) {
            *word = one.map.get(place).copied().unwrap_or(0);
        }
        let mut bin = 0;
        while bin < busy::BINS_PER_WORD {
            let (set, bins) = run(&words, bin);
            tell(set, bins);
            bin += bins;
        }
    }
}

/// Iterates over the tenants of a set.
pub(super) fn members<T>(set: u64, all: &mut [T]) -> impl Iterator<Item = (usize, &mut T)> {
    let numbered = all.iter_mut().take(MOST).enumerate();
    numbered.filter(move |(one, _)| set >> one & 1 == 1)
}

/// The only member of a set; `None` if there are others or none.
pub(super) fn only(set: u64) -> Option<usize> {
    (set.count_ones() == 1).then_some(set.trailing_zeros() as usize)
}

/// Number of contexts of a tenant (thousandths).
pub(super) fn contexts_of(tenants: &[Busy], one: usize) -> u64 {
    let contexts = tenants.get(one).map_or(1, |one| one.contexts.permille);
    contexts.clamp(1, 1 << 32)
}

/// Number of contexts of all tenants of a set (thousandths).
pub(super) fn sum_of_contexts(tenants: &[Busy], set: u64) -> u64 {
    let busy = (0..tenants.len().min(MOST)).filter(|one| set >> one & 1 == 1);
    busy.map(|one| contexts_of(tenants, one)).sum::<u64>().max(1)
}
