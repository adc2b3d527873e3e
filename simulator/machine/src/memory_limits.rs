//! Memory limits of cgroups (NVML of driver 615, "MPS v3 Memory Partitioning"): what is set, counted and shown. Pure
//! functions on a core.
//!
//! - `dmem`: the limits of a process's cgroup and of all its ancestors hold. The nearest cgroup with the controller's files
//!   is shown, whether it has a limit or not. A soft limit is added to the ancestors', down to the first gap; nothing takes
//!   it off when the cgroup's directory is removed.
//! - `misc`: the nearest limited cgroup alone counts, holds and is shown.
//!
//! A process's memory counts where the process is now. Managed memory and what no process holds any more count nowhere. A
//! limit below what is in use refuses what comes (docs/hardware.md, "memory limits of cgroups").

use crate::cgroup::{Cgroup, Level};
use crate::core::{Core, LimitRow, MemberRow};
use crate::layout::{LIMITS, MEMBERS};
use crate::{DriverProfile, MemoryLimits, Refused};

/// `NVML_DEVICE_MEMORY_LIMIT_MAX`: no hard limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// Limits of a cgroup on a GPU, and what counts against them (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// What is guaranteed.
    pub soft_bytes: u64,
    /// What can be allocated; `u64::MAX`: all.
    pub hard_bytes: u64,
    /// What is in use.
    pub used_bytes: u64,
}

/// Refusal to set or tell a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotLimited {
    /// The driver has no such function (`driver.memory_limits = "none"`).
    #[error("the simulated driver does not limit memory")]
    NoFunction,
    /// No directory of a cgroup, or one without the files of `dmem`.
    #[error("no cgroup with the files of dmem")]
    NotFound,
    /// `misc`: neither the cgroup nor an ancestor has a limit (open: reported of one driver).
    #[error("no limit is set for the cgroup or an ancestor")]
    NotSet,
    /// The soft limit is above the hard one.
    #[error("the soft limit is above the hard one")]
    Impossible,
    /// The table is full.
    #[error("the simulated machine has {LIMITS} memory limits of cgroups; remove some cgroups")]
    Full,
    /// The state cannot be written.
    #[error("the simulated machine's state cannot be written")]
    NoState,
}

/// What a profile's driver does with limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    backend: MemoryLimits,
    unit_bytes: u64,
    rounds_up: bool,
    counts: bool,
}

impl Rules {
    pub(crate) fn of(driver: &DriverProfile) -> Rules {
        Rules {
            backend: driver.memory_limits,
            unit_bytes: driver.memory_limit_unit_bytes,
            rounds_up: driver.memory_limit_rounds_up,
            counts: driver.nvml_mps_list || !driver.memory_limits_need_mps,
        }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.backend != MemoryLimits::None
    }

    fn rounded(&self, bytes: u64) -> u64 {
        let down = bytes - bytes % self.unit_bytes;
        match bytes {
            UNLIMITED => UNLIMITED,
            _ if self.rounds_up && down < bytes => down.saturating_add(self.unit_bytes),
            _ => down,
        }
    }

    /// The cgroup whose figures count for one of these levels.
    fn shown(&self, core: &Core, gpu: u64, levels: &[Level]) -> Option<u64> {
        let mut levels = levels.iter();
        let shown = match self.backend {
            MemoryLimits::None => None,
            MemoryLimits::Dmem => levels.find(|level| level.has_files),
            MemoryLimits::Misc => levels.find(|level| core.limit(gpu, level.id).is_some()),
        };
        shown.map(|level| level.id)
    }
}

impl Core {
    fn limit(&self, gpu: u64, cgroup: u64) -> Option<&LimitRow> {
        self.limits.iter().find(|row| row.gpu == gpu && row.cgroup == cgroup)
    }

    /// A process's cgroup and its ancestors, as far as they are known.
    pub(crate) fn levels_of(&self, client: u64) -> Vec<Level> {
        let rows = self.members.iter().filter(|row| row.client == client);
        rows.map(|row| Level { id: row.cgroup, has_files: row.has_files != 0 }).collect()
    }

    /// Records the cgroup of a process. Returns whether it was another one. Error: `Refused::Full`.
    pub(crate) fn place(&mut self, client: u64, cgroup: &Cgroup) -> Result<bool, Refused> {
        if self.levels_of(client) == cgroup.levels {
            return Ok(false);
        }
        self.members.retain(|row| row.client != client);
        if self.members.len() + cgroup.levels.len() > MEMBERS {
            return Err(Refused::Full("processes in cgroups"));
        }
        let row = |level: &Level| MemberRow { client, cgroup: level.id, has_files: level.has_files.into() };
        self.members.extend(cgroup.levels.iter().map(row));
        Ok(true)
    }

    /// Whether the invariants of limits hold.
    pub(crate) fn check_limits(&self) -> bool {
        let is_client = |row: &MemberRow| self.clients.iter().any(|client| client.id == row.client);
        self.limits.len() <= LIMITS && self.members.len() <= MEMBERS && self.members.iter().all(is_client)
    }

    /// Memory that counts against a cgroup's limit on a GPU (bytes).
    fn used_in(&self, rules: Rules, gpu: u64, cgroup: u64) -> u64 {
        let is_member = |client: u64| match rules.backend {
            MemoryLimits::Misc => rules.shown(self, gpu, &self.levels_of(client)) == Some(cgroup),
            _ => self.members.iter().any(|row| row.client == client && row.cgroup == cgroup),
        };
        let counted = self.uses.iter().filter(|row| rules.counts && row.gpu == gpu && is_member(row.client));
        counted.fold(0, |sum: u64, row| sum.saturating_add(row.used - row.managed.min(row.used)))
    }

    /// Memory that the limits leave to a process on a GPU (bytes).
    pub(crate) fn left_by_limits(&self, rules: Rules, gpu: u64, client: u64) -> u64 {
        if !rules.counts {
            return UNLIMITED;
        }
        let levels = self.levels_of(client);
        let nearest = rules.shown(self, gpu, &levels);
        let holds = |level: &&Level| rules.backend == MemoryLimits::Dmem || Some(level.id) == nearest;
        let rows = levels.iter().filter(holds).filter_map(|level| self.limit(gpu, level.id));
        rows.filter(|row| row.hard != UNLIMITED)
            .map(|row| row.hard.saturating_sub(self.used_in(rules, gpu, row.cgroup)))
            .min()
            .unwrap_or(UNLIMITED)
    }

    /// The limits that hold and are shown for a cgroup, read by these levels.
    pub(crate) fn limits_of(&self, rules: Rules, gpu: u64, levels: &[Level]) -> Result<Limits, NotLimited> {
        let cgroup = rules.shown(self, gpu, levels).ok_or(match rules.backend {
            MemoryLimits::None => NotLimited::NoFunction,
            MemoryLimits::Misc if !levels.is_empty() => NotLimited::NotSet,
            _ => NotLimited::NotFound,
        })?;
        let row = self.limit(gpu, cgroup).copied();
        let row = row.unwrap_or(LimitRow { hard: UNLIMITED, ..LimitRow::default() });
        let used_bytes = self.used_in(rules, gpu, cgroup);
        Ok(Limits { soft_bytes: row.soft, hard_bytes: row.hard, used_bytes })
    }

    /// Sets the limits of the first of these levels.
    pub(crate) fn set_limits(
        &mut self,
        rules: Rules,
        gpu: u64,
        levels: &[Level],
        (soft, hard): (u64, u64),
    ) -> Result<(), NotLimited> {
        let (soft, hard) = (rules.rounded(soft), rules.rounded(hard));
        let (own, above) = levels.split_first().ok_or(NotLimited::NotFound)?;
        match rules.backend {
            MemoryLimits::None => return Err(NotLimited::NoFunction),
            MemoryLimits::Dmem if !own.has_files => return Err(NotLimited::NotFound),
            _ if soft > hard => return Err(NotLimited::Impossible),
            _ => {}
        }
        let before = self.limit(gpu, own.id).map_or(0, |row| row.soft);
        self.put_limit(LimitRow { gpu, cgroup: own.id, soft, hard })?;
        if rules.backend == MemoryLimits::Dmem {
            for level in above.iter().take_while(|level| level.has_files) {
                let row = self.limit(gpu, level.id).copied();
                let row = row.unwrap_or(LimitRow { gpu, cgroup: level.id, soft: 0, hard: UNLIMITED });
                let soft = row.soft.saturating_sub(before).saturating_add(soft);
                self.put_limit(LimitRow { soft, ..row })?;
            }
        }
        Ok(())
    }

    fn put_limit(&mut self, row: LimitRow) -> Result<(), NotLimited> {
        self.limits.retain(|other| (other.gpu, other.cgroup) != (row.gpu, row.cgroup));
        if (row.soft, row.hard) == (0, UNLIMITED) {
            return Ok(());
        }
        if self.limits.len() >= LIMITS {
            return Err(NotLimited::Full);
        }
        self.limits.push(row);
        Ok(())
    }
}
