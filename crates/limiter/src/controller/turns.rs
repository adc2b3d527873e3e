//! GPU time that each of several busy tenants got while the GPU gave time slices to their contexts in turn.
//!
//! No process can observe the slices. The busy maps show the times at which each tenant was busy. A tenant becomes busy when its first
//! slice begins, as its timing event runs in a slice of its own context, and stops within one of its slices. So time is cut into
//! *epochs*, in each of which the same tenants were busy. Whole rounds of an epoch are divided equally. In the last, unfinished round:
//!
//! * The tenant that became busy had the first slice. If one stopped instead, the next in the circle had it.
//! * The others follow in the order of the circle, up to the tenant that stops within its slice, or until one becomes busy.
//!
//! The switch to a tenant that becomes busy is in the time of those that were busy before. A tenant of several processes pays for
//! it: while its processes take turns, a busy neighbour would pay for all their switches.
//!
//! The order of the circle is learnt from the times at which tenants stopped.

use super::Busy;
use super::sets::{contexts_of, for_each_run, members, only, sum_of_contexts};
use crate::busy;

/// Length of a slice and the switch before it (ns), and in thousandths of a bin: 2.091 ms and 0.152 ms on an H200 (docs/hardware.md,
/// "turns between contexts"). With other lengths shares are off by up to seven points of the GPU (docs/evidence.md).
pub const SLICE_NS: u64 = 2_240_000;
const SLICE: i64 = (SLICE_NS / busy::BIN_NS).cast_signed() * 1000;
/// Duration of a switch to another context (ns), and in thousandths of a bin: 0.152 ms on an H200 and an H100 (docs/hardware.md,
/// "turns between contexts").
const SWITCH_NS: u64 = 152_000;
const SWITCH: i64 = SWITCH_NS.cast_signed() * 1000 / busy::BIN_NS.cast_signed();
/// A single context (thousandths).
const ONE: i64 = 1_000;
/// Number of contexts above which a tenant has several slices in a round (thousandths). Their order is not known.
const ONE_CONTEXT_MOST: u64 = 1_500;

/// GPU time of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Got {
    /// Number of bins in which the tenant was busy.
    pub bins: u64,
    /// The tenant's part of them (thousandths of a bin); negative if it corrects an earlier call.
    pub permille: i64,
}

/// Time in which the same tenants were busy.
#[derive(Debug, Clone, Copy, Default)]
struct Epoch {
    /// Busy tenants, a bit for each.
    busy: u64,
    /// Tenant that had the first slice, if known.
    first: Option<usize>,
    /// Whether `first` became busy at the start. If not, it was concluded from the circle.
    has_come: bool,
    /// Duration, in bins.
    bins: u64,
}

/// Time slices of a GPU.
#[derive(Debug, Default)]
pub struct Turns {
    epoch: Epoch,
    /// Cyclic order of the tenants' slices, as far as known.
    circle: Vec<usize>,
}

impl Turns {
    /// GPU time of each tenant in the next words of the busy maps, which must follow those of the last call. The end of an epoch corrects
    /// the parts that earlier calls returned for it.
    pub fn pass(&mut self, tenants: &[Busy]) -> Vec<Got> {
        self.circle.retain(|one| *one < tenants.len());
        for one in self.circle.len()..tenants.len() {
            self.circle.push(one);
        }
        let mut found = vec![Got::default(); tenants.len()];
        for_each_run(tenants, |set, bins| self.add(set, bins, tenants, &mut found));
        found
    }

    /// Adds `bins` bins in which exactly the tenants of `set` were busy.
    fn add(&mut self, set: u64, bins: u64, tenants: &[Busy], found: &mut [Got]) {
        let before = self.epoch.busy;
        if set != before {
            self.close(set, tenants, found);
            let came = only(set & !before);
            if let Some(came) =
                came.filter(|came| tenants.get(*came).is_some_and(|one| one.has_several_processes))
            {
                self.charge_switch(came, set & before, found);
            }
            let after = only(before & !set).and_then(|left| self.next_of(left, set));
            self.epoch = Epoch {
                busy: set,
                first: if set & !before == 0 { after } else { came },
                has_come: came.is_some(),
                bins: 0,
            };
        }
        self.epoch.bins += bins;
        let all = sum_of_contexts(tenants, set);
        for (one, got) in members(set, found) {
            got.bins += bins;
            got.permille += (bins * 1000 * contexts_of(tenants, one) / all).cast_signed();
        }
    }

    /// Charges `came`, which becomes busy, for the switch to it. The time of the switch was divided among those of `stay`.
    fn charge_switch(&self, came: usize, stay: u64, found: &mut [Got]) {
        let count = i64::from(stay.count_ones());
        let each =
            SWITCH.min(self.epoch.bins.cast_signed().saturating_mul(1000)).checked_div(count).unwrap_or(0);
        members(stay, found).for_each(|(_, got)| got.permille -= each);
        members(1 << came, found).for_each(|(_, got)| got.permille += each * count);
    }

    /// Ends the epoch, after which `next` are busy: corrects each tenant's part of its last round.
    fn close(&mut self, next: u64, tenants: &[Busy], found: &mut [Got]) {
        let Epoch { busy, first, bins, .. } = self.epoch;
        let count = i64::from(busy.count_ones());
        if count < 2 {
            return;
        }
        let is_single = |(one, _): (usize, &mut Got)| contexts_of(tenants, one) <= ONE_CONTEXT_MOST;
        if !members(busy, found).all(is_single) {
            self.close_of_several(next, tenants, found);
            return;
        }
        let length = bins.cast_signed().saturating_mul(1000);
        let slice = SLICE;
        let rest = length % (count * slice);
        let last = only(busy & !next).filter(|_| next & !busy == 0);
        if let Some(last) = last {
            self.learn(last, rest, slice);
        }
        let round = first.map(|first| self.round_from(first)).unwrap_or_default();
        let of_last = (first.is_none() && last.is_some()).then_some(rest % slice);
        for (one, got) in members(busy, found) {
            let place = (0..).zip(&round).find(|(_, who)| **who == one);
            let own = match (place, of_last) {
                (Some((place, _)), _) => (rest - place * slice).clamp(0, slice),
                (None, Some(of_last)) if last == Some(one) => of_last,
                (None, Some(of_last)) => (rest - of_last) / (count - 1),
                (None, None) => rest / count,
            };
            got.permille += own - rest / count;
        }
    }

    /// As [`Self::close`], if a tenant has several contexts, whose order is not known. In the last, unfinished round the first slice is that
    /// of the tenant that became busy, and the last slice that of the tenant that stopped. The other contexts share the time between.
    fn close_of_several(&self, next: u64, tenants: &[Busy], found: &mut [Got]) {
        let Epoch { busy, first, has_come, bins } = self.epoch;
        let all = sum_of_contexts(tenants, busy).cast_signed();
        let rest = bins.cast_signed().saturating_mul(1000) % (all * SLICE / 1000).max(1);
        let first = first.filter(|_| has_come);
        let last = only(busy & !next).filter(|_| next & !busy == 0);
        let of_first = if first.is_some() { rest.min(SLICE) } else { 0 };
        let of_last = if last.is_some() { (rest - of_first) % SLICE } else { 0 };
        let slices = |one| {
            [(first, of_first), (last, of_last)]
                .map(|(whose, part)| if whose == Some(one) { part } else { 0 })
        };
        let others = |one| {
            let had: i64 = slices(one).map(|part| part.min(1) * ONE).iter().sum();
            (contexts_of(tenants, one).cast_signed() - had).max(0)
        };
        let of_others = members(busy, found).map(|(one, _)| others(one)).sum::<i64>();
        for (one, got) in members(busy, found) {
            let contexts = contexts_of(tenants, one).cast_signed();
            let (part, parts) = if of_others > 0 { (others(one), of_others) } else { (contexts, all) };
            let own = slices(one).iter().sum::<i64>() + (rest - of_first - of_last) * part / parts;
            got.permille += own - rest * contexts / all;
        }
    }

    /// The busy tenants in the order of their slices, from `first` on.
    fn round_from(&self, first: usize) -> Vec<usize> {
        let begin = self.circle.iter().position(|one| *one == first).unwrap_or(0);
        let (before, from) = self.circle.split_at(begin);
        let is_busy = |one: &usize| self.epoch.busy >> one & 1 == 1;
        from.iter().chain(before).copied().filter(is_busy).collect()
    }

    /// Tenant of `set` whose slice is next after that of `left`.
    fn next_of(&self, left: usize, set: u64) -> Option<usize> {
        let at = self.circle.iter().position(|one| *one == left)?;
        let (before, from) = self.circle.split_at(at);
        from.iter().chain(before).copied().find(|one| set >> one & 1 == 1)
    }

    /// Corrects the circle: `last` stopped after `rest` of a round, so its slice was there.
    fn learn(&mut self, last: usize, rest: i64, slice: i64) {
        let Some(first) = self.epoch.first else {
            return;
        };
        let round = self.round_from(first);
        let place = usize::try_from((rest - 1).max(0) / slice).unwrap_or(0);
        let (Some(&there), Some(here)) = (round.get(place), round.iter().position(|one| *one == last)) else {
            return;
        };
        if there == last || self.epoch.has_come && (place == 0 || here == 0) {
            return;
        }
        if place == 0 {
            self.epoch.first = Some(last);
        }
        self.circle.retain(|one| *one != last);
        let at = self.circle.iter().position(|one| *one == there).unwrap_or(0);
        self.circle.insert(if here < place { at + 1 } else { at }, last);
    }
}

#[cfg(test)]
mod tests;
