//! A model of the ledger's protocol in single steps. Every interleaving of three parties is searched. In every state
//! that can be reached, each party is left to run alone while the others stand still.
//!
//! A step is one access to one party's cell: `vcuda_region::ledger` makes a cell of two copies and a head word, and its
//! loom models check that part, and the orderings, on the real code. Found here, for each party and amount:
//! - the granted bytes never exceed the limit, in any state;
//! - a refusal is only given if at some moment during the call the bytes would not have fitted;
//! - if some parties stand still at whatever step, the others finish, within the number of steps that the test states.
#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "a test: a wrong index is a failure, and the figures are wanted"
)]

use std::collections::HashSet;

const PARTIES: usize = 3;
const LIMIT: u8 = 10;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Status {
    Settled,
    Asking,
    Granted,
    Cancelled,
}

/// The part of a party that others see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Cell {
    version: u8,
    status: Status,
    used: u8,
    asked: u8,
}

impl Cell {
    fn counted(&self) -> u8 {
        self.used + if self.status == Status::Granted { self.asked } else { 0 }
    }

    fn write(&mut self, status: Status, used: u8, asked: u8) {
        *self = Cell { version: self.version + 1, status, used, asked };
    }
}

/// Identity of a cell's content: what a compare-and-swap compares.
type Seen = (u8, Status);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    /// Between two operations.
    Idle,
    /// About to publish the request.
    Announce,
    /// Reading the cells of the others, the next one named.
    Collect(usize),
    /// The sum fits: about to grant oneself.
    Grant,
    /// The sum does not fit: reading again, the next one named, to know that the sum was real.
    Verify(usize),
    /// About to give the request up.
    Withdraw,
    /// The sum would fit but for requests: looking whether one's own still stands.
    Conflict,
    /// About to cancel the request of the party named.
    Cancel(usize),
    /// About to give bytes back.
    Release,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Op {
    Reserve(u8),
    /// Gives back what the last successful `Reserve` of this amount got; nothing after a refusal.
    Release(u8),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Party {
    next_op: usize,
    at: At,
    seen: [Option<Seen>; PARTIES],
    counted: u8,
    asked: u8,
    last_refused: bool,
    /// Ghost: at some moment of this call the bytes would not have fitted.
    was_full: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    cells: [Cell; PARTIES],
    parties: [Party; PARTIES],
}

type Script = [&'static [Op]; PARTIES];

impl State {
    fn start() -> Self {
        let cell = Cell { version: 0, status: Status::Settled, used: 0, asked: 0 };
        let party = Party {
            next_op: 0,
            at: At::Idle,
            seen: [None; PARTIES],
            counted: 0,
            asked: 0,
            last_refused: false,
            was_full: false,
        };
        Self { cells: [cell; PARTIES], parties: [party.clone(), party.clone(), party] }
    }

    fn op(&self, me: usize, script: &Script) -> Option<Op> {
        script[me].get(self.parties[me].next_op).copied()
    }

    fn total(&self) -> u8 {
        self.cells.iter().map(Cell::counted).sum()
    }

    /// The next step of party `me`. `patient`: where it may wait instead of cancelling, it does (reads again).
    fn step(&self, me: usize, script: &Script, patient: bool) -> Self {
        let mut next = self.clone();
        let op = self.op(me, script).expect("an operation is left");
        let (Op::Reserve(request) | Op::Release(request)) = op;
        match self.parties[me].at {
            At::Idle => next.begin(me, op),
            At::Release => next.give_back(me, request),
            At::Announce => next.announce(me, request),
            At::Collect(other) => next.collect(me, other, request),
            At::Grant => next.grant(me),
            At::Verify(other) => next.verify(me, other),
            At::Withdraw => next.withdraw(me),
            At::Conflict => next.settle_conflict(me, patient),
            At::Cancel(other) => next.cancel(me, other),
        }
        next.note_fullness(script);
        next
    }

    fn begin(&mut self, me: usize, op: Op) {
        let party = &mut self.parties[me];
        party.was_full = false;
        party.at = match op {
            Op::Reserve(_) => At::Announce,
            Op::Release(_) => At::Release,
        };
    }

    fn give_back(&mut self, me: usize, bytes: u8) {
        let own = &mut self.cells[me];
        let back = if self.parties[me].last_refused { 0 } else { bytes };
        own.write(Status::Settled, own.counted() - back, 0);
        self.parties[me].finish(false);
    }

    fn announce(&mut self, me: usize, request: u8) {
        let own = &mut self.cells[me];
        own.write(Status::Asking, own.counted(), request);
        self.parties[me].collect_from(me);
    }

    fn collect(&mut self, me: usize, other: usize, request: u8) {
        let (own, cell) = (self.cells[me], self.cells[other]);
        let party = &mut self.parties[me];
        party.seen[other] = Some((cell.version, cell.status));
        party.counted += cell.counted();
        party.asked += if cell.status == Status::Asking { cell.asked } else { 0 };
        party.at = match following(other, me) {
            Some(other) => At::Collect(other),
            None if own.used + request + party.counted + party.asked <= LIMIT => At::Grant,
            None if own.used + request + party.counted > LIMIT => At::Verify(first_other(me)),
            None => At::Conflict,
        };
    }

    fn grant(&mut self, me: usize) {
        if self.cells[me].status == Status::Asking {
            self.cells[me].status = Status::Granted;
            self.parties[me].finish(false);
        } else {
            self.parties[me].at = At::Announce;
        }
    }

    fn verify(&mut self, me: usize, other: usize) {
        if self.is_as_seen(me, other) {
            self.parties[me].at = following(other, me).map_or(At::Withdraw, At::Verify);
        } else {
            self.parties[me].collect_from(me);
        }
    }

    fn withdraw(&mut self, me: usize) {
        let own = &mut self.cells[me];
        own.write(Status::Settled, own.used, 0);
        self.parties[me].finish(true);
    }

    fn settle_conflict(&mut self, me: usize, patient: bool) {
        let party = &mut self.parties[me];
        let rival = party.rival(0);
        if self.cells[me].status != Status::Asking {
            party.at = At::Announce;
        } else if patient {
            party.collect_from(me);
        } else {
            party.at = At::Cancel(rival.expect("a conflict has a rival"));
        }
    }

    fn cancel(&mut self, me: usize, other: usize) {
        if self.is_as_seen(me, other) {
            self.cells[other].status = Status::Cancelled;
        }
        let party = &mut self.parties[me];
        match party.rival(other + 1) {
            Some(other) => party.at = At::Cancel(other),
            None => party.collect_from(me),
        }
    }

    /// Whether the other's cell is what `me` last read of it.
    fn is_as_seen(&self, me: usize, other: usize) -> bool {
        let cell = self.cells[other];
        self.parties[me].seen[other] == Some((cell.version, cell.status))
    }

    /// The ghost of every party that has a reservation under way.
    fn note_fullness(&mut self, script: &Script) {
        let total = self.total();
        for me in 0..PARTIES {
            if let Some(Op::Reserve(request)) = self.op(me, script)
                && self.parties[me].at != At::Idle
            {
                let own_request = if self.cells[me].status == Status::Granted { 0 } else { request };
                self.parties[me].was_full |= total + own_request > LIMIT;
            }
        }
    }

    /// Versions count only as far as they are compared: renumber them, so that the search ends.
    fn canonical(mut self) -> Self {
        for cell in 0..PARTIES {
            let mut versions: Vec<u8> = self
                .parties
                .iter()
                .filter_map(|party| party.seen[cell].map(|(version, _)| version))
                .collect();
            versions.push(self.cells[cell].version);
            versions.sort_unstable();
            versions.dedup();
            let rank = |version: u8| versions.binary_search(&version).expect("listed above") as u8;
            for party in &mut self.parties {
                party.seen[cell] = party.seen[cell].map(|(version, status)| (rank(version), status));
            }
            self.cells[cell].version = rank(self.cells[cell].version);
        }
        self
    }
}

impl Party {
    fn collect_from(&mut self, me: usize) {
        self.seen = [None; PARTIES];
        self.counted = 0;
        self.asked = 0;
        self.at = At::Collect(first_other(me));
    }

    /// The first other from here on that was seen asking.
    fn rival(&self, from: usize) -> Option<usize> {
        (from..PARTIES).find(|other| matches!(self.seen[*other], Some((_, Status::Asking))))
    }

    fn finish(&mut self, refused: bool) {
        if refused {
            assert!(self.was_full, "refused, although the bytes would have fitted all the time");
        }
        *self = Self {
            next_op: self.next_op + 1,
            at: At::Idle,
            seen: [None; PARTIES],
            counted: 0,
            asked: 0,
            last_refused: refused,
            was_full: false,
        };
    }
}

fn first_other(me: usize) -> usize {
    usize::from(me == 0)
}

fn following(other: usize, me: usize) -> Option<usize> {
    (other + 1..PARTIES).find(|candidate| *candidate != me)
}

/// Searches every interleaving; returns the number of states and the most steps that a party alone needed.
fn explore(script: Script) -> (usize, usize) {
    let mut reached = HashSet::new();
    let mut open = vec![State::start()];
    let mut most = 0;
    while let Some(state) = open.pop() {
        assert!(state.total() <= LIMIT, "over the limit: {state:?}");
        for me in 0..PARTIES {
            if state.op(me, &script).is_none() {
                continue;
            }
            most = most.max(alone(&state, me, &script));
            for patient in [false, true] {
                let next = state.step(me, &script, patient).canonical();
                if reached.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    (reached.len(), most)
}

/// Steps that `me` needs to finish its operation while all others stand still.
fn alone(state: &State, me: usize, script: &Script) -> usize {
    let mut state = state.clone();
    let op = state.parties[me].next_op;
    for steps in 1..100 {
        state = state.step(me, script, false);
        if state.parties[me].next_op > op {
            return steps;
        }
    }
    panic!("held up by parties that stand still: {state:?}");
}

#[test]
fn three_parties_one_frozen_anywhere() {
    use Op::{Release, Reserve};
    let scripts: [Script; 6] = [
        // Any two fit, three do not.
        [&[Reserve(4)], &[Reserve(4)], &[Reserve(4)]],
        // Any one fits.
        [&[Reserve(6)], &[Reserve(6)], &[Reserve(10)]],
        // All fit, to the byte: no process may be refused.
        [&[Reserve(3), Reserve(1)], &[Reserve(3)], &[Reserve(3)]],
        // Bytes that move from one to another must not be seen twice.
        [&[Reserve(9), Release(9)], &[Reserve(9), Release(9)], &[Reserve(1)]],
        // A request that never fits must not refuse others.
        [&[Reserve(11)], &[Reserve(5)], &[Reserve(5)]],
        [&[Reserve(5), Release(5), Reserve(5)], &[Reserve(5)], &[Reserve(6)]],
    ];
    let chosen = if cfg!(miri) { &scripts[..0] } else { &scripts[..] };
    for script in chosen {
        let (states, most) = explore(*script);
        println!("{script:?}: {states} states, a party alone needs at most {most} steps");
        assert!(most <= 24, "a party alone needed {most} steps");
    }
}
