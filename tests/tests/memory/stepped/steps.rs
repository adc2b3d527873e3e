//! Path of the first process through the shim, and places on it.

use std::collections::HashMap;

use vcuda_tests::tracer::Traced;

use super::peer::Peer;

/// The two halves of a round, as instructions: making memory, and freeing it.
pub(super) struct Steps {
    pub(super) halves: [Vec<u64>; 2],
    /// Free memory while it is made (bytes).
    pub(super) least: u64,
}

/// A place to stop: the half, and the number of instructions in it.
pub(super) type Place = (usize, usize);

impl Steps {
    /// Steps the process through one round, and records its path.
    pub(super) fn of(traced: &mut Traced, handle: &str, peer: &mut Peer) -> Self {
        begin(traced, handle);
        let making = traced.path_to_mark();
        let least = peer.free_bytes();
        Steps { halves: [making, traced.path_to_mark()], least }
    }

    /// About `count` places of each half, or those where an instruction occurs for the first `times` times.
    pub(super) fn places(&self, count: usize, times: u32) -> Vec<Place> {
        let mut places = Vec::new();
        for (half, path) in self.halves.iter().enumerate() {
            let mut seen = HashMap::new();
            let most = if is_soak() { times } else { 1 };
            let mut is_new = |offset: &u64| {
                let times = seen.entry(*offset).or_insert(0);
                *times += 1;
                *times <= most
            };
            let new: Vec<usize> = (0..path.len()).filter(|at| is_new(&path[*at])).collect();
            let apart = if is_soak() { 1 } else { new.len().div_ceil(count).max(1) };
            places.extend(new.into_iter().step_by(apart).map(|at| (half, at)));
        }
        places
    }

    /// Runs the process, in a round, to a place. `false`: it took another path, and the half is done.
    pub(super) fn run_to(&self, traced: &Traced, (half, at): Place) -> bool {
        if half == 1 {
            traced.run_to_mark();
        }
        traced.run_along(&self.halves[half], at)
    }
}

pub(super) fn begin(traced: &mut Traced, handle: &str) {
    traced.say(handle);
    traced.run_to_mark();
}

/// Runs the process from a place to the end of the round.
pub(super) fn end(traced: &Traced, (half, _): Place, is_there: bool) {
    if is_there {
        traced.run_to_mark();
    }
    if half == 0 {
        traced.run_to_mark();
    }
}

pub(super) fn is_soak() -> bool {
    std::env::var_os("VCUDA_SOAK").is_some()
}
