//! A process whose state is moved: its calls, which wait meanwhile, and the thread that moves it. See `checkpoint`.

use super::Client;
use crate::checkpoint::{self, CHECKPOINTED, FAILED, LOCKED, LOCKING, LOST, RUNNING};
use crate::commit::Change;
use crate::core::Core;
use crate::faults::CheckpointFault;
use crate::layout::split;
use crate::{CheckpointStep, Faults, NotMoved, ring};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What stands before the calls of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Nothing.
    Open,
    /// The process is locked, or is being locked.
    Locked,
    /// Its GPU state is not on the GPU.
    Away,
}

/// Longest sleep at a bell (ns), in case that its ringer was killed before it rang.
const LISTEN_NS: u64 = 500_000_000;
/// Interval between looks for the end of the GPU's work, and of a fault.
const LOOK: Duration = Duration::from_micros(100);

/// Memory of this process that holds what a checkpoint moved; its pages exist.
#[derive(Debug, Default)]
struct HostCopy(Vec<u8>);

impl HostCopy {
    fn of(bytes: u64) -> Result<HostCopy, NotMoved> {
        let mut copy = Vec::new();
        let bytes = usize::try_from(bytes).map_err(|_| NotMoved::OutOfMemory)?;
        copy.try_reserve_exact(bytes).map_err(|_| NotMoved::OutOfMemory)?;
        // Not zero, as zeroed memory needs no pages.
        copy.resize(bytes, 1);
        Ok(HostCopy(copy))
    }
}

impl Client {
    /// Whether nothing has been asked of this process since it was last seen running: a load and a comparison.
    #[inline]
    pub fn is_undisturbed(&self) -> bool {
        self.shared().bell(self.slot) == self.running_at.load(Ordering::Relaxed)
    }

    /// What stands before the calls of this process, and the count of the bell for `await_change`.
    pub fn barrier(&self) -> (Barrier, u64) {
        let shared = self.shared();
        let seen = shared.bell(self.slot);
        let local = &mut *shared.local.lock();
        // If the state cannot be read, the call finds that out itself.
        let state = shared.refresh(local).map_or(RUNNING, |()| local.base.state_of(self.id));
        let barrier = match state {
            RUNNING => Barrier::Open,
            LOCKING | LOCKED => Barrier::Locked,
            _ => Barrier::Away,
        };
        if barrier == Barrier::Open {
            self.running_at.store(seen, Ordering::Relaxed);
        }
        (barrier, seen)
    }

    /// Sleeps until the state of this process may have changed.
    pub fn await_change(&self, seen: u64) {
        self.shared().await_bell(self.slot, seen, LISTEN_NS);
    }

    /// Waits until the GPU may work for this process: for a call that had begun before the lock.
    pub(super) fn await_unlock(&self) {
        loop {
            match self.barrier() {
                (Barrier::Open, _) => return,
                (_, seen) => self.await_change(seen),
            }
        }
    }

    /// Does what other processes ask of this one, for ever; the body of a thread. `dir` has `faults.toml`.
    pub fn serve_checkpoints(&self, dir: &Path) {
        let shared = self.shared();
        let mut copy = HostCopy::default();
        loop {
            let seen = shared.bell(self.slot);
            let asked = {
                let local = &mut *shared.local.lock();
                let current = shared.refresh(local).ok();
                current.and_then(|()| local.base.asked_of(self.id))
            };
            match asked {
                Some(step) => {
                    let answer = self.serve(step, dir, &mut copy);
                    self.edit(|core| {
                        checkpoint::answer(core, self.id, answer);
                        Ok(())
                    })
                    .unwrap_or(());
                }
                None => self.await_change(seen),
            }
        }
    }

    fn serve(&self, step: CheckpointStep, dir: &Path, copy: &mut HostCopy) -> Result<(), NotMoved> {
        let fault = || Faults::read(dir).ok().and_then(|faults| faults.checkpoints.of(step));
        match fault() {
            Some(CheckpointFault::Refused) => return Err(NotMoved::OperatingSystem),
            Some(CheckpointFault::Fails) => {
                self.edit(|core| {
                    core.set_state(self.id, FAILED);
                    Ok(())
                })?;
                return Err(NotMoved::OperatingSystem);
            }
            Some(CheckpointFault::Crashes) => std::process::abort(),
            Some(CheckpointFault::Hangs) => {
                while fault() == Some(CheckpointFault::Hangs) {
                    std::thread::sleep(LOOK * 100);
                }
            }
            None => {}
        }
        match step {
            CheckpointStep::Lock { timeout_ms } => self.lock(timeout_ms),
            CheckpointStep::Checkpoint => self.move_to_host(copy),
            CheckpointStep::Restore => self.move_back(copy),
            CheckpointStep::Unlock => self.edit(|core| self.turn(core, LOCKED, RUNNING)),
        }
    }

    /// Changes the state of this process, and rings.
    fn edit(&self, mut change: impl FnMut(&mut Core) -> Result<(), NotMoved>) -> Result<(), NotMoved> {
        let shared = self.shared();
        let changed = {
            let local = &mut *shared.local.lock();
            shared.transact(local, Some(shared.now()), |core| Change::Made(change(core)))
        };
        shared.ring(self.slot);
        changed.unwrap_or(Err(NotMoved::OperatingSystem))
    }

    /// From a state to the next one.
    fn turn(&self, core: &mut Core, from: u64, to: u64) -> Result<(), NotMoved> {
        if core.state_of(self.id) != from {
            return Err(NotMoved::IllegalState);
        }
        core.set_state(self.id, to);
        Ok(())
    }

    fn lock(&self, timeout_ms: u32) -> Result<(), NotMoved> {
        let begin = self.shared().now();
        let deadline = match timeout_ms {
            0 => u64::MAX,
            ms => begin.saturating_add(u64::from(ms) * 1_000_000),
        };
        self.edit(|core| self.turn(core, RUNNING, LOCKING))?;
        loop {
            let locked = self.edit(|core| {
                if self.has_work(core) {
                    return Err(NotMoved::NotReady);
                }
                self.turn(core, LOCKING, LOCKED)
            });
            if locked != Err(NotMoved::NotReady) {
                return locked;
            }
            if self.shared().now() >= deadline {
                self.edit(|core| self.turn(core, LOCKING, RUNNING))?;
                return Err(NotMoved::NotReady);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whether the GPU has work of this process.
    fn has_work(&self, core: &Core) -> bool {
        let mut streams = core.streams.iter().filter(|row| row.client == self.id);
        streams.any(|row| row.head < ring::tail(&self.shared().map, split(row.id).0))
    }

    fn move_to_host(&self, copy: &mut HostCopy) -> Result<(), NotMoved> {
        let shared = self.shared();
        let begin = shared.now();
        let mut bytes = 0;
        self.edit(|core| {
            bytes = core.used_by(self.id);
            self.turn(core, LOCKED, LOCKED)
        })?;
        *copy = HostCopy::of(bytes)?;
        self.await_copy(begin, bytes, shared.config.driver.checkpoint_bytes_per_us);
        let moved = self.edit(|core| checkpoint::take_away(core, self.id));
        if moved.is_err() {
            *copy = HostCopy::default();
        }
        moved
    }

    fn move_back(&self, copy: &mut HostCopy) -> Result<(), NotMoved> {
        let shared = self.shared();
        let begin = shared.now();
        {
            let local = &mut *shared.local.lock();
            // Dead processes need no room; if they cannot be looked for, the memory counts.
            let _ = shared.end_dead_processes(local);
        }
        let total = |gpu: usize| shared.config.gpus.get(gpu).map_or(0, |config| config.memory_bytes);
        let mut refused = None;
        self.edit(|core| {
            refused = None;
            match core.state_of(self.id) {
                CHECKPOINTED => {}
                LOST => return Err(NotMoved::OperatingSystem),
                _ => return Err(NotMoved::IllegalState),
            }
            refused = checkpoint::bring_back(core, self.id, total).err();
            if refused.is_some() {
                core.set_state(self.id, LOST);
            }
            Ok(())
        })?;
        if let Some(refused) = refused {
            return Err(refused);
        }
        let bytes = copy.0.len() as u64;
        self.await_copy(begin, bytes, shared.config.driver.restore_bytes_per_us);
        *copy = HostCopy::default();
        self.edit(|core| self.turn(core, CHECKPOINTED, LOCKED))
    }

    /// Sleeps for the rest of the time of a copy that began at `begin` (ns).
    fn await_copy(&self, begin: u64, bytes: u64, bytes_per_us: u64) {
        let shared = self.shared();
        let copied_us = bytes / bytes_per_us.max(1);
        let end = begin + shared.config.driver.checkpoint_fixed_ns + copied_us * 1000;
        std::thread::sleep(Duration::from_nanos(end.saturating_sub(shared.now())));
    }
}
