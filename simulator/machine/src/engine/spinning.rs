//! Spinning kernels, which wait for peers (also on other GPUs) or for host memory. They occupy the GPU like any other, with
//! infinite time left until the event.

use super::Play;
use crate::ring::{Until, Work};

impl Play<'_> {
    /// Ends the spinning of kernels on this GPU whose event has come.
    pub(super) fn settle_spinning(&mut self, gpu: usize) {
        for position in 0..self.active.len() {
            let Some((duration, until)) = self.spinning(position, Some(gpu)) else {
                continue;
            };
            match until {
                Until::Met { rendezvous, parties } => self.complete_rendezvous(rendezvous, parties, duration),
                Until::Opened(Some(at)) if at <= self.core.now => self.release(position, duration),
                Until::Opened(_) | Until::Begun => {}
            }
        }
    }

    /// Duration and awaited event of the first kernel of an active stream, if it has begun and spins.
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

    /// Completes a rendezvous if all parties have begun.
    fn complete_rendezvous(&mut self, wanted: u64, parties: u64, duration: u64) {
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
