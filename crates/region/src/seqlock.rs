//! A value of several words that one writer changes and many readers read: two copies and a sequence word.
//!
//! The writer fills the copy that readers do not use, then increments the sequence. A writer that is killed midway
//! leaves the used copy intact. A reader repeats only if a writer finished while it read: it never waits for one.

use crate::primitive::{AtomicU64, Ordering, fence};

/// `N` words that change together. Zeroed memory is a valid value of zeros.
#[repr(C)]
#[derive(Debug)]
pub struct Versioned<const N: usize> {
    sequence: AtomicU64,
    // The copy for even sequences comes first, see `stores`.
    copies: [[AtomicU64; N]; 2],
}

impl<const N: usize> Default for Versioned<N> {
    fn default() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            copies: core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

impl<const N: usize> Versioned<N> {
    /// Replaces the value. Writers must exclude each other: only one may be here at a time.
    pub fn write(&self, words: [u64; N]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        // A reader that sees one of the stores below in the copy that it uses also sees, at its second look, that the
        // sequence has changed: pairs with the acquire fence in `read_first`.
        fence(Ordering::Release);
        for (word, value) in self.copy(sequence.wrapping_add(1)).iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        // Pairs with the acquire load in `read_first`.
        self.sequence.store(sequence.wrapping_add(1), Ordering::Release);
    }

    /// The stores of [`Versioned::write`], for a writer that can reach the memory only through its file: offsets in
    /// bytes from the start of the value, to be written in this order. Bytes may arrive one after another. One bit of
    /// the sequence selects the copy, and both copies are complete when it changes.
    #[cfg(not(loom))]
    pub(crate) fn stores(&self, words: [u64; N]) -> [(usize, Vec<u8>); 2] {
        let next = self.sequence.load(Ordering::Relaxed).wrapping_add(1);
        let copies = size_of::<AtomicU64>();
        let copy = if next & 1 == 0 { copies } else { copies + N * size_of::<AtomicU64>() };
        [(copy, words.iter().flat_map(|word| word.to_ne_bytes()).collect()), (0, next.to_ne_bytes().to_vec())]
    }

    /// The value that the last finished write left.
    #[inline]
    pub fn read(&self) -> [u64; N] {
        self.read_first::<N>()
    }

    /// The first `M` words, all of the same write.
    #[inline]
    pub fn read_first<const M: usize>(&self) -> [u64; M] {
        const { assert!(M <= N) };
        let mut sequence = self.sequence.load(Ordering::Acquire);
        loop {
            let copy = self.copy(sequence);
            let mut words = [0; M];
            for (value, word) in words.iter_mut().zip(copy) {
                *value = word.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            let now = self.sequence.load(Ordering::Acquire);
            if now == sequence {
                return words;
            }
            sequence = now;
        }
    }

    #[inline]
    fn copy(&self, sequence: u64) -> &[AtomicU64; N] {
        let [even, odd] = &self.copies;
        if sequence & 1 == 0 { even } else { odd }
    }
}

/// A word by which a reader tells a value from a damaged one. It is no defence against malice.
pub fn checksum(salt: u64, words: &[u64]) -> u64 {
    words.iter().fold(salt ^ 0x9e37_79b9_7f4a_7c15, |sum, word| {
        let mixed = (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 32)
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_stops_midway_leaves_the_old_value() {
        let value = Versioned::<3>::default();
        value.write([1, 2, 3]);
        value.copies[0][0].store(9, Ordering::Relaxed);
        value.copies[0][1].store(9, Ordering::Relaxed);
        assert_eq!(value.read(), [1, 2, 3]);
        value.write([4, 5, 6]);
        assert_eq!(value.read(), [4, 5, 6]);
        assert_eq!(value.read_first::<2>(), [4, 5]);
    }

    #[test]
    fn what_is_stored_by_offset_is_what_a_write_stores() {
        let (value, elsewhere) = (Versioned::<3>::default(), Versioned::<3>::default());
        for round in 1..=3 {
            let words = [round, 10 * round, 100 * round];
            for (offset, bytes) in elsewhere.stores(words) {
                assert_ne!(elsewhere.read(), words, "before the last store");
                for (at, bytes) in bytes.as_chunks::<8>().0.iter().enumerate() {
                    let place = offset / 8 + at;
                    let word = match place.checked_sub(1) {
                        None => &elsewhere.sequence,
                        Some(place) => &elsewhere.copies[place / 3][place % 3],
                    };
                    word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
                }
            }
            value.write(words);
            assert_eq!(elsewhere.read(), words);
            assert_eq!(format!("{value:?}"), format!("{elsewhere:?}"));
        }
    }

    #[test]
    fn a_checksum_sees_every_bit() {
        let words = [7, 0, u64::MAX, 1 << 40];
        let sum = checksum(3, &words);
        assert_ne!(sum, checksum(4, &words));
        for word in 0..words.len() {
            for bit in 0..64 {
                let mut damaged = words;
                damaged[word] ^= 1 << bit;
                assert_ne!(checksum(3, &damaged), sum);
            }
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn loom_a_reader_sees_one_write_only() {
        crate::primitive::counted::model(3, || {
            let value = Arc::new(Versioned::<2>::default());
            let written = Arc::clone(&value);
            let writer = loom::thread::spawn(move || {
                for n in 1..=2 {
                    written.write([n, n]);
                }
            });
            let [first, second] = value.read();
            assert_eq!(first, second);
            writer.join().unwrap();
            assert_eq!(value.read(), [2, 2]);
        });
    }
}
