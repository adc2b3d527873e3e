//! Engine: advances a core from its time to another, event by event, in integer ns. It works on a private copy, reads the
//! rings, and writes only the copy.
//!
//! All GPUs share one clock, as streams of different GPUs may wait for each other. At each instant everything that needs no
//! time is done (`settle`); then time advances to the next event (`next_event`, `pass`).

use crate::SliceOrder;
use crate::core::{COPYING, Core, Effect, MAX_EFFECTS, RUNNING, StreamRow, WAITING};
use crate::layout::{as_index, name, split};
use crate::map::Mapping;
use crate::ring::{self, Entry, Work};

mod compute;
mod copies;
mod spinning;
mod time;

/// Maximum number of events in a commit, which bounds its work. The next commit has the rest.
const MAX_EVENTS: u32 = 10_000;

/// Settings that determine the schedule.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) slice_ns: u64,
    pub(crate) switch_ns: u64,
    pub(crate) sample_ns: u64,
    pub(crate) order: SliceOrder,
    pub(crate) slice_spread_permille: u64,
    /// Number of multiprocessors of each GPU.
    pub(crate) sms: Vec<u64>,
}

impl Rules {
    /// Length of the slice that began at `start` (ns), the same for all processes.
    pub(crate) fn slice_ns_from(&self, start: u64) -> u64 {
        let spread_ns = self.slice_ns * self.slice_spread_permille / 1000;
        // Hash: a multiplication by a large odd number mixes low bits into high ones.
        let mixed = (start ^ start >> 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.slice_ns - spread_ns + mixed % (2 * spread_ns + 1)
    }
}

/// Buffers that plays reuse.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    active: Vec<Active>,
    order: Vec<usize>,
}

/// A stream with commands.
#[derive(Debug, Clone, Copy)]
struct Active {
    row: usize,
    gpu: usize,
    context: u64,
    /// First command that this play does not know.
    tail: u64,
    entry: Option<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Played {
    /// The requested time is reached.
    CaughtUp {
        /// Whether anything besides time has changed.
        has_events: bool,
    },
    /// The copy has as many events as a commit can hold, before the requested time.
    Unfinished,
    /// The requested command is done, at the core's time.
    Reached,
}

#[derive(Debug)]
struct Play<'a> {
    core: &'a mut Core,
    map: &'a Mapping,
    rules: &'a Rules,
    active: &'a mut Vec<Active>,
    order: &'a mut Vec<usize>,
    /// Whether completions become effects.
    has_effects: bool,
    events: u32,
    limit: u32,
}

/// Plays `core` up to `until`. Completions become its effects.
pub(crate) fn play(
    core: &mut Core,
    map: &Mapping,
    rules: &Rules,
    scratch: &mut Scratch,
    until: u64,
) -> Played {
    let Scratch { active, order } = scratch;
    Play { core, map, rules, active, order, has_effects: true, events: 0, limit: MAX_EVENTS }.run(until, None)
}

/// Plays `core` until `command` is done if nothing more is submitted; at most `limit` events. `CaughtUp` means that another
/// process must act first. Afterwards only the core's time is valid.
pub(crate) fn foresee(
    core: &mut Core,
    map: &Mapping,
    rules: &Rules,
    scratch: &mut Scratch,
    command: u64,
    limit: u32,
) -> Played {
    let Scratch { active, order } = scratch;
    Play { core, map, rules, active, order, has_effects: false, events: 0, limit }.run(FAR, Some(command))
}

/// Time of the next event if nothing more is submitted; `None`: there is none.
pub(crate) fn next_event(
    core: &mut Core,
    map: &Mapping,
    rules: &Rules,
    scratch: &mut Scratch,
) -> Option<u64> {
    let Scratch { active, order } = scratch;
    let limit = MAX_EVENTS;
    let mut play = Play { core, map, rules, active, order, has_effects: false, events: 0, limit };
    play.gather();
    play.settle();
    Some(play.next_event()).filter(|next| *next < FAR)
}

/// A time that never comes; arithmetic saturates above it.
const FAR: u64 = 1 << 62;

impl Play<'_> {
    fn run(&mut self, until: u64, goal: Option<u64>) -> Played {
        self.gather();
        loop {
            self.settle();
            if goal.is_some_and(|command| self.core.is_done(command)) {
                return Played::Reached;
            }
            if self.is_full() {
                return Played::Unfinished;
            }
            let next = self.next_event();
            let target = next.min(until).max(self.core.now);
            if goal.is_some() && next >= FAR {
                return Played::CaughtUp { has_events: false };
            }
            self.pass(target);
            if next > until {
                return Played::CaughtUp { has_events: self.events > 0 };
            }
        }
    }

    /// Lists the streams with commands. Commands submitted later belong to the next play, and those that reach a locked
    /// process's stream to the play after its unlock.
    fn gather(&mut self) {
        self.active.clear();
        for (row, stream) in self.core.streams.iter().enumerate() {
            let (ring, _) = split(stream.id);
            let tail = ring::tail(self.map, ring);
            if stream.head < tail && !self.core.is_held(stream.client) {
                let entry = Some(ring::read(self.map, ring, stream.head));
                let (gpu, context) = (as_index(stream.gpu), stream.context);
                self.active.push(Active { row, gpu, context, tail, entry });
            }
        }
    }

    fn is_full(&self) -> bool {
        self.events >= self.limit || self.core.effects.len() >= MAX_EFFECTS
    }

    /// Does everything that needs no time.
    fn settle(&mut self) {
        loop {
            let before = self.events;
            for gpu in 0..self.core.gpus.len() {
                self.settle_copies(gpu);
                self.settle_spinning(gpu);
                self.settle_compute(gpu);
            }
            if self.events == before || self.is_full() {
                return;
            }
        }
    }

    fn row(&self, active: &Active) -> Option<&StreamRow> {
        self.core.streams.get(active.row)
    }

    /// Completes the first command of the active stream.
    fn complete(&mut self, position: usize) {
        let Some(active) = self.active.get_mut(position) else {
            return;
        };
        let Some(row) = self.core.streams.get_mut(active.row) else {
            return;
        };
        let (ring, _) = split(row.id);
        if self.has_effects {
            self.core.effects.push(Effect { command: name(ring, row.head), ns: self.core.now });
        }
        row.head += 1;
        (row.phase, row.left) = (WAITING, 0);
        active.entry = (row.head < active.tail).then(|| ring::read(self.map, ring, row.head));
        self.events += 1;
    }

    /// Whether the first command has arrived, needs no time, and its context is resident.
    fn is_instant(&self, active: &Active) -> bool {
        let Some(entry) = active.entry else { return false };
        entry.arrival <= self.core.now
            && match entry.work {
                Work::Marker => true,
                Work::Wait { command } => self.core.is_done(command),
                Work::Gate { opened } => opened.is_some_and(|at| at <= self.core.now),
                Work::Kernel { .. } => self.row(active).is_some_and(|r| r.phase == RUNNING && r.left == 0),
                Work::Copy { .. } => false,
            }
    }

    /// Whether the first command only waits for its context to be resident.
    fn is_runnable(&self, active: &Active) -> bool {
        let Some(entry) = active.entry else { return false };
        let is_kernel = matches!(entry.work, Work::Kernel { .. });
        entry.arrival <= self.core.now && (is_kernel || self.is_instant(active))
    }

    fn is_running(&self, active: &Active) -> bool {
        self.row(active).is_some_and(|row| row.phase == RUNNING)
    }

    /// Whether a copy is on its engine.
    fn is_copying(&self, active: &Active) -> bool {
        self.row(active).is_some_and(|row| row.phase == COPYING)
    }
}
