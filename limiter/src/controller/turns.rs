//! Whose the time was: what each of several busy containers got of a GPU whose contexts take turns.
//!
//! Nobody sees the turns. Seen is who was busy when (the busy maps), and that says more than it seems to: a container is
//! seen first when its first slice begins, as an event is reached in a slice of its own context, and last within one of its
//! slices. So time is cut into *epochs*, in each of which the same containers were busy. Whole rounds of an epoch are
//! everyone's in equal parts. Of the last round, unfinished, who came has had the first slice; after one that left, the
//! next in the circle had it; the others follow in the order of the circle, up to who leaves within its slice, or who comes
//! at the end of one. The order of the circle is learnt from who left when.

use super::Busy;
use crate::busy;

/// A slice and the switch before it (ns), and in thousandths of a bin: 1.024 ms on GPUs from Volta on, if no operator has changed that
/// (docs/hardware.md, "turns between contexts"), and some 20 us. Where slices are longer or shorter, shares are off by up to
/// three points of the GPU (docs/results.md).
pub const SLICE_NS: u64 = 1_044_000;
const SLICE: i64 = (SLICE_NS / busy::BIN_NS).cast_signed() * 1000;
/// Containers of one GPU that are told apart.
const MOST: usize = 64;
/// A container of more contexts than so many (thousandths) has several slices in a round, of which nobody knows the order.
const ONE_CONTEXT_MOST: u64 = 1_500;

/// What one container got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Got {
    /// Bins in which it was busy.
    pub bins: u64,
    /// What of them was its own (thousandths of a bin): below zero if it has had less before than was thought.
    pub permille: i64,
}

/// The time in which the same containers were busy.
#[derive(Debug, Clone, Copy, Default)]
struct Epoch {
    /// Who: a bit each.
    busy: u64,
    /// Who had the first slice, if that is known.
    first: Option<usize>,
    /// It came then: what is known of `first` is seen and not concluded.
    has_come: bool,
    /// How long, in bins.
    bins: u64,
}

/// One GPU's turns.
#[derive(Debug, Default)]
pub struct Turns {
    epoch: Epoch,
    /// The containers in the order in which their slices follow each other, as far as is known: a circle.
    circle: Vec<usize>,
}

impl Turns {
    /// Takes the next words of all containers' busy maps, which follow those of the last call, into account. What each
    /// got of them, in parts of bins: what an epoch's end tells about its beginning included.
    pub fn pass(&mut self, containers: &[Busy]) -> Vec<Got> {
        self.circle.retain(|one| *one < containers.len());
        for one in self.circle.len()..containers.len() {
            self.circle.push(one);
        }
        let mut found = vec![Got::default(); containers.len()];
        for_each_run(containers, |set, bins| {
            self.add(set, bins, containers, &mut found)
        });
        found
    }

    /// So many bins in which just those of `set` were busy.
    fn add(&mut self, set: u64, bins: u64, containers: &[Busy], found: &mut [Got]) {
        let before = self.epoch.busy;
        if set != before {
            self.close(set, containers, found);
            let came = only(set & !before);
            let after = only(before & !set).and_then(|left| self.next_of(left, set));
            self.epoch = Epoch {
                busy: set,
                first: if set & !before == 0 { after } else { came },
                has_come: came.is_some(),
                bins: 0,
            };
        }
        self.epoch.bins += bins;
        let all = sum_of_contexts(containers, set);
        for (one, got) in members(set, found) {
            got.bins += bins;
            got.permille += (bins * 1000 * contexts_of(containers, one) / all).cast_signed();
        }
    }

    /// The epoch is over, and `next` are busy then: who had more of its last round, and who less, than is counted so far.
    fn close(&mut self, next: u64, containers: &[Busy], found: &mut [Got]) {
        let Epoch {
            busy, first, bins, ..
        } = self.epoch;
        let count = i64::from(busy.count_ones());
        if count < 2 {
            return;
        }
        let is_single = |(one, _): (usize, &mut Got)| contexts_of(containers, one) <= ONE_CONTEXT_MOST;
        if !members(busy, found).all(is_single) {
            return;
        }
        let length = bins.cast_signed().saturating_mul(1000);
        let slice = SLICE;
        let rest = length % (count * slice);
        let last = only(busy & !next).filter(|_| next & !busy == 0);
        if let Some(last) = last {
            self.learn(last, rest, slice);
        }
        let round = first.map(|first| self.round_from(first)).unwrap_or_default();
        let of_last = (first.is_none() && last.is_some()).then_some(rest % slice);
        for (one, got) in members(busy, found) {
            let place = (0..).zip(&round).find(|(_, who)| **who == one);
            let own = match (place, of_last) {
                (Some((place, _)), _) => (rest - place * slice).clamp(0, slice),
                (None, Some(of_last)) if last == Some(one) => of_last,
                (None, Some(of_last)) => (rest - of_last) / (count - 1),
                (None, None) => rest / count,
            };
            got.permille += own - rest / count;
        }
    }

    /// The busy ones in the order of their slices, `first` first.
    fn round_from(&self, first: usize) -> Vec<usize> {
        let begin = self.circle.iter().position(|one| *one == first).unwrap_or(0);
        let (before, from) = self.circle.split_at(begin);
        let is_busy = |one: &usize| self.epoch.busy >> one & 1 == 1;
        from.iter().chain(before).copied().filter(is_busy).collect()
    }

    /// Who of `set` has the slice after that of `left`.
    fn next_of(&self, left: usize, set: u64) -> Option<usize> {
        let at = self.circle.iter().position(|one| *one == left)?;
        let (before, from) = self.circle.split_at(at);
        from.iter().chain(before).copied().find(|one| set >> one & 1 == 1)
    }

    /// `last` left when so much of a round was over: it was its slice. If the circle says another's, it is set right.
    fn learn(&mut self, last: usize, rest: i64, slice: i64) {
        let Some(first) = self.epoch.first else {
            return;
        };
        let round = self.round_from(first);
        let place = usize::try_from((rest - 1).max(0) / slice).unwrap_or(0);
        let (Some(&there), Some(here)) = (round.get(place), round.iter().position(|one| *one == last)) else {
            return;
        };
        if there == last || self.epoch.has_come && (place == 0 || here == 0) {
            return;
        }
        if place == 0 {
            self.epoch.first = Some(last);
        }
        self.circle.retain(|one| *one != last);
        let at = self.circle.iter().position(|one| *one == there).unwrap_or(0);
        self.circle.insert(if here < place { at + 1 } else { at }, last);
    }
}

/// Who is busy in the bin, and in how many from there on within the words.
fn run(words: &[u64], bin: u64) -> (u64, u64) {
    let mut set = 0;
    let mut bins = busy::BINS_PER_WORD - bin;
    for (position, word) in words.iter().take(MOST).enumerate() {
        let from = word >> bin;
        set |= (from & 1) << position;
        let same = if from & 1 == 1 {
            from.trailing_ones()
        } else {
            from.trailing_zeros()
        };
        bins = bins.min(u64::from(same));
    }
    (set, bins)
}

/// Tells who is busy, a bit each, and for how many bins, one after the other.
pub(super) fn for_each_run(containers: &[Busy], mut tell: impl FnMut(u64, u64)) {
    let length = containers.iter().map(|one| one.map.len()).max().unwrap_or(0);
    let mut words = vec![0; containers.len()];
    for place in 0..length {
        for (word, one) in words.iter_mut().zip(containers) {
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

/// Those of a set.
pub(super) fn members<T>(set: u64, all: &mut [T]) -> impl Iterator<Item = (usize, &mut T)> {
    let numbered = all.iter_mut().take(MOST).enumerate();
    numbered.filter(move |(one, _)| set >> one & 1 == 1)
}

/// The only member of a set.
fn only(set: u64) -> Option<usize> {
    (set.count_ones() == 1).then_some(set.trailing_zeros() as usize)
}

/// A container's contexts (thousandths).
pub(super) fn contexts_of(containers: &[Busy], one: usize) -> u64 {
    let contexts = containers.get(one).map_or(1, |one| one.contexts.permille);
    contexts.clamp(1, 1 << 32)
}

/// The contexts of all of a set (thousandths).
pub(super) fn sum_of_contexts(containers: &[Busy], set: u64) -> u64 {
    let busy = (0..containers.len().min(MOST)).filter(|one| set >> one & 1 == 1);
    busy.map(|one| contexts_of(containers, one)).sum::<u64>().max(1)
}

#[cfg(test)]
mod tests;
