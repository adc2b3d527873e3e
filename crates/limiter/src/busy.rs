//! The busy map: the times at which a tenant had work on a device, in bins of 10 microseconds.
//!
//! The map is a ring of 4096 words, each with 48 bins and a 16-bit epoch tag, together just under two seconds. Every process of the
//! tenant sets the bins of the segments that it measured, and is charged only for bins that were not set before. So
//! overlapping streams, contexts and processes are charged once, whatever the order of their segments. Adjacent segments share
//! their rounded ends, so rounding has no bias. The arbiter reads the maps of all tenants to find those that were busy at the
//! same time ([`crate::controller`]).

use core::sync::atomic::{AtomicU64, Ordering};

/// Length of a bin (ns).
pub const BIN_NS: u64 = 10_000;
/// Number of words of a ring.
pub const WORDS: usize = 4096;
/// Number of bins in a word. The remaining 16 bits are the epoch tag.
pub const BINS_PER_WORD: u64 = 48;
/// Time that a ring spans (ns).
pub const RING_NS: u64 = BIN_NS * BINS_PER_WORD * WORDS as u64;

const BINS: u64 = (1 << BINS_PER_WORD) - 1;

/// Result of [`mark`]: number of bins of the segment, and of those that were not set before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marked {
    /// Number of bins that the segment covers after rounding both ends.
    pub covered: u64,
    /// Number of those bins that were not set before, or are older than the ring.
    pub fresh: u64,
}

impl Marked {
    /// The part of `elapsed_ns` to charge (ns): the part of fresh bins. A segment that is too short for a bin is charged whole.
    pub fn charge_ns(self, elapsed_ns: u64) -> u64 {
        if self.covered == 0 || self.fresh >= self.covered {
            return elapsed_ns;
        }
        let product = u128::from(elapsed_ns) * u128::from(self.fresh) / u128::from(self.covered);
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

/// Number of the bin whose start is nearest to `at_ns`.
pub const fn bin_of(at_ns: u64) -> u64 {
    at_ns.saturating_add(BIN_NS / 2) / BIN_NS
}

/// Sets the bins from `from_ns` to `to_ns` (monotonic clock) in the ring `words`. Returns the number of bins, and of new ones.
///
/// Bins older than the ring count as new, so that they are charged in full. An empty or reversed segment sets no bin.
pub fn mark(words: &[AtomicU64], from_ns: u64, to_ns: u64) -> Marked {
    let (from, to) = (bin_of(from_ns), bin_of(to_ns));
    let mut marked = Marked { covered: to.saturating_sub(from), fresh: 0 };
    if words.is_empty() || marked.covered == 0 {
        return marked;
    }
    let oldest = to.saturating_sub(words.len() as u64 * BINS_PER_WORD);
    marked.fresh = oldest.saturating_sub(from);
    marked.fresh += masks(from.max(oldest), to).map(|(word, mask)| mark_word(words, word, mask)).sum::<u64>();
    marked
}

/// Numbers of the words that hold the bins `from..to`, each with a mask of these bins.
fn masks(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let mask_of = move |word: u64| {
        let first = (word * BINS_PER_WORD).max(from);
        let end = ((word + 1) * BINS_PER_WORD).min(to);
        (word, BINS >> (BINS_PER_WORD - (end - first)) << (first % BINS_PER_WORD))
    };
    (from / BINS_PER_WORD..to.div_ceil(BINS_PER_WORD)).map(mask_of)
}

/// Sets `mask` in the ring's word number `word` (counted since the clock's zero). Returns the number of bins that were not set.
fn mark_word(words: &[AtomicU64], word: u64, mask: u64) -> u64 {
    let (index, tag) = place(words.len(), word);
    let Some(cell) = words.get(index) else {
        return u64::from(mask.count_ones());
    };
    let mut seen = cell.load(Ordering::Relaxed);
    loop {
        let held = if tag_of(seen) == tag {
            seen & BINS
        } else if is_newer(tag_of(seen), tag) {
            // The word holds bins of a later round, so these cannot be compared.
            return u64::from(mask.count_ones());
        } else {
            0
        };
        let fresh = mask & !held;
        if fresh == 0 && tag_of(seen) == tag {
            return 0;
        }
        let next = (u64::from(tag) << BINS_PER_WORD) | held | mask;
        match cell.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return u64::from(fresh.count_ones()),
            Err(now) => seen = now,
        }
    }
}

/// The 48 bins of the ring's word number `word`, from the `value` at its [`place`]. 0 if the value is of another round.
pub fn bins_of(value: u64, ring_words: usize, word: u64) -> u64 {
    if tag_of(value) == place(ring_words, word).1 { value & BINS } else { 0 }
}

/// The busy part of the time from `from_ns` to `to_ns` (monotonic clock) in thousandths, to the nearest words.
pub fn busy_permille(words: &[AtomicU64], from_ns: u64, to_ns: u64) -> u32 {
    let word_of = |at_ns: u64| at_ns / BIN_NS / BINS_PER_WORD;
    let (from, to) = (word_of(from_ns), word_of(to_ns));
    let seen = (to - from.min(to)).min(words.len() as u64);
    let busy: u64 = (to - seen..to)
        .filter_map(|word| Some((word, words.get(place(words.len(), word).0)?)))
        .map(|(word, cell)| bins_of(cell.load(Ordering::Relaxed), words.len(), word))
        .map(|bins| u64::from(bins.count_ones()))
        .sum();
    u32::try_from(busy * 1000 / (seen * BINS_PER_WORD).max(1)).unwrap_or(1000)
}

/// The busy time from `from_ns` to `to_ns` (monotonic clock) in ns, to the nearest bins, of at most the last round.
pub fn busy_ns(words: &[AtomicU64], from_ns: u64, to_ns: u64) -> u64 {
    let to = bin_of(to_ns);
    let from = bin_of(from_ns).max(to.saturating_sub(words.len() as u64 * BINS_PER_WORD)).min(to);
    let busy = masks(from, to).map(|(word, mask)| {
        let cell = words.get(place(words.len(), word).0);
        let bins = cell.map_or(0, |cell| bins_of(cell.load(Ordering::Relaxed), words.len(), word));
        u64::from((bins & mask).count_ones())
    });
    busy.sum::<u64>() * BIN_NS
}

/// Index of word number `word` in a ring, and its tag.
pub fn place(ring_words: usize, word: u64) -> (usize, u16) {
    let ring = ring_words.max(1) as u64;
    let index = usize::try_from(word % ring).unwrap_or(0);
    // The 1 is added, so that a zeroed page differs from the first round.
    let tag = (word / ring + 1) & 0xffff;
    (index, u16::try_from(tag).unwrap_or(0))
}

fn tag_of(value: u64) -> u16 {
    u16::try_from(value >> BINS_PER_WORD).unwrap_or(0)
}

/// Whether `seen` is a later round than `own`, modulo 65536. A zeroed word (tag 0) is older than all rounds.
fn is_newer(seen: u16, own: u16) -> bool {
    let ahead = seen.wrapping_sub(own);
    seen != 0 && ahead != 0 && ahead < 0x8000
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn the_busy_part_of_a_window() {
        let words = ring(WORDS);
        let word_ns = BIN_NS * BINS_PER_WORD;
        let begin = 10 * RING_NS;
        assert_eq!(busy_permille(&words, begin, begin + 100 * word_ns), 0);
        let _ = mark(&words, begin, begin + 30 * word_ns);
        assert_eq!(busy_permille(&words, begin, begin + 100 * word_ns), 300);
        assert_eq!(busy_permille(&words, begin + 50 * word_ns, begin + 100 * word_ns), 0);
        assert_eq!(busy_permille(&words, begin, begin), 0);
        assert_eq!(
            busy_permille(&words, begin + RING_NS, begin + RING_NS + 30 * word_ns),
            0,
            "a round later"
        );
        assert_eq!(busy_permille(&[], begin, begin + word_ns), 0);
        let across_ns = (begin + 29 * word_ns + 3 * BIN_NS, begin + 35 * word_ns);
        assert_eq!(busy_ns(&words, across_ns.0, across_ns.1), word_ns - 3 * BIN_NS, "to the bin");
        assert_eq!(busy_ns(&words, 0, begin + word_ns), word_ns, "one round back");
    }

    #[test]
    fn chained_segments_are_charged_without_bias() {
        let words = ring(WORDS);
        let mut at = 123_456_789_u64;
        let start = at;
        let mut bins = 0;
        for _ in 0..1000 {
            let next = at + 137_777;
            bins += mark(&words, at, next).fresh;
            at = next;
        }
        assert!((bins * BIN_NS).abs_diff(at - start) <= BIN_NS);
    }

    #[test]
    fn an_overlap_is_charged_once_in_any_order() {
        let words = ring(WORDS);
        let base = 77 * RING_NS + 5_000_000;
        assert_eq!(mark(&words, base + 1_000_000, base + 2_000_000), Marked { covered: 100, fresh: 100 });
        assert_eq!(mark(&words, base, base + 3_000_000), Marked { covered: 300, fresh: 200 });
        assert_eq!(mark(&words, base + 500_000, base + 2_500_000), Marked { covered: 200, fresh: 0 });
    }

    #[test]
    fn what_is_older_than_the_ring_is_charged_in_full() {
        let words = ring(WORDS);
        let late = 9 * RING_NS;
        assert_eq!(mark(&words, late, late + 10 * BIN_NS).fresh, 10);
        assert_eq!(mark(&words, late - 2 * RING_NS, late - 2 * RING_NS + 10 * BIN_NS).fresh, 10);
        assert_eq!(mark(&words, late, late + 10 * BIN_NS).fresh, 0);
        let long = mark(&words, late, late + 3 * RING_NS);
        assert_eq!(long.covered, long.fresh);
    }

    #[test]
    fn short_and_reversed_segments_set_nothing() {
        let words = ring(WORDS);
        assert_eq!(mark(&words, 1_000_000, 1_000_001), Marked::default());
        assert_eq!(mark(&words, 2_000_000, 1_000_000), Marked::default());
        assert_eq!(Marked::default().charge_ns(4_000), 4_000);
        assert_eq!(Marked { covered: 4, fresh: 1 }.charge_ns(40_000), 10_000);
        assert_eq!(mark(&[], 0, 1_000_000).fresh, 0);
    }

    proptest! {
        /// Compares with a plain set of bins, within a round of the ring.
        #[test]
        fn agrees_with_a_set(segments in prop::collection::vec((0_u64..1_900_000_000, 0_u64..9_000_000), 1..60), round in 0_u64..200_000) {
            let words = ring(WORDS);
            let base = round * RING_NS;
            let mut model = std::collections::BTreeSet::new();
            for (from, length) in segments {
                let (from, to) = (base + from, base + (from + length).min(1_900_000_000));
                let got = mark(&words, from, to);
                let fresh = (bin_of(from)..bin_of(to)).filter(|bin| model.insert(*bin)).count() as u64;
                prop_assert_eq!(got.fresh, fresh);
            }
            let read: u32 = (0..WORDS as u64)
                .map(|word| word + base / BIN_NS / BINS_PER_WORD)
                .filter_map(|word| words.get(place(WORDS, word).0).map(|cell| bins_of(cell.load(Ordering::Relaxed), WORDS, word)))
                .map(u64::count_ones)
                .sum();
            prop_assert_eq!(read as usize, model.len());
        }
    }
}
