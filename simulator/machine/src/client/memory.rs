//! Allocation and release of memory.

use super::{Client, give_plain, use_row};
use crate::Refused;
use crate::commit::Change;
use crate::core::Core;
use crate::layout::as_index;

/// When to repeat a refused attempt.
enum Again {
    /// Once the memory of dead processes is freed.
    AfterLook,
    /// Once this process is unlocked: the call had begun before the lock.
    AfterUnlock,
}

impl Client {
    /// Takes `bytes` of the GPU's memory, all or none. Errors: `Refused::OutOfMemory` or `Fault`, both counted as
    /// denied; `NoSuchGpu`.
    pub fn take(&self, gpu: usize, bytes: u64) -> Result<(), Refused> {
        self.next_or_fault(gpu)?;
        self.claim(gpu, bytes, |_, _| Ok(()))
    }

    /// Takes `bytes` of the GPU's memory for managed memory, which NVML may not count with the process.
    pub fn take_managed(&self, gpu: usize, bytes: u64) -> Result<(), Refused> {
        self.next_or_fault(gpu)?;
        self.claim_managed(gpu, bytes, bytes, |_, _| Ok(()))
    }

    /// Counts an allocation, and refuses it if the configuration makes it fail.
    pub(super) fn next_or_fault(&self, gpu: usize) -> Result<(), Refused> {
        if self.shared().config.faults.fail_nth_allocation == Some(self.next_allocation()) {
            self.deny(gpu)?;
            return Err(Refused::Fault);
        }
        Ok(())
    }

    /// Frees `bytes` (at most what this client holds).
    pub fn give(&self, gpu: usize, bytes: u64) {
        self.change_unlocked(false, |core| give_plain(core, self.id, gpu as u64, bytes));
    }

    /// Frees `bytes` of managed memory (at most what this client holds).
    pub fn give_managed(&self, gpu: usize, bytes: u64) {
        self.change_unlocked(false, |core| {
            if let Some(position) = core.position_of_use(self.id, gpu as u64)
                && let Some(row) = core.uses.get_mut(position)
            {
                row.managed = row.managed.saturating_sub(bytes);
            }
            give_plain(core, self.id, gpu as u64, bytes);
        });
    }

    /// Changes the core, played up to now if `is_played`, once this process is not locked: a call may have begun before the
    /// lock. If the state cannot be written, nothing changes, and what was to be freed stays taken until the process ends.
    pub(super) fn change_unlocked(&self, is_played: bool, mut change: impl FnMut(&mut Core)) {
        let shared = self.shared();
        loop {
            let until = is_played.then(|| shared.now());
            let is_done = shared.transact(&mut shared.local.lock(), until, |core| {
                if core.is_held(self.id) {
                    return Change::None(false);
                }
                change(core);
                Change::Made(true)
            });
            if is_done.unwrap_or(true) {
                return;
            }
            self.await_unlock();
        }
    }

    /// Counts a denied allocation.
    fn deny(&self, gpu: usize) -> Result<(), Refused> {
        let shared = self.shared();
        if gpu >= shared.config.gpus.len() {
            return Err(Refused::NoSuchGpu(gpu));
        }
        let local = &mut *shared.local.lock();
        shared.transact(local, None, |core| match use_row(core, self.id, gpu as u64) {
            Ok(position) => {
                if let Some(row) = core.uses.get_mut(position) {
                    row.denied += 1;
                }
                Change::Made(Ok(()))
            }
            Err(refused) => Change::None(Err(refused)),
        })?
    }

    /// Takes `bytes` and calls `then` in one commit. Before a refusal, and before a new peak, the memory of dead processes
    /// is freed: a real driver frees it as a process ends.
    pub(super) fn claim<R>(
        &self,
        gpu: usize,
        bytes: u64,
        then: impl Fn(&mut Core, u64) -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        self.claim_managed(gpu, bytes, 0, then)
    }

    /// As `claim`, with `managed` of the bytes for managed memory.
    fn claim_managed<R>(
        &self,
        gpu: usize,
        bytes: u64,
        managed: u64,
        then: impl Fn(&mut Core, u64) -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        let shared = self.shared();
        let Some(total) = shared.config.gpus.get(gpu).map(|config| config.memory_bytes) else {
            return Err(Refused::NoSuchGpu(gpu));
        };
        let (cgroup, rules) = (shared.own_cgroup(), shared.limit_rules);
        let mut has_looked = false;
        let refused = loop {
            let mut guard = shared.local.lock();
            let local = &mut *guard;
            let answer = shared.transact(local, None, |core| {
                if core.is_held(self.id) {
                    return Change::None(Err(Again::AfterUnlock));
                }
                let Some(of_gpu) = core.gpus.get(gpu) else {
                    return Change::None(Ok(Err(Refused::NoSuchGpu(gpu))));
                };
                // Checked in the state that is committed: if another process changes it, this is repeated.
                if of_gpu.used.saturating_add(bytes) > of_gpu.peak && shared.is_any_to_release(core) {
                    return Change::None(Err(Again::AfterLook));
                }
                let free = total.saturating_sub(of_gpu.used);
                if let Some(cgroup) = &cgroup
                    && let Err(full) = core.place(self.id, cgroup)
                {
                    return Change::None(Ok(Err(full)));
                }
                // The driver does not count managed memory.
                let is_counted = rules.is_any() && bytes > managed;
                let left =
                    if is_counted { core.left_by_limits(rules, gpu as u64, self.id) } else { u64::MAX };
                let free = free.min(left);
                match self.try_claim(core, gpu, (bytes, managed), free, &then) {
                    Ok(result) => Change::Made(Ok(Ok(result))),
                    Err(Refused::OutOfMemory { .. }) if !has_looked => Change::None(Err(Again::AfterLook)),
                    Err(refused) => Change::None(Ok(Err(refused))),
                }
            })?;
            match answer {
                Ok(Err(refused @ Refused::OutOfMemory { .. })) => break refused,
                Ok(answer) => return answer,
                Err(Again::AfterLook) => {
                    shared.end_dead_processes(local)?;
                    has_looked = true;
                }
                Err(Again::AfterUnlock) => {
                    drop(guard);
                    self.await_unlock();
                }
            }
        };
        self.deny(gpu)?;
        Err(refused)
    }

    fn try_claim<R>(
        &self,
        core: &mut Core,
        gpu: usize,
        (bytes, managed): (u64, u64),
        free: u64,
        then: &impl Fn(&mut Core, u64) -> Result<R, Refused>,
    ) -> Result<R, Refused> {
        if bytes > free {
            return Err(Refused::OutOfMemory { requested: bytes, free });
        }
        let position = use_row(core, self.id, gpu as u64)?;
        let result = then(core, self.id)?;
        if let (Some(row), Some(of_gpu)) =
            (core.uses.get_mut(position), core.gpus.get_mut(as_index(gpu as u64)))
        {
            row.used += bytes;
            row.managed += managed;
            row.peak = row.peak.max(row.used);
            of_gpu.used += bytes;
            of_gpu.peak = of_gpu.peak.max(of_gpu.used);
        }
        Ok(result)
    }
}
