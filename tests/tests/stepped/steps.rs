//! The way of the first process through the shim, and the places on it.

use std::collections::HashMap;

use vcuda_tests::tracer::Traced;

use super::peer::Peer;

/// The two halves of a round, instruction by instruction: it makes something, and gives it back.
pub(super) struct Steps {
    pub(super) halves: [Vec<u64>; 2],
    /// Free memory when it is made (bytes).
    pub(super) least: u64,
}

/// Where to stop: in which half, and behind how many instructions.
pub(super) type Place = (usize, usize);

impl Steps {
    /// Leads the process through one round.
    pub(super) fn of(traced: &mut Traced, handle: &str, peer: &mut Peer) -> Self {
        begin(traced, handle);
        let making = traced.path_to_mark();
        let least = peer.free_bytes();
        Steps {
            halves: [making, traced.path_to_mark()],
            least,
        }
    }

    /// So many places of each half, or those where an instruction is come to for the first few times.
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
            let apart = if is_soak() {
                1
            } else {
                new.len().div_ceil(count).max(1)
            };
            places.extend(new.into_iter().step_by(apart).map(|at| (half, at)));
        }
        places
    }

    /// Lets the process, which has begun a round, go to a place of it. `false`: it took another path, and the half is done.
    pub(super) fn lead(&self, traced: &Traced, (half, at): Place) -> bool {
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

/// Lets the process, which was led to a place, go on to the end of the round.
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
