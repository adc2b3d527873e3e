//! GPU time that no process settles: of a process that is stopped or dead, or whose worker gets no processor (I16).
//!
//! A process charges its own work, once its worker sees what the work took. Until then the arbiter charges the time for which
//! that could have run: since the worker last looked, without what the tenant's other processes were charged for, and at most
//! [`LONGEST_NS`]. A process that goes on settles all of it by itself, so it gets back what the arbiter charged.

use std::collections::BTreeMap;

use vcuda_limiter::busy::{BIN_NS, BINS_PER_WORD};
use vcuda_limiter::controller::word_at;
use vcuda_region::slots::SILENT_NS;
use vcuda_region::usage_reader::Work;

/// Most that is charged for one process that does not settle (ns), and for how long a tenant's name keeps its debt.
pub(crate) const LONGEST_NS: u64 = 2_000_000_000;
/// After so long it may be (ns): a busy worker looks each 16 ms.
const SUSPECT_NS: u64 = 50_000_000;
/// Age below which the busy map is not read (ns): the tenant's other processes have not entered their work yet.
const ENTER_LAG_NS: u64 = 20_000_000;
/// A word of the busy map in which all bins are busy.
const FULL: u64 = (1 << BINS_PER_WORD) - 1;

/// One look at a tenant's processes.
pub(crate) struct Look<'a> {
    /// When it is (`CLOCK_MONOTONIC`, ns).
    pub(crate) now_ns: u64,
    /// Since when this arbiter charges (`CLOCK_MONOTONIC`, ns): what was before, another one has charged.
    pub(crate) since_ns: u64,
    /// Value of elapsed time (thousandths).
    pub(crate) scale_permille: u32,
    /// Whether a process has ended, and nothing keeps its contexts.
    pub(crate) is_gone: &'a dyn Fn(&Work) -> bool,
    /// The tenant's busy map from one word up to another.
    pub(crate) busy: &'a dyn Fn(u64, u64) -> Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Process {
    /// State of its slot: another one is another process.
    state: u64,
    settled_ns: u64,
    /// No work of it that is in flight began before (ns).
    from_ns: u64,
    /// Latest time up to which work in flight is charged (ns).
    until_ns: u64,
    /// When it was first seen with work in flight since its worker last looked (ns).
    at_work_ns: Option<u64>,
    /// Charge so far for the work in flight (ns of GPU time).
    charged_ns: u64,
    /// It is dead, and was charged for the last time.
    is_over: bool,
}

/// Charges to one tenant on one GPU for work that its processes do not settle.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// By slot.
    processes: BTreeMap<usize, Process>,
    /// The words of the busy map that were charged last.
    span: (u64, u64),
    due_ns: i64,
    has_changed: bool,
    is_watched: bool,
}

impl Unsettled {
    /// Looks at all processes of the tenant that hold a slot.
    pub(crate) fn follow(&mut self, works: &[Work], look: &Look<'_>) {
        (self.has_changed, self.is_watched) = (false, false);
        let mut before = std::mem::take(&mut self.processes);
        for work in works.iter().filter(|work| work.settled_ns != 0) {
            let known = before.remove(&work.slot).filter(|process| process.state == work.state);
            let process = self.follow_one(known, work, look);
            self.processes.insert(work.slot, process);
        }
        // Their slots were cleared. One that was heard of just before has settled its work, as far as is known.
        for mut process in before.into_values().filter(|process| !process.is_over) {
            let is_suspect = look.now_ns.saturating_sub(process.settled_ns) >= SUSPECT_NS;
            if process.at_work_ns.is_some() && is_suspect {
                self.charge(&mut process, look.now_ns, look);
            }
        }
    }

    fn follow_one(&mut self, known: Option<Process>, work: &Work, look: &Look<'_>) -> Process {
        let now_ns = look.now_ns;
        let mut process = known.unwrap_or(Process {
            state: work.state,
            settled_ns: work.settled_ns,
            from_ns: work.settled_ns.clamp(look.since_ns.min(now_ns), now_ns),
            until_ns: work.settled_ns.saturating_add(LONGEST_NS),
            at_work_ns: None,
            charged_ns: 0,
            is_over: false,
        });
        if work.launches == 0 || work.settled_ns != process.settled_ns {
            // It has settled by itself what was charged for it.
            self.give_back(process.charged_ns);
            let from_ns = if work.launches == 0 { now_ns } else { work.settled_ns.min(now_ns) };
            process = Process {
                settled_ns: work.settled_ns,
                from_ns,
                until_ns: from_ns + LONGEST_NS,
                at_work_ns: None,
                charged_ns: 0,
                ..process
            };
        }
        if work.launches == 0 || process.is_over {
            return process;
        }
        let at_work_ns = *process.at_work_ns.get_or_insert(now_ns);
        self.is_watched |=
            now_ns < process.until_ns && now_ns.saturating_sub(process.settled_ns) >= SUSPECT_NS;
        if (look.is_gone)(work) {
            self.charge(&mut process, now_ns, look);
            process.is_over = true;
        } else if now_ns.saturating_sub(at_work_ns) >= SILENT_NS {
            self.charge(&mut process, now_ns.saturating_sub(ENTER_LAG_NS), look);
        }
        process
    }

    /// Charges a process for the time up to `to_ns` in which nothing else of the tenant was charged.
    fn charge(&mut self, process: &mut Process, to_ns: u64, look: &Look<'_>) {
        let (begin, end) = self.span;
        let from = word_at(process.from_ns);
        let to = word_at(to_ns.min(process.until_ns));
        let first = from.max(end);
        if to <= first {
            return;
        }
        let bins: u64 = (look.busy)(first, to).iter().map(|word| u64::from(word.count_ones())).sum();
        let fresh_ns = ((to - first) * BINS_PER_WORD).saturating_sub(bins) * BIN_NS;
        let charged_ns = fresh_ns * u64::from(look.scale_permille) / 1000;
        process.charged_ns += charged_ns;
        self.due_ns += charged_ns.cast_signed();
        self.has_changed = true;
        self.span = (if from < end { begin } else { from }, to);
    }

    fn give_back(&mut self, charged_ns: u64) {
        if charged_ns > 0 {
            self.due_ns -= charged_ns.cast_signed();
            self.has_changed = true;
            // The process enters by itself when it was busy.
            self.span.0 = self.span.1;
        }
    }

    /// Adds what was charged to the words of a busy map from `first` on: for the tenant's neighbours it was busy.
    pub(crate) fn enter(&self, map: &mut [u64], first: u64) {
        for (word, bins) in (first..).zip(map) {
            if (self.span.0..self.span.1).contains(&word) {
                *bins = FULL;
            }
        }
    }

    /// Whether the last look has charged or given back anything.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Amount to be charged now (ns of GPU time); below zero, to be given back.
    pub(crate) fn due_ns(&self) -> i64 {
        self.due_ns
    }

    /// So much was charged (ns of GPU time).
    pub(crate) fn paid(&mut self, ns: i64) {
        self.due_ns -= ns;
    }

    /// A debt from before (ns of GPU time).
    pub(crate) fn owe(&mut self, ns: i64) {
        self.due_ns += ns;
    }

    /// Whether some process may be silent, so that the next look is to come soon.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Whether any process had work in flight at the last look.
    pub(crate) fn is_at_work(&self) -> bool {
        let is_at_work = |process: &Process| process.at_work_ns.is_some() && !process.is_over;
        self.processes.values().any(is_at_work)
    }
}

#[cfg(test)]
mod tests;
