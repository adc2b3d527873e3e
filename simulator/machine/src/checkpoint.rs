//! Moving a process's GPU state to the host's memory and back (`cuCheckpointProcess*`): states, requests, and their effect
//! on a core.
//!
//! A request is a word in the target's row; the target's *bell* then counts up. A thread of the target does what is asked
//! for, as the memory must be the target's, and writes the answer (`client::checkpoint`). The bell counts again whenever the
//! state has changed, so that the target's calls look at the state only then. One request is served at a time.

mod asking;

use crate::core::{CheckpointRow, Core};
use crate::layout::as_index;

/// State of a process (`CUprocessState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointState {
    /// Its calls are served.
    Running,
    /// Its calls wait.
    Locked,
    /// Its GPU state is in the host's memory.
    Checkpointed,
    /// An error has made it useless.
    Failed,
}

/// What one process can ask of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointStep {
    /// Let no call begin, and wait for the GPU's work.
    Lock {
        /// Time after which the lock is given up (ms); 0: never.
        timeout_ms: u32,
    },
    /// Move the state of a locked process to the host's memory.
    Checkpoint,
    /// Move it back.
    Restore,
    /// Serve calls again.
    Unlock,
}

/// Reason why a step was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMoved {
    /// No process with this PID uses the driver, or it has ended.
    NoProcess,
    /// The lock did not come in time.
    NotReady,
    /// The process has memory that cannot be moved.
    NotSupported,
    /// The GPU, or the host, has no room for the memory.
    OutOfMemory,
    /// The process is in another state than the step needs.
    IllegalState,
    /// The driver failed.
    OperatingSystem,
}

/// `CheckpointRow::state`: calls are served.
pub(crate) const RUNNING: u64 = 0;
/// No call begins; the GPU still works.
pub(crate) const LOCKING: u64 = 1;
pub(crate) const LOCKED: u64 = 2;
pub(crate) const CHECKPOINTED: u64 = 3;
/// As checkpointed, after a restore without room: no restore succeeds any more.
pub(crate) const LOST: u64 = 4;
pub(crate) const FAILED: u64 = 5;

impl CheckpointStep {
    /// As `CheckpointRow::step`.
    fn word(self) -> u64 {
        match self {
            CheckpointStep::Lock { timeout_ms } => 1 | u64::from(timeout_ms) << 32,
            CheckpointStep::Checkpoint => 2,
            CheckpointStep::Restore => 3,
            CheckpointStep::Unlock => 4,
        }
    }

    fn of_word(word: u64) -> Option<CheckpointStep> {
        match word & 0xff {
            1 => Some(CheckpointStep::Lock { timeout_ms: u32::try_from(word >> 32).unwrap_or(0) }),
            2 => Some(CheckpointStep::Checkpoint),
            3 => Some(CheckpointStep::Restore),
            4 => Some(CheckpointStep::Unlock),
            _ => None,
        }
    }
}

const ERRORS: [NotMoved; 6] = [
    NotMoved::NoProcess,
    NotMoved::NotReady,
    NotMoved::NotSupported,
    NotMoved::OutOfMemory,
    NotMoved::IllegalState,
    NotMoved::OperatingSystem,
];

/// An answer as a word; 0 is success.
fn to_word(answer: Result<(), NotMoved>) -> u64 {
    let code = |error| ERRORS.iter().zip(1..).find(|(known, _)| **known == error);
    answer.err().and_then(code).map_or(0, |(_, word)| word)
}

fn of_word(word: u64) -> Result<(), NotMoved> {
    match word.checked_sub(1).and_then(|index| ERRORS.get(as_index(index))) {
        Some(error) => Err(*error),
        None => Ok(()),
    }
}

impl Core {
    /// The row of a client; `None` while nothing was ever asked of it.
    fn checkpoint(&self, client: u64) -> Option<&CheckpointRow> {
        self.checkpoints.iter().find(|row| row.client == client)
    }

    /// The row of a client, made if missing.
    fn checkpoint_mut(&mut self, client: u64) -> Option<&mut CheckpointRow> {
        if self.checkpoint(client).is_none() {
            self.checkpoints.push(CheckpointRow { client, ..CheckpointRow::default() });
        }
        self.checkpoints.iter_mut().find(|row| row.client == client)
    }

    pub(crate) fn state_of(&self, client: u64) -> u64 {
        self.checkpoint(client).map_or(RUNNING, |row| row.state)
    }

    /// Changes the state of a client.
    pub(crate) fn set_state(&mut self, client: u64, state: u64) {
        if let Some(row) = self.checkpoint_mut(client) {
            row.state = state;
        }
    }

    /// Whether the GPU does no work of the client.
    pub(crate) fn is_held(&self, client: u64) -> bool {
        !self.checkpoints.is_empty() && self.state_of(client) >= LOCKED
    }

    /// Whether the client's memory is in the host's.
    pub(crate) fn is_away(&self, client: u64) -> bool {
        self.state_of(client) >= CHECKPOINTED
    }

    /// Whether all invariants of checkpoints hold.
    pub(crate) fn check_checkpoints(&self) -> bool {
        let of = |client: u64| self.checkpoints.iter().filter(move |row| row.client == client);
        self.checkpoints.iter().all(|row| {
            row.state <= FAILED
                && of(row.client).count() == 1
                && self.clients.iter().any(|client| client.id == row.client)
        })
    }

    /// What is asked of the client now.
    pub(crate) fn asked_of(&self, client: u64) -> Option<CheckpointStep> {
        CheckpointStep::of_word(self.checkpoint(client)?.step)
    }

    /// Memory of the client on all GPUs (bytes).
    pub(crate) fn used_by(&self, client: u64) -> u64 {
        let rows = self.uses.iter().filter(|row| row.client == client);
        rows.fold(0, |sum, row| sum.saturating_add(row.used))
    }
}

/// Ends the request to a client with an answer.
pub(crate) fn answer(core: &mut Core, client: u64, answer: Result<(), NotMoved>) {
    if let Some(row) = core.checkpoint_mut(client) {
        (row.step, row.answer) = (0, to_word(answer));
    }
}

/// Moves the client's memory from the GPUs. Error: `NotSupported` with managed memory, or memory that other processes
/// may hold.
pub(crate) fn take_away(core: &mut Core, client: u64) -> Result<(), NotMoved> {
    let is_managed = core.uses.iter().any(|row| row.client == client && row.managed > 0);
    if is_managed || core.holds.iter().any(|hold| hold.client == client) {
        return Err(NotMoved::NotSupported);
    }
    let Core { uses, gpus, .. } = core;
    for row in uses.iter_mut().filter(|row| row.client == client) {
        if let Some(gpu) = gpus.get_mut(as_index(row.gpu)) {
            gpu.used -= row.used;
        }
        (row.away, row.used) = (row.used, 0);
    }
    core.set_state(client, CHECKPOINTED);
    Ok(())
}

/// Takes the client's memory on the GPUs again. `total` is the memory of a GPU (bytes). Error: `OutOfMemory` if a GPU
/// has no room; nothing is taken then.
pub(crate) fn bring_back(core: &mut Core, client: u64, total: impl Fn(usize) -> u64) -> Result<(), NotMoved> {
    let Core { uses, gpus, .. } = core;
    let own = |row: &&mut crate::core::UseRow| row.client == client;
    let has_room = uses.iter_mut().filter(own).all(|row| {
        let used = gpus.get(as_index(row.gpu)).map_or(u64::MAX, |gpu| gpu.used);
        used.saturating_add(row.away) <= total(as_index(row.gpu))
    });
    if !has_room {
        return Err(NotMoved::OutOfMemory);
    }
    for row in uses.iter_mut().filter(own) {
        if let Some(gpu) = gpus.get_mut(as_index(row.gpu)) {
            gpu.used += row.away;
            gpu.peak = gpu.peak.max(gpu.used);
        }
        (row.used, row.away) = (row.away, 0);
    }
    Ok(())
}
