//! Copy engines: each does one copy at a time in the order of submission, independent of the resident context.

use super::Play;
use crate::core::COPYING;
use crate::ring::Work;

/// Number of engines of a GPU.
const ENGINES: u64 = 4;

impl Play<'_> {
    /// Ends finished copies and begins others.
    pub(super) fn settle_copies(&mut self, gpu: usize) {
        for position in 0..self.active.len() {
            let Some(active) = self.active.get(position).filter(|active| active.gpu == gpu) else {
                continue;
            };
            let is_over =
                self.row(active).is_some_and(|row| row.phase == COPYING && row.left <= self.core.now);
            if is_over && !self.is_full() {
                self.complete(position);
            }
        }
        for engine in 0..ENGINES {
            self.begin_copy(gpu, engine);
        }
    }

    fn begin_copy(&mut self, gpu: usize, wanted: u64) {
        let mut first: Option<(u64, usize, u64)> = None;
        for active in self.active.iter().filter(|active| active.gpu == gpu) {
            let Some(entry) = active.entry else { continue };
            let Work::Copy { duration, engine } = entry.work else {
                continue;
            };
            if engine.min(ENGINES - 1) != wanted || entry.arrival > self.core.now {
                continue;
            }
            if self.is_copying(active) {
                return;
            }
            if first.is_none_or(|(arrival, row, _)| (entry.arrival, active.row) < (arrival, row)) {
                first = Some((entry.arrival, active.row, duration));
            }
        }
        let Some((_, row, duration)) = first else { return };
        let until = self.core.now.saturating_add(duration);
        if let Some(row) = self.core.streams.get_mut(row) {
            (row.phase, row.left) = (COPYING, until);
        }
        self.events += 1;
    }
}
