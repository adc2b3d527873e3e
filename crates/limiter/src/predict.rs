//! Prediction of a launch's cost: a table of learnt GPU times by kernel or graph.
//!
//! The table is static memory of the process, so that a launch allocates nothing. It has 4096 sets of four entries; a set is a
//! cache line, and its memory is only provided once it is used. All accesses are relaxed atomics: a lost update makes a prediction
//! slightly worse, and the next measured segment corrects it.

mod lesson;
mod misprediction;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use lesson::{Lesson, PARTS};
pub use misprediction::Misprediction;

/// Predicted cost of an unknown kernel (ns).
pub const UNKNOWN_NS: u64 = 20_000;
/// Least cost of a launch (ns).
pub const LEAST_NS: u64 = 200;
/// Number of samples after which a key counts as learnt.
pub const LEARNT: u8 = 4;

const SETS: usize = 4096;
/// Bits of a hash that are no set's number.
const REST_BITS: u32 = 52;
const WAYS: usize = 4;
const MOST_NS: u64 = 1 << 52;
/// Kinds of launches.
const KERNEL: u64 = 1;
const GRAPH: u64 = 2;
const TRANSFER: u64 = 3;
/// Class that no grid has: a grid has fewer than 2^63 blocks (CUDA C++ Programming Guide, "Compute Capabilities").
const ANY_GRID: u64 = 0;

/// Identity of a launch: handle (52 bits), grid class (6), shared-memory class (4), kind (2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// Key of a kernel: raw handle, class of the number of blocks (a power of two), and class of the dynamic shared memory.
    #[inline(always)]
    pub fn kernel(handle: usize, blocks: u64, shared_bytes: u32) -> Self {
        let grid = u64::from((blocks | 1).leading_zeros());
        // Most kernels have no dynamic shared memory.
        let shared = match shared_bytes {
            0 => 0,
            some => u64::from(32 - some.leading_zeros()) / 3,
        };
        Self::pack(KERNEL, handle, (grid << 4) | shared)
    }

    /// Key of the kernel for any grid: the fallback if this grid is unknown.
    #[inline]
    pub fn function(handle: usize) -> Self {
        Self::pack(KERNEL, handle, ANY_GRID << 4)
    }

    /// Key of a graph by its executable handle.
    #[inline]
    pub fn graph(handle: usize) -> Self {
        Self::pack(GRAPH, handle, 0)
    }

    /// Key of a copy or a memset of device memory by its size class (a power of two). All of a kind and size cost the same.
    #[inline]
    pub fn transfer(kind: Transfer, bytes: u64) -> Self {
        let size = u64::from(64 - bytes.leading_zeros());
        Self::pack(TRANSFER, kind as usize, size)
    }

    /// The handle of a kernel; `None` for other kinds.
    pub fn kernel_handle(self) -> Option<usize> {
        if self.0 & 3 == KERNEL { usize::try_from(self.0 >> 12 << 2).ok() } else { None }
    }

    /// Handles are addresses below 2^54 with an alignment of at least 4, so no bits are lost.
    const fn pack(kind: u64, handle: usize, class: u64) -> Self {
        Self((handle as u64) << 10 | class << 2 | kind)
    }

    const fn set(self) -> usize {
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> REST_BITS) as usize & (SETS - 1)
    }
}

/// Copy or memset of device memory that is no kernel of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Transfer {
    /// Copy from device memory to device memory.
    Copy = 4,
    /// Memset of device memory.
    Set = 8,
}

/// Predicted cost of a transfer of an unknown size (ns): a latency, and a terabyte per second.
pub const fn transfer_ns(bytes: u64) -> u64 {
    2_000 + bytes / 1_000
}

/// A prediction: the cost to charge, and the entry to correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// Index of the entry, for [`Table::learn`].
    pub index: u16,
    /// Number of measured samples, saturating.
    pub samples: u8,
    /// Predicted GPU time (ns), at least [`LEAST_NS`].
    pub cost_ns: u64,
}

/// Number of launches of a table entry in a measured segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// Index of the entry ([`Prediction::index`]).
    pub index: u16,
    /// Number of its launches in the segment.
    pub count: u16,
}

#[derive(Debug)]
struct Entry {
    /// The [`Key`]; 0 if the entry is free.
    key: AtomicU64,
    /// `cost_ns << 8 | samples`.
    cost: AtomicU64,
}

/// The entries that a key can have.
#[derive(Debug)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

/// The table of predictions. It can be a `static`.
#[derive(Debug)]
pub struct Table {
    sets: [Set; SETS],
    /// A bit for each set that ever had an entry.
    used: [AtomicU64; SETS / 64],
    /// Index of the entry that the next key replaces if its set is full.
    next: AtomicU32,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// Creates an empty table.
    pub const fn new() -> Self {
        Self {
            sets: [const { Set([const { Entry { key: AtomicU64::new(0), cost: AtomicU64::new(0) } }; WAYS]) };
                SETS],
            used: [const { AtomicU64::new(0) }; SETS / 64],
            next: AtomicU32::new(0),
        }
    }

    /// The learnt cost of `key`. An unknown key gets an entry with the cost of `family` (the same function with any grid) if that is
    /// known, else with [`UNKNOWN_NS`].
    #[inline]
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

    /// Creates an entry for `key` with the estimate `start_ns`, unless it has one.
    #[inline]
    pub fn expect(&self, key: Key, start_ns: impl FnOnce() -> u64) {
        if self.find(key).is_none() {
            self.insert(key, start_ns(), true);
        }
    }

    /// The entry of `key`; `None` if it has none.
    #[inline]
    pub fn find(&self, key: Key) -> Option<Prediction> {
        let (index, word) = self.word_of(key)?;
        Some(Prediction { index, samples: samples_of(word), cost_ns: cost_of(word) })
    }

    /// The entry of `key`; `None` if it is not learnt.
    #[inline(always)]
    pub fn find_learnt(&self, key: Key) -> Option<Prediction> {
        let (index, word) = self.word_of(key)?;
        let [samples, ..] = word.to_le_bytes();
        (samples >= LEARNT).then_some(Prediction {
            index,
            samples,
            // A learnt cost is at least `LEAST_NS`.
            cost_ns: word >> 8,
        })
    }

    /// Index and word of the entry of `key`; `None` if it has none.
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

    /// The entry at an index; `None` beyond the table.
    fn entry(&self, index: u16) -> Option<&Entry> {
        let index = usize::from(index);
        self.sets.get(index / WAYS)?.0.get(index % WAYS)
    }

    /// Creates an entry for `key` with the cost `start_ns`, in a free place or over another entry. An estimate counts as a sample: that of
    /// a copy by its size, or of a graph by its measured nodes. A launch without a sample waits until it is alone.
    #[expect(clippy::indexing_slicing, reason = "taken modulo the lengths")]
    #[cold]
    pub fn insert(&self, key: Key, start_ns: u64, is_estimate: bool) -> Prediction {
        let start_ns = start_ns.clamp(LEAST_NS, MOST_NS);
        let samples = u8::from(is_estimate);
        let number = key.set();
        let Set(entries) = &self.sets[number];
        let free = entries.iter().position(|entry| entry.key.load(Ordering::Relaxed) == 0);
        let way = free.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed) as usize % WAYS);
        self.used[number / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
        entries[way].key.store(key.0, Ordering::Relaxed);
        entries[way].cost.store(start_ns << 8 | u64::from(samples), Ordering::Relaxed);
        Prediction { index: index_of(number, way), samples, cost_ns: start_ns }
    }

    /// Present cost of the entry at an index (ns).
    pub fn at(&self, index: u16) -> (u64, u8) {
        let word = self.entry(index).map_or(0, |entry| entry.cost.load(Ordering::Relaxed));
        (cost_of(word), samples_of(word))
    }

    /// Corrects the entries of a segment that took `measured_ns` instead of the predicted `predicted_ns`.
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
            let u = if samples == 0 && count > 0.0 { own.max(error.abs() / count) } else { own };
            (u * u, count)
        };
        let total: f64 = parts.iter().map(uncertainty).map(|(square, count)| square * count * count).sum();
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
            entry.cost.store((cost << 8) | u64::from(samples.saturating_add(1)), Ordering::Relaxed);
        }
    }

    /// Lowers the cost of the entry at an index, which was measured at less (ns).
    pub fn lower(&self, index: u16, measured_ns: u64) {
        if let Some(entry) = self.entry(index) {
            let word = entry.cost.load(Ordering::Relaxed);
            let cost = cost_of(word).min(measured_ns.max(LEAST_NS));
            entry.cost.store(cost << 8 | u64::from(samples_of(word).saturating_add(1)), Ordering::Relaxed);
        }
    }

    /// Removes an entry whose handle was destroyed: the driver may reuse the handle for another object.
    pub fn forget(&self, key: Key) {
        if let Some((_, entry)) = self.entry_of(key) {
            let _ = entry.key.compare_exchange(key.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Keeps the cost of `key` as an estimate and learns it again, after an update of an executable graph.
    pub fn relearn(&self, key: Key) {
        if let Some((_, entry)) = self.entry_of(key) {
            entry.cost.fetch_and(!0xff, Ordering::Relaxed);
        }
    }

    /// Keeps all costs as estimates and learns them again, after a module was unloaded: its handles may be reused.
    pub fn relearn_all(&self) {
        for (word, sets) in self.used.iter().zip(self.sets.chunks(64)) {
            let mut bits = word.load(Ordering::Relaxed);
            while let Some(Set(entries)) = sets.get(bits.trailing_zeros() as usize) {
                bits &= bits - 1;
                for entry in entries {
                    entry.cost.fetch_and(!0xff, Ordering::Relaxed);
                }
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "16384 entries")]
#[inline]
const fn index_of(set: usize, way: usize) -> u16 {
    (set * WAYS + way) as u16
}

#[inline]
const fn samples_of(word: u64) -> u8 {
    let [low, ..] = word.to_le_bytes();
    low
}

#[inline]
const fn cost_of(word: u64) -> u64 {
    let cost = word >> 8;
    if cost < LEAST_NS { LEAST_NS } else { cost }
}

#[cfg(test)]
#[path = "predict_tests.rs"]
mod tests;
