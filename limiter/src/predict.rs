//! What a launch will cost: a table of learnt GPU times per kernel or graph.
//!
//! The table is static memory of the process (no allocation on the launch path), 1024 sets of four entries, relaxed
//! atomics throughout: a lost update costs a little accuracy of one prediction, and every prediction is corrected by the
//! next measured segment anyway. A set is one cache line.

mod misprediction;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use misprediction::Misprediction;

/// Predicted cost of a kernel of which nothing is known, in nanoseconds.
pub const UNKNOWN_NS: u64 = 20_000;
/// A launch never counts for less than this, in nanoseconds.
pub const LEAST_NS: u64 = 200;
/// Samples after which a key counts as learnt.
pub const LEARNT: u8 = 4;

const SAMPLES_MAX: u8 = 0x7f;
/// Set in the cost of a collective kernel.
const COLLECTIVE: u64 = 0x80;
const SETS: usize = 1024;
const WAYS: usize = 4;
const MOST_NS: u64 = 1 << 52;
/// Kinds of what is launched.
const KERNEL: u64 = 1;
const GRAPH: u64 = 2;
const TRANSFER: u64 = 3;
/// Class of no grid: a grid has fewer than 2^63 blocks (CUDA C++ Programming Guide, "Compute Capabilities").
const ANY_GRID: u64 = 0;

/// Identity of what is launched: handle (52 bits), grid class (6), shared-memory class (4), kind (2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// A kernel by its raw handle, the number of its blocks (as a power of two) and its dynamic shared memory (as a class).
    #[inline]
    #[must_use]
    pub fn kernel(handle: usize, blocks: u64, shared_bytes: u32) -> Self {
        let grid = u64::from((blocks | 1).leading_zeros());
        // Most kernels have none.
        let shared = match shared_bytes {
            0 => 0,
            some => u64::from(32 - some.leading_zeros()) / 3,
        };
        Self::pack(KERNEL, handle, (grid << 4) | shared)
    }

    /// The same kernel whatever its grid: the fallback when this grid was never seen.
    #[inline]
    #[must_use]
    pub fn function(handle: usize) -> Self {
        Self::pack(KERNEL, handle, ANY_GRID << 4)
    }

    /// A graph by its executable handle.
    #[inline]
    #[must_use]
    pub fn graph(handle: usize) -> Self {
        Self::pack(GRAPH, handle, 0)
    }

    /// A copy or a set of device memory, by its size (as a power of two): all of a kind and size cost alike.
    #[inline]
    #[must_use]
    pub fn transfer(kind: Transfer, bytes: u64) -> Self {
        let size = u64::from(64 - bytes.leading_zeros());
        Self::pack(TRANSFER, kind as usize, size)
    }

    /// The handle of a kernel; nothing of what is no kernel.
    #[must_use]
    pub fn kernel_handle(self) -> Option<usize> {
        if self.0 & 3 == KERNEL {
            usize::try_from(self.0 >> 12 << 2).ok()
        } else {
            None
        }
    }

    /// Handles are at least 4-aligned addresses below 2^54, so nothing of them is lost.
    const fn pack(kind: u64, handle: usize, class: u64) -> Self {
        Self((handle as u64) << 10 | class << 2 | kind)
    }

    const fn set(self) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize & (SETS - 1)
    }
}

/// What moves or sets device memory without being a kernel of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Transfer {
    /// From device memory to device memory.
    Copy = 4,
    /// A value to device memory.
    Set = 8,
}

/// Predicted cost of a transfer of a size that was never seen (ns): a latency, and a terabyte per second.
#[must_use]
pub const fn transfer_ns(bytes: u64) -> u64 {
    2_000 + bytes / 1_000
}

/// One prediction: what to charge, and where to post the correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// Position in the table, for [`Table::learn`].
    pub index: u16,
    /// Measured samples behind it, saturating.
    pub samples: u8,
    /// A kernel that spins until its peers on other devices do.
    pub is_collective: bool,
    /// Predicted GPU time in nanoseconds, at least [`LEAST_NS`].
    pub cost_ns: u64,
}

/// How often one table entry took part in a measured segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// The entry ([`Prediction::index`]).
    pub index: u16,
    /// Launches of it in the segment.
    pub count: u16,
}

#[derive(Debug)]
struct Entry {
    /// The [`Key`]; 0: free.
    key: AtomicU64,
    /// `cost_ns << 8 | samples`, and [`COLLECTIVE`].
    cost: AtomicU64,
}

/// The entries that a key can have.
#[derive(Debug)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

/// The table. It may live in a `static`.
#[derive(Debug)]
pub struct Table {
    sets: [Set; SETS],
    /// The way that the next key takes whose set is full.
    next: AtomicU32,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sets: [const {
                Set([const {
                    Entry {
                        key: AtomicU64::new(0),
                        cost: AtomicU64::new(0),
                    }
                }; WAYS])
            }; SETS],
            next: AtomicU32::new(0),
        }
    }

    /// The learnt cost of `key`. One that was never seen takes an entry, with the cost of `family` if that is known
    /// (the same function with another grid), else [`UNKNOWN_NS`].
    #[inline]
    #[must_use]
    pub fn predict(&self, key: Key, family: Key) -> Prediction {
        match self.find(key) {
            Some(found) => found,
            None => {
                let start = self
                    .find(family)
                    .filter(|known| known.samples > 0)
                    .map_or(UNKNOWN_NS, |known| known.cost_ns);
                self.insert(key, start, false)
            }
        }
    }

    /// Gives `key` an entry that is estimated at `start_ns`, if it has none.
    #[inline]
    pub fn expect(&self, key: Key, start_ns: impl FnOnce() -> u64) {
        if self.find(key).is_none() {
            self.insert(key, start_ns(), true);
        }
    }

    /// The entry of `key`, if it has one.
    #[inline]
    #[must_use]
    pub fn find(&self, key: Key) -> Option<Prediction> {
        let (index, word) = self.word_of(key)?;
        Some(Prediction {
            index,
            samples: samples_of(word),
            is_collective: word & COLLECTIVE != 0,
            cost_ns: cost_of(word),
        })
    }

    /// The entry of `key`, if that is learnt and no collective kernel's.
    #[inline(always)]
    #[must_use]
    pub fn find_learnt(&self, key: Key) -> Option<Prediction> {
        let (index, word) = self.word_of(key)?;
        let [samples, ..] = word.to_le_bytes();
        // With the bit of a collective kernel it is more.
        (LEARNT..=SAMPLES_MAX).contains(&samples).then_some(Prediction {
            index,
            samples,
            is_collective: false,
            // What was learnt is no less than `LEAST_NS`.
            cost_ns: word >> 8,
        })
    }

    /// The entry of `key`, if it has one: its index, and what stands there.
    #[inline(always)]
    fn word_of(&self, key: Key) -> Option<(u16, u64)> {
        let (index, entry) = self.entry_of(key)?;
        Some((index, entry.cost.load(Ordering::Relaxed)))
    }

    #[inline(always)]
    fn entry_of(&self, key: Key) -> Option<(u16, &Entry)> {
        let number = key.set();
        let Set(entries) = self.sets.get(number)?;
        let is_its = |(_, entry): &(usize, &Entry)| entry.key.load(Ordering::Relaxed) == key.0;
        let (way, entry) = entries.iter().enumerate().find(is_its)?;
        Some((index_of(number, way), entry))
    }

    /// The entry at an index.
    fn entry(&self, index: u16) -> Option<&Entry> {
        let index = usize::from(index);
        self.sets.get(index / WAYS)?.0.get(index % WAYS)
    }

    /// Gives `key` an entry that starts at `start_ns`, in place of a free or an older one. An estimate counts as one sample:
    /// a copy's by its size, a graph's by its nodes, all of which were measured. What has no sample goes alone.
    #[expect(clippy::indexing_slicing, reason = "taken modulo the lengths")]
    #[cold]
    pub fn insert(&self, key: Key, start_ns: u64, is_estimate: bool) -> Prediction {
        let start_ns = start_ns.clamp(LEAST_NS, MOST_NS);
        let samples = u8::from(is_estimate);
        let number = key.set();
        let Set(entries) = &self.sets[number];
        let free = entries
            .iter()
            .position(|entry| entry.key.load(Ordering::Relaxed) == 0);
        let way = free.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed) as usize % WAYS);
        entries[way].key.store(key.0, Ordering::Relaxed);
        entries[way]
            .cost
            .store(start_ns << 8 | u64::from(samples), Ordering::Relaxed);
        Prediction {
            index: index_of(number, way),
            samples,
            is_collective: false,
            cost_ns: start_ns,
        }
    }

    /// Notes that the entry is a collective kernel, until it is learnt anew.
    #[cold]
    pub fn note_collective(&self, index: u16) {
        if let Some(entry) = self.entry(index) {
            entry.cost.fetch_or(COLLECTIVE, Ordering::Relaxed);
        }
    }

    /// What an entry costs now, by its index.
    #[must_use]
    pub fn at(&self, index: u16) -> (u64, u8) {
        let word = self
            .entry(index)
            .map_or(0, |entry| entry.cost.load(Ordering::Relaxed));
        (cost_of(word), samples_of(word))
    }

    /// Corrects the entries of a segment that was predicted to take `predicted_ns` and took `measured_ns`.
    ///
    /// `p_k += gain (A - P) n_k u_k^2 / sum n_j^2 u_j^2`: the error goes to the entries in proportion to their
    /// uncertainty `u`, which is their cost, or the whole error while they have no sample. The gain is 1 for the first
    /// sample, then 1/2 for three, then 1/4.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate, clamped to its range before it is converted back"
    )]
    pub fn learn(&self, parts: &[Part], predicted_ns: u64, measured_ns: u64) {
        let error = measured_ns as f64 - predicted_ns as f64;
        let uncertainty = |part: &Part| {
            let (cost, samples) = self.at(part.index);
            let own = cost as f64;
            let count = f64::from(part.count);
            let u = if samples == 0 && count > 0.0 {
                own.max(error.abs() / count)
            } else {
                own
            };
            (u * u, count)
        };
        let total: f64 = parts
            .iter()
            .map(uncertainty)
            .map(|(square, count)| square * count * count)
            .sum();
        if total <= 0.0 {
            return;
        }
        for part in parts {
            let (square, count) = uncertainty(part);
            let Some(entry) = self.entry(part.index) else {
                continue;
            };
            let word = entry.cost.load(Ordering::Relaxed);
            let samples = samples_of(word);
            let gain = match samples {
                0 => 1.0,
                1..LEARNT => 0.5,
                LEARNT.. => 0.25,
            };
            let cost = cost_of(word) as f64 + gain * error * count * square / total;
            let cost = cost.clamp(LEAST_NS as f64, MOST_NS as f64) as u64;
            entry.cost.store(
                (cost << 8) | (word & COLLECTIVE) | u64::from((samples + 1).min(SAMPLES_MAX)),
                Ordering::Relaxed,
            );
        }
    }

    /// Drops an entry: its handle was destroyed and may come back as something else.
    pub fn forget(&self, key: Key) {
        if let Some((_, entry)) = self.entry_of(key) {
            let _ = entry
                .key
                .compare_exchange(key.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Keeps the estimate of one key but learns it anew (an executable graph was updated).
    pub fn relearn(&self, key: Key) {
        if let Some((_, entry)) = self.entry_of(key) {
            entry.cost.fetch_and(!0xff, Ordering::Relaxed);
        }
    }

    /// Learns every entry anew, from its present estimate (a module was unloaded: its handles may be reused).
    pub fn relearn_all(&self) {
        for entry in self.sets.iter().flat_map(|Set(entries)| entries) {
            if entry.key.load(Ordering::Relaxed) != 0 {
                entry.cost.fetch_and(!0xff, Ordering::Relaxed);
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "4096 entries")]
#[inline]
const fn index_of(set: usize, way: usize) -> u16 {
    (set * WAYS + way) as u16
}

#[inline]
const fn samples_of(word: u64) -> u8 {
    let [low, ..] = word.to_le_bytes();
    low & SAMPLES_MAX
}

#[inline]
const fn cost_of(word: u64) -> u64 {
    let cost = word >> 8;
    if cost < LEAST_NS { LEAST_NS } else { cost }
}

#[cfg(test)]
#[path = "predict_tests.rs"]
mod tests;
