//! What a launch will cost: a table of learnt GPU times per kernel or graph.
//!
//! The table is static memory of the process (no allocation on the launch path), 1024 sets of four entries, relaxed
//! atomics throughout: a lost update costs a little accuracy of one prediction, and every prediction is corrected by the
//! next measured segment anyway. A set's keys and costs share one cache line.

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
const ANY_GRID: u64 = 63;

/// Identity of what is launched: kind (2 bits), grid class (6), shared-memory class (4), handle (52).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// A kernel by its raw handle, the number of its blocks (as a power of two) and its dynamic shared memory (as a class).
    #[inline]
    #[must_use]
    pub fn kernel(handle: usize, blocks: u64, shared_bytes: u32) -> Self {
        let grid = u64::from(64 - blocks.leading_zeros()).min(ANY_GRID - 1);
        let shared = u64::from(32 - shared_bytes.leading_zeros()) / 3;
        Self::pack(1, handle, (grid << 4) | shared)
    }

    /// The same kernel whatever its grid: the fallback when this grid was never seen.
    #[inline]
    #[must_use]
    pub fn function(handle: usize) -> Self {
        Self::pack(1, handle, ANY_GRID << 4)
    }

    /// A graph by its executable handle.
    #[inline]
    #[must_use]
    pub fn graph(handle: usize) -> Self {
        Self::pack(2, handle, 0)
    }

    /// A copy or a set of device memory, by its size (as a power of two): all of a kind and size cost alike.
    #[inline]
    #[must_use]
    pub fn transfer(kind: Transfer, bytes: u64) -> Self {
        let size = u64::from(64 - bytes.leading_zeros());
        Self::pack(3, kind as usize, size)
    }

    /// The handle of a kernel; nothing of what is no kernel.
    #[must_use]
    pub fn kernel_handle(self) -> Option<usize> {
        if self.0 >> 62 == 1 {
            usize::try_from((self.0 & HANDLE_BITS) << 2).ok()
        } else {
            None
        }
    }

    /// Handles are at least 4-aligned addresses below 2^54, so nothing of them is lost.
    const fn pack(kind: u64, handle: usize, class: u64) -> Self {
        Self((kind << 62) | ((class & 0x3ff) << 52) | ((handle as u64 >> 2) & HANDLE_BITS))
    }

    const fn set(self) -> usize {
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 54) as usize & (SETS - 1)
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

const HANDLE_BITS: u64 = (1 << 52) - 1;

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
#[repr(align(128))]
struct Set {
    keys: [AtomicU64; WAYS],
    /// `cost_ns << 8 | samples`, and [`COLLECTIVE`].
    costs: [AtomicU64; WAYS],
    /// The way that the next stranger takes.
    next: AtomicU32,
}

/// The table. It may live in a `static`.
#[derive(Debug)]
pub struct Table {
    sets: [Set; SETS],
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
                Set {
                    keys: [const { AtomicU64::new(0) }; WAYS],
                    costs: [const { AtomicU64::new(0) }; WAYS],
                    next: AtomicU32::new(0),
                }
            }; SETS],
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
        let number = key.set();
        let set = self.sets.get(number)?;
        for (way, (held, cost)) in set.keys.iter().zip(&set.costs).enumerate() {
            if held.load(Ordering::Relaxed) == key.0 {
                let word = cost.load(Ordering::Relaxed);
                return Some(Prediction {
                    index: index_of(number, way),
                    samples: samples_of(word),
                    is_collective: word & COLLECTIVE != 0,
                    cost_ns: cost_of(word),
                });
            }
        }
        None
    }

    /// Gives `key` an entry that starts at `start_ns`, in place of a free or an older one. An estimate counts as one sample:
    /// a copy's by its size, a graph's by its nodes, all of which were measured. What has no sample goes alone.
    #[cold]
    pub fn insert(&self, key: Key, start_ns: u64, is_estimate: bool) -> Prediction {
        let number = key.set();
        let start_ns = start_ns.clamp(LEAST_NS, MOST_NS);
        let Some(set) = self.sets.get(number) else {
            return Prediction {
                index: 0,
                samples: 0,
                is_collective: false,
                cost_ns: start_ns,
            };
        };
        let free = set.keys.iter().position(|held| held.load(Ordering::Relaxed) == 0);
        let way = free.unwrap_or_else(|| set.next.fetch_add(1, Ordering::Relaxed) as usize % WAYS);
        let samples = u8::from(is_estimate);
        if let (Some(held), Some(cost)) = (set.keys.get(way), set.costs.get(way)) {
            held.store(key.0, Ordering::Relaxed);
            cost.store(start_ns << 8 | u64::from(samples), Ordering::Relaxed);
        }
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
        let (number, way) = parts_of(index);
        if let Some(cost) = self.sets.get(number).and_then(|set| set.costs.get(way)) {
            cost.fetch_or(COLLECTIVE, Ordering::Relaxed);
        }
    }

    /// What an entry costs now, by its index.
    #[must_use]
    pub fn at(&self, index: u16) -> (u64, u8) {
        let (number, way) = parts_of(index);
        let word = self
            .sets
            .get(number)
            .and_then(|set| set.costs.get(way))
            .map_or(0, |cost| cost.load(Ordering::Relaxed));
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
            let (number, way) = parts_of(part.index);
            let Some(cell) = self.sets.get(number).and_then(|set| set.costs.get(way)) else {
                continue;
            };
            let word = cell.load(Ordering::Relaxed);
            let samples = samples_of(word);
            let gain = match samples {
                0 => 1.0,
                1..LEARNT => 0.5,
                LEARNT.. => 0.25,
            };
            let cost = cost_of(word) as f64 + gain * error * count * square / total;
            let cost = cost.clamp(LEAST_NS as f64, MOST_NS as f64) as u64;
            cell.store(
                (cost << 8) | (word & COLLECTIVE) | u64::from((samples + 1).min(SAMPLES_MAX)),
                Ordering::Relaxed,
            );
        }
    }

    /// Drops an entry: its handle was destroyed and may come back as something else.
    pub fn forget(&self, key: Key) {
        if let Some(set) = self.sets.get(key.set()) {
            for held in &set.keys {
                let _ = held.compare_exchange(key.0, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Keeps the estimate of one key but learns it anew (an executable graph was updated).
    pub fn relearn(&self, key: Key) {
        if let Some(set) = self.sets.get(key.set()) {
            for (held, cost) in set.keys.iter().zip(&set.costs) {
                if held.load(Ordering::Relaxed) == key.0 {
                    cost.fetch_and(!0xff, Ordering::Relaxed);
                }
            }
        }
    }

    /// Learns every entry anew, from its present estimate (a module was unloaded: its handles may be reused).
    pub fn relearn_all(&self) {
        for set in &self.sets {
            for (held, cost) in set.keys.iter().zip(&set.costs) {
                if held.load(Ordering::Relaxed) != 0 {
                    cost.fetch_and(!0xff, Ordering::Relaxed);
                }
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "4096 entries")]
#[inline]
const fn index_of(set: usize, way: usize) -> u16 {
    (set * WAYS + way) as u16
}

const fn parts_of(index: u16) -> (usize, usize) {
    (index as usize / WAYS, index as usize % WAYS)
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
