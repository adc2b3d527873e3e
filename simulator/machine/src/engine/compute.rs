//! Time slices of contexts, and concurrent kernels within the resident context.

use super::{Active, Play};
use crate::SliceOrder;
use crate::core::RUNNING;
use crate::ring::{Until, Work};

impl Play<'_> {
    /// Does everything on this GPU's compute side that needs no time.
    pub(super) fn settle_compute(&mut self, gpu: usize) {
        self.end_switch(gpu);
        let Some((resident, false)) =
            self.core.gpus.get(gpu).map(|row| (row.resident, row.switching_to != 0))
        else {
            return;
        };
        self.finish_instants(gpu, resident);
        self.begin_kernels(gpu, resident);
        self.begin_switch(gpu, resident);
    }

    fn end_switch(&mut self, gpu: usize) {
        let now = self.core.now;
        let Some(row) = self.core.gpus.get_mut(gpu) else {
            return;
        };
        if row.switching_to != 0 && row.switch_until <= now {
            (row.resident, row.switching_to, row.slice_start) = (row.switching_to, 0, now);
            self.events += 1;
        }
    }

    fn finish_instants(&mut self, gpu: usize, resident: u64) {
        for position in 0..self.active.len() {
            while !self.is_full()
                && self.on(position, gpu, resident).is_some_and(|active| self.is_instant(&active))
            {
                self.complete(position);
            }
        }
    }

    /// Begins kernels by priority and arrival until one does not fit. None overtakes another, so none starves.
    fn begin_kernels(&mut self, gpu: usize, resident: u64) {
        let sms = self.rules.sms.get(gpu).copied().unwrap_or(1);
        let mut free = sms;
        let mut order = std::mem::take(self.order);
        order.clear();
        for (position, active) in self.active.iter().enumerate() {
            if active.gpu != gpu || active.context != resident {
                continue;
            }
            if self.is_running(active) {
                free = free.saturating_sub(self.width(active, sms));
            } else if self.is_runnable(active) {
                order.push(position);
            }
        }
        if order.len() > 1 {
            order.sort_unstable_by_key(|position| self.rank(*position));
        }
        for position in order.iter().copied() {
            let Some(active) = self.active.get(position).copied() else {
                continue;
            };
            let Some(Work::Kernel { duration, until, .. }) = active.entry.map(|entry| entry.work) else {
                continue;
            };
            let width = self.width(&active, sms);
            if width > free {
                break;
            }
            free -= width;
            if let Some(row) = self.core.streams.get_mut(active.row) {
                let left = if until == Until::Begun { duration } else { u64::MAX };
                (row.phase, row.left) = (RUNNING, left);
            }
            self.events += 1;
            self.note_first_run(&active);
        }
        *self.order = order;
    }

    fn note_first_run(&mut self, active: &Active) {
        let now = self.core.now;
        let Some(client) = self.row(active).map(|row| row.client) else {
            return;
        };
        let Some(position) = self.core.position_of_use(client, active.gpu as u64) else {
            return;
        };
        if let Some(row) = self.core.uses.get_mut(position)
            && row.has_run == 0
        {
            (row.has_run, row.first, row.last) = (1, now, now);
        }
    }

    /// Begins a context switch if another context has work, and the resident one has none or its slice is over.
    fn begin_switch(&mut self, gpu: usize, resident: u64) {
        let (has_work, other) = self.demand(gpu, resident);
        let (now, switch_ns, rules) = (self.core.now, self.rules.switch_ns, self.rules);
        let (Some(next), Some(row)) = (other, self.core.gpus.get_mut(gpu)) else {
            return;
        };
        let elapsed = now.saturating_sub(row.slice_start);
        let is_over = elapsed > 0 && elapsed % rules.slice_ns_from(row.slice_start) == 0;
        if has_work && !is_over {
            return;
        }
        if resident == 0 || switch_ns == 0 {
            (row.resident, row.slice_start) = (next, now);
        } else {
            (row.switching_to, row.switch_until) = (next, now.saturating_add(switch_ns));
        }
        self.events += 1;
    }

    /// Whether the resident context has work, and the next other context with work.
    pub(super) fn demand(&self, gpu: usize, resident: u64) -> (bool, Option<u64>) {
        let mut has_work = false;
        let mut other: Option<(u64, u64)> = None;
        for active in self.active.iter() {
            if active.gpu != gpu || !self.is_runnable(active) {
                continue;
            }
            if active.context == resident {
                has_work = true;
            } else {
                let turn = self.turn(active, resident);
                other = other.filter(|(best, _)| *best < turn).or(Some((turn, active.context)));
            }
        }
        (has_work, other.map(|(_, context)| context))
    }

    /// Rank of a context in the slice order; the lowest is next.
    fn turn(&self, active: &Active, resident: u64) -> u64 {
        match self.rules.order {
            // Distance from the resident context's id, modulo 2^64.
            SliceOrder::RoundRobin => active.context.wrapping_sub(resident),
            SliceOrder::Arrival => active.entry.map_or(u64::MAX, |entry| entry.arrival),
        }
    }

    fn on(&self, position: usize, gpu: usize, context: u64) -> Option<Active> {
        self.active.get(position).copied().filter(|active| active.gpu == gpu && active.context == context)
    }

    /// Number of multiprocessors that the first kernel takes.
    fn width(&self, active: &Active, all: u64) -> u64 {
        match active.entry.map(|entry| entry.work) {
            Some(Work::Kernel { sms, .. }) if sms > 0 => sms.min(all),
            _ => all,
        }
    }

    /// Sort key of kernels that could begin.
    fn rank(&self, position: usize) -> (u64, u64, u64) {
        let Some(active) = self.active.get(position) else {
            return (u64::MAX, 0, 0);
        };
        let arrival = active.entry.map_or(u64::MAX, |entry| entry.arrival);
        self.row(active).map_or((u64::MAX, 0, 0), |row| (row.priority, arrival, row.id))
    }

    /// Streams of the resident context whose kernel runs; none during a switch.
    pub(super) fn running(&self, gpu: usize) -> impl Iterator<Item = usize> + '_ {
        let resident = self.core.gpus.get(gpu).filter(|row| row.switching_to == 0).map(|row| row.resident);
        self.active
            .iter()
            .filter(move |active| {
                active.gpu == gpu && Some(active.context) == resident && self.is_running(active)
            })
            .map(|active| active.row)
    }
}

/// End of the slice that contains `now`, counted from `start`.
pub(super) fn slice_end(start: u64, now: u64, slice_ns: u64) -> u64 {
    let slices = now.saturating_sub(start) / slice_ns + 1;
    start.saturating_add(slices.saturating_mul(slice_ns))
}
