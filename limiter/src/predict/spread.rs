//! How launch costs are spread.

use core::sync::atomic::{AtomicU32, Ordering};

/// The 95th percentile of launch costs, from counts per quarter octave that fade: it sizes the window of work in flight.
#[derive(Debug)]
pub struct Spread {
    counts: [AtomicU32; CLASSES],
    total: AtomicU32,
}

const CLASSES: usize = 160;
const FADE_AT: u32 = 2048;

impl Default for Spread {
    fn default() -> Self {
        Self::new()
    }
}

impl Spread {
    /// No launches yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            counts: [const { AtomicU32::new(0) }; CLASSES],
            total: AtomicU32::new(0),
        }
    }

    /// Counts `launches` of `cost_ns` each.
    pub fn add(&self, cost_ns: u64, launches: u32) {
        if let Some(count) = self.counts.get(class_of(cost_ns)) {
            count.fetch_add(launches, Ordering::Relaxed);
        }
        if self
            .total
            .fetch_add(launches, Ordering::Relaxed)
            .saturating_add(launches)
            >= FADE_AT
        {
            let mut left = 0_u32;
            for count in &self.counts {
                let half = count.load(Ordering::Relaxed) / 2;
                count.store(half, Ordering::Relaxed);
                left = left.saturating_add(half);
            }
            self.total.store(left, Ordering::Relaxed);
        }
    }

    /// The cost that 95 of 100 launches do not exceed, in nanoseconds; 0 before the first.
    #[must_use]
    pub fn p95_ns(&self) -> u64 {
        let total: u64 = self
            .counts
            .iter()
            .map(|count| u64::from(count.load(Ordering::Relaxed)))
            .sum();
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += u64::from(count.load(Ordering::Relaxed));
            if total > 0 && seen * 100 >= total * 95 {
                return upper_of(class);
            }
        }
        0
    }
}

/// Quarter octaves: four classes per power of two.
const fn class_of(cost_ns: u64) -> usize {
    let cost = if cost_ns < 4 { 4 } else { cost_ns };
    let octave = cost.ilog2();
    let quarter = (cost >> (octave - 2)) & 3;
    let class = (octave as usize - 2) * 4 + quarter as usize;
    if class < CLASSES { class } else { CLASSES - 1 }
}

const fn upper_of(class: usize) -> u64 {
    let octave = class / 4;
    (5 + class as u64 % 4) << octave
}
