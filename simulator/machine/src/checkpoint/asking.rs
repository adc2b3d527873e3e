//! The process that asks another one to move its state.

use super::{
    CHECKPOINTED, CheckpointState, CheckpointStep, LOCKED, LOCKING, LOST, NotMoved, RUNNING, of_word,
};
use crate::commit::Change;
use crate::core::Core;
use crate::shared::Shared;

/// Longest sleep of a process that waits for an answer (ns); it then looks whether the target lives.
const LOOK_NS: u64 = 20_000_000;

impl Shared {
    /// State of the process with this PID in the caller's namespace; `None` if none uses the driver.
    pub(crate) fn checkpoint_state(&self, pid: u32) -> Option<CheckpointState> {
        let local = &mut *self.local.lock();
        self.end_dead_processes(local).ok()?;
        let (client, _) = self.client_of(&local.base, pid)?;
        Some(match local.base.state_of(client) {
            RUNNING | LOCKING => CheckpointState::Running,
            LOCKED => CheckpointState::Locked,
            CHECKPOINTED | LOST => CheckpointState::Checkpointed,
            _ => CheckpointState::Failed,
        })
    }

    /// Asks the process with this PID for a step, and waits until it is done.
    pub(crate) fn move_state(&self, pid: u32, step: CheckpointStep) -> Result<(), NotMoved> {
        let (client, slot, request) = self.ask(pid, step)?;
        loop {
            let seen = self.bell(slot);
            if let Some(answer) = self.answer_to(client, request) {
                return answer;
            }
            self.await_bell(slot, seen, LOOK_NS);
        }
    }

    /// Client and slot of a process.
    fn client_of(&self, core: &Core, pid: u32) -> Option<(u64, u64)> {
        let mut clients = core.clients.iter();
        let found = clients.find(|row| self.seen_as(core, row.id).here == Some(pid))?;
        Some((found.id, found.slot))
    }

    /// Writes a request, after the end of the one before. Returns the client, its slot, and the number of the request.
    fn ask(&self, pid: u32, step: CheckpointStep) -> Result<(u64, u64, u64), NotMoved> {
        loop {
            let (client, slot, seen, request) = self.try_ask(pid, step)?;
            if let Some(request) = request {
                self.ring(slot);
                return Ok((client, slot, request));
            }
            self.await_bell(slot, seen, LOOK_NS);
        }
    }

    /// As `ask`, with the count of the bell before; without a number if another request is being served.
    fn try_ask(&self, pid: u32, step: CheckpointStep) -> Result<(u64, u64, u64, Option<u64>), NotMoved> {
        let local = &mut *self.local.lock();
        let failed = |_| NotMoved::OperatingSystem;
        self.end_dead_processes(local).map_err(failed)?;
        let (client, slot) = self.client_of(&local.base, pid).ok_or(NotMoved::NoProcess)?;
        let seen = self.bell(slot);
        let asked = self.transact(local, None, |core| {
            if !core.clients.iter().any(|row| row.id == client) {
                return Change::None(Err(NotMoved::NoProcess));
            }
            match core.checkpoint_mut(client).filter(|row| row.step == 0) {
                Some(row) => {
                    row.requests += 1;
                    row.step = step.word();
                    Change::Made(Ok(Some(row.requests)))
                }
                None => Change::None(Ok(None)),
            }
        });
        Ok((client, slot, seen, asked.map_err(failed)??))
    }

    /// The answer to a request; `None` while there is none.
    fn answer_to(&self, client: u64, request: u64) -> Option<Result<(), NotMoved>> {
        let local = &mut *self.local.lock();
        if self.check_processes(local).and_then(|()| self.refresh(local)).is_err() {
            return Some(Err(NotMoved::OperatingSystem));
        }
        match local.base.checkpoint(client) {
            None => Some(Err(NotMoved::NoProcess)),
            Some(row) if row.requests == request && row.step != 0 => None,
            Some(row) if row.requests == request => Some(of_word(row.answer)),
            // Another process has asked since, and the answer is gone.
            Some(_) => Some(Err(NotMoved::OperatingSystem)),
        }
    }
}
