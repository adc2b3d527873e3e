//! Kernels that spin: for their peers, which may be on other GPUs, or for memory of the host. They occupy the GPU like any
//! other; of time they have endlessly much left until what they wait for has come.

use super::Play;
use crate::ring::{Until, Work};

impl Play<'_> {
    /// Ends the spinning of kernels on this GPU for which what they wait for has come.
    pub(super) fn settle_spinning(&mut self, gpu: usize) {
        for position in 0..self.active.len() {
            let Some((duration, until)) = self.spinning(position, Some(gpu)) else {
                continue;
            };
            match until {
                Until::Met { rendezvous, parties } => self.meet(rendezvous, parties, duration),
                Until::Opened(Some(at)) if at <= self.core.now => self.release(position, duration),
                Until::Opened(_) | Until::Begun => {}
            }
        }
    }

    /// The kernel at the head of an active stream, if it has begun and still spins: its duration, and for what.
    fn spinning(&self, position: usize, gpu: Option<usize>) -> Option<(u64, Until)> {
        let active = self.active.get(position)?;
        if gpu.is_some_and(|gpu| gpu != active.gpu) || !self.is_running(active) {
            return None;
        }
        let Work::Kernel { duration, until, .. } = active.entry?.work else {
            return None;
        };
        let spins = until != Until::Begun && self.row(active)?.left == u64::MAX;
        spins.then_some((duration, until))
    }

    /// All parties go on together, or none.
    fn meet(&mut self, wanted: u64, parties: u64, duration: u64) {
        let there: Vec<usize> = (0..self.active.len())
            .filter(|position| {
                let until = self.spinning(*position, None).map(|(_, until)| until);
                matches!(until, Some(Until::Met { rendezvous, .. }) if rendezvous == wanted)
            })
            .collect();
        if there.len() as u64 >= parties {
            for position in there {
                self.release(position, duration);
            }
        }
    }

    fn release(&mut self, position: usize, duration: u64) {
        let row = self.active.get(position).map(|active| active.row);
        if let Some(row) = row.and_then(|row| self.core.streams.get_mut(row)) {
            row.left = duration;
            self.events += 1;
        }
    }
}
