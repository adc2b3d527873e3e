//! Memory limits of cgroups on an opened machine: who is where, setting, reading, and what a caller is shown.
//!
//! A process in the host's PID namespace records its own cgroup with each allocation. That of another process is recorded
//! by one of the host that looks at the machine through NVML: from its own place a container cannot tell its cgroup. Until
//! then no limit binds it.

use crate::cgroup::{Cgroup, Level, living};
use crate::commit::{CannotCommit, Change};
use crate::core::Core;
use crate::memory_limits::{Limits, NotLimited, UNLIMITED};
use crate::record::look;
use crate::report::ShownMemory;
use crate::shared::{Local, Shared};
use crate::{GpuMemory, Machine};

impl Shared {
    /// This process's cgroup, if the driver limits memory and this process can tell.
    pub(crate) fn own_cgroup(&self) -> Option<Cgroup> {
        // The clients of a machine in memory stand for processes.
        let can_tell = self.limit_rules.is_any() && self.file.is_some() && self.is_on_host();
        can_tell.then(|| Cgroup::of_process("self")).flatten()
    }

    /// Records the cgroups of processes of other PID namespaces.
    pub(crate) fn record_cgroups(&self, local: &mut Local) -> Result<(), CannotCommit> {
        if !self.limit_rules.is_any() || self.file.is_none() || !self.is_on_host() {
            return Ok(());
        }
        let own = self.own_namespace();
        let strangers = local.base.clients.iter().filter(|row| row.namespace != own);
        let found: Vec<(u64, Cgroup)> = strangers
            .filter_map(|row| {
                let pid = self.liveness.holder(row.slot)?;
                Some((row.id, Cgroup::of_process(&pid.to_string())?))
            })
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        self.transact(local, None, |core| {
            let is_known = |core: &Core, id: u64| core.clients.iter().any(|row| row.id == id);
            let mut has_moved = false;
            for (id, cgroup) in &found {
                // If the table is full, the process stays unknown.
                has_moved |= is_known(core, *id) && core.place(*id, cgroup).unwrap_or(false);
            }
            if has_moved { Change::Made(()) } else { Change::None(()) }
        })
    }

    /// Levels of the calling process: its own, or those that were recorded of it.
    fn levels_here(&self, core: &Core, own: Option<&Cgroup>) -> Vec<Level> {
        if let Some(own) = own {
            return own.levels.clone();
        }
        let (pid, namespace) = (u64::from(std::process::id()), self.own_namespace());
        let here = core.clients.iter().find(|row| row.pid == pid && row.namespace == namespace);
        here.map_or_else(Vec::new, |row| core.levels_of(row.id))
    }
}

impl Machine {
    /// Sets a cgroup's memory limits on a GPU (bytes; hard: `u64::MAX` for none). Errors: `NotLimited`.
    pub fn set_memory_limits(
        &self,
        gpu: usize,
        cgroup: &Cgroup,
        soft_bytes: u64,
        hard_bytes: u64,
    ) -> Result<(), NotLimited> {
        let shared = self.shared();
        let limits = (soft_bytes, hard_bytes);
        let set = || {
            let local = &mut *shared.local.lock();
            shared.transact(local, None, |core| {
                match core.set_limits(shared.limit_rules, gpu as u64, &cgroup.levels, limits) {
                    Ok(()) => Change::Made(Ok(())),
                    Err(refused) => Change::None(Err(refused)),
                }
            })
        };
        match set().map_err(|_| NotLimited::NoState)? {
            Err(NotLimited::Full) => {
                self.forget_removed_cgroups()?;
                set().map_err(|_| NotLimited::NoState)?
            }
            answer => answer,
        }
    }

    /// Removes the limits of cgroups that were removed.
    fn forget_removed_cgroups(&self) -> Result<(), NotLimited> {
        let (shared, living) = (self.shared(), living());
        let local = &mut *shared.local.lock();
        let forgotten = shared.transact(local, None, |core| {
            core.limits.retain(|row| living.contains(&row.cgroup));
            Change::Made(())
        });
        forgotten.map_err(|_| NotLimited::NoState)
    }

    /// The limits of a cgroup on a GPU, by its own or an ancestor's. Errors: `NotLimited`.
    pub fn memory_limits(&self, gpu: usize, cgroup: &Cgroup) -> Result<Limits, NotLimited> {
        let rules = self.shared().limit_rules;
        look(self.shared(), |core| core.limits_of(rules, gpu as u64, &cgroup.levels))
            .map_err(|_| NotLimited::NoState)?
    }

    /// Memory of a GPU as the driver shows it to the calling process, if that is under a limit that is shown.
    pub fn memory_shown(&self, gpu: usize) -> Option<ShownMemory> {
        let shared = self.shared();
        if !shared.limit_rules.is_any() {
            return None;
        }
        let own = shared.own_cgroup();
        let limits = look(shared, |core| {
            let levels = shared.levels_here(core, own.as_ref());
            core.limits_of(shared.limit_rules, gpu as u64, &levels).ok()
        });
        let limits = limits.ok().flatten().filter(|limits| limits.hard_bytes != UNLIMITED)?;
        let GpuMemory { total_bytes, used_bytes, .. } = self.memory(gpu);
        let left = limits.hard_bytes.saturating_sub(limits.used_bytes);
        Some(ShownMemory {
            total_bytes: limits.hard_bytes.min(total_bytes),
            used_bytes: limits.used_bytes,
            free_bytes: left.min(total_bytes.saturating_sub(used_bytes)),
        })
    }
}
