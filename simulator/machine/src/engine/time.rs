//! Time of the next event, and the effect of passing time.

use super::compute::slice_end;
use super::{FAR, Play};
use crate::core::COPYING;
use crate::ring::{Until, Work};

impl Play<'_> {
    /// The next time at which something can change; `FAR` if there is none.
    pub(super) fn next_event(&self) -> u64 {
        let now = self.core.now;
        let mut next = FAR;
        for active in self.active.iter() {
            let (Some(entry), Some(row)) = (active.entry, self.row(active)) else {
                continue;
            };
            if let Work::Kernel { until: Until::Opened(Some(at)), .. } = entry.work
                && at > now
            {
                next = next.min(at);
            }
            if row.phase == COPYING {
                next = next.min(row.left);
            } else if entry.arrival > now {
                next = next.min(entry.arrival);
            } else if let Work::Gate { opened: Some(at) } = entry.work
                && at > now
            {
                next = next.min(at);
            }
        }
        for (gpu, row) in self.core.gpus.iter().enumerate() {
            if row.switching_to != 0 {
                next = next.min(row.switch_until);
                continue;
            }
            for stream in self.running(gpu) {
                let left = self.core.streams.get(stream).map_or(u64::MAX, |row| row.left);
                next = next.min(now.saturating_add(left));
            }
            if let (true, Some(_)) = self.demand(gpu, row.resident) {
                next = next.min(slice_end(row.slice_start, now, self.rules.slice_ns_from(row.slice_start)));
            }
        }
        next
    }

    /// Advances time to `until`, without an event in between.
    pub(super) fn pass(&mut self, until: u64) {
        let now = self.core.now;
        let Some(gone) = until.checked_sub(now).filter(|gone| *gone > 0) else {
            return;
        };
        let mut order = std::mem::take(self.order);
        for gpu in 0..self.core.gpus.len() {
            order.clear();
            order.extend(self.running(gpu));
            let mut client = None;
            for stream in order.iter().copied() {
                let Some(row) = self.core.streams.get_mut(stream) else {
                    continue;
                };
                client = Some(row.client);
                // A kernel of infinite duration keeps its remaining time.
                if row.left != u64::MAX {
                    row.left = row.left.saturating_sub(gone);
                }
            }
            match client {
                Some(client) => self.serve(gpu, client, now, until),
                None => self.idle(gpu, now, until),
            }
        }
        *self.order = order;
        self.core.now = until;
    }

    /// Adds service time of `client`, once for all its streams.
    fn serve(&mut self, gpu: usize, client: u64, from: u64, until: u64) {
        let sample_ns = self.rules.sample_ns;
        if let Some(row) = self.core.gpus.get_mut(gpu) {
            row.busy_ns += until - from;
            row.busy.add(from, until, sample_ns);
        }
        let Some(position) = self.core.position_of_use(client, gpu as u64) else {
            return;
        };
        if let Some(row) = self.core.uses.get_mut(position) {
            row.service += until - from;
            row.last = until;
            row.busy.add(from, until, sample_ns);
        }
    }

    /// Handles idle time: a switch in progress ends later, and the resident context's next work begins a new slice.
    fn idle(&mut self, gpu: usize, from: u64, until: u64) {
        match self.core.gpus.get_mut(gpu) {
            Some(row) if row.switching_to == 0 => row.slice_start = until,
            Some(row) => row.switched_ns += until - from,
            None => {}
        }
    }
}
