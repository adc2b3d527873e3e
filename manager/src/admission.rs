//! Admission: the choice of GPUs for a tenant and the check that its quota fits. Pure arithmetic, exact to the byte.
//!
//! A GPU offers three things. Memory: what its driver leaves, less a reserve for each tenant's contexts, times the
//! overcommit factor. Time: 1000 thousandths, times its factor. Places: a maximum number of tenants.
//!
//! With a factor for suspendable tenants, all quotas together may exceed the memory by that factor. But each suspendable
//! tenant fits beside all that are not suspendable, so it can always come back when the others are suspended.

use serde::Deserialize;
use std::cmp::Reverse;

use vcuda_quota::{MemorySize, Quota};
use vcuda_region::GpuUuid;

use crate::gpu::{Gpu, Health};
use crate::value;

mod choose;
mod parts;
mod refusal;
#[cfg(test)]
mod tests;

pub use parts::Parts;
pub use refusal::Refusal;

/// Order of preference among GPUs that have room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The fullest first.
    #[default]
    Binpack,
    /// The emptiest first.
    Spread,
    /// GPUs nearest to each other.
    Topology,
}

/// Bounds on the amounts of a GPU that may be granted: table `[admission]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default = "Rules::configured", deny_unknown_fields)]
pub struct Rules {
    /// Memory kept for the contexts of each tenant on a GPU (bytes).
    #[serde(rename = "reserve", deserialize_with = "value::size")]
    pub reserve_bytes_per_sharer: u64,
    /// Maximum number of tenants on one GPU.
    #[serde(deserialize_with = "value::sharers")]
    pub sharers_max: u32,
    /// Part of the memory that may be granted (thousandths); 1000 is all of it, once.
    #[serde(rename = "memory_overcommit", deserialize_with = "value::factor")]
    pub memory_overcommit_permille: u32,
    /// Part of the memory that may be granted if the rest is suspendable tenants' (thousandths, on top of
    /// `memory_overcommit_permille`); 1000: suspendable tenants count like others.
    #[serde(rename = "suspendable_overcommit", deserialize_with = "value::factor")]
    pub suspendable_overcommit_permille: u32,
    /// Part of the time that may be promised (thousandths); 1000 is all of it, once.
    #[serde(rename = "cores_overcommit", deserialize_with = "value::factor")]
    pub cores_overcommit_permille: u32,
    /// Placement for requests that name none.
    pub placement: Placement,
    /// Whether each quota fits whatever else is granted, as among the runs of one user.
    #[serde(skip)]
    pub is_open: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            reserve_bytes_per_sharer: 0,
            sharers_max: 16,
            memory_overcommit_permille: 1000,
            suspendable_overcommit_permille: 1000,
            cores_overcommit_permille: 1000,
            placement: Placement::Binpack,
            is_open: false,
        }
    }
}

/// Amounts of one GPU that are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Sum of the memory limits (bytes).
    pub memory_bytes: u64,
    /// Part of `memory_bytes` that is suspendable tenants' (bytes).
    pub suspendable_bytes: u64,
    /// Largest memory limit of a suspendable tenant (bytes).
    pub largest_suspendable_bytes: u64,
    /// Sum of the promised shares (thousandths).
    pub promised_permille: u32,
    /// Number of tenants.
    pub sharers: u32,
    /// Whether a tenant has all of the memory.
    pub is_whole: bool,
}

impl Load {
    /// Adds one tenant; no `memory_bytes` means all of the memory.
    pub fn add(&mut self, memory_bytes: Option<u64>, promised_permille: u32) {
        self.sharers = self.sharers.saturating_add(1);
        self.promised_permille = self.promised_permille.saturating_add(promised_permille);
        match memory_bytes {
            Some(bytes) => self.memory_bytes = self.memory_bytes.saturating_add(bytes),
            None => self.is_whole = true,
        }
    }

    /// As [`Load::add`], for a tenant that may be suspended.
    pub fn add_suspendable(&mut self, memory_bytes: Option<u64>, promised_permille: u32) {
        self.add(memory_bytes, promised_permille);
        let bytes = memory_bytes.unwrap_or(0);
        self.suspendable_bytes = self.suspendable_bytes.saturating_add(bytes);
        self.largest_suspendable_bytes = self.largest_suspendable_bytes.max(bytes);
    }
}

/// A GPU and its load.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// Amounts taken.
    pub load: Load,
    /// Whether the GPU is excluded from placement.
    pub is_cordoned: bool,
}

/// Amounts of a GPU that are left for one more tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Free {
    /// Memory (bytes).
    pub memory_bytes: u64,
    /// Time (thousandths).
    pub cores_permille: u32,
    /// Places for tenants.
    pub sharers: u32,
    /// Whether no tenant is on the GPU.
    pub is_empty: bool,
}

impl Rules {
    /// The rules of a manager whose configuration says nothing else.
    pub(crate) fn configured() -> Self {
        Self { reserve_bytes_per_sharer: 512 << 20, ..Self::default() }
    }

    /// Whether the quotas on a GPU may exceed its memory as suspendable tenants take turns.
    pub fn may_exceed_memory(&self) -> bool {
        self.suspendable_overcommit_permille > 1000
    }

    /// All memory that `gpu` can give to `sharers` tenants together (bytes).
    pub fn memory_capacity_bytes(&self, gpu: &Gpu, sharers: u32) -> u64 {
        let reserve = self.reserve_bytes_per_sharer.saturating_mul(u64::from(sharers));
        let once = u128::from(gpu.grantable_bytes(reserve));
        let bytes = once * u128::from(self.memory_overcommit_permille) / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Memory that is left beside `load` for a tenant that is one of `sharers` (bytes).
    pub fn memory_left_bytes(&self, gpu: &Gpu, load: &Load, sharers: u32, is_suspendable: bool) -> u64 {
        if load.is_whole {
            return 0;
        }
        let once = self.memory_capacity_bytes(gpu, sharers);
        let all = u128::from(once) * u128::from(self.suspendable_overcommit_permille) / 1000;
        let all = u64::try_from(all).unwrap_or(u64::MAX);
        // Suspendable tenants need not fit beside each other, but each beside all others.
        let others = load.memory_bytes.saturating_sub(load.suspendable_bytes);
        let beside_largest = once.checked_sub(others.saturating_add(load.largest_suspendable_bytes));
        let beside_others = match beside_largest {
            None => 0,
            Some(_) if is_suspendable => once.saturating_sub(others),
            Some(left) => left,
        };
        beside_others.min(all.saturating_sub(load.memory_bytes))
    }

    /// Amounts left for one more tenant.
    pub fn free(&self, gpu: &Gpu, load: &Load, is_suspendable: bool) -> Free {
        let sharers = load.sharers.saturating_add(1);
        Free {
            memory_bytes: self.memory_left_bytes(gpu, load, sharers, is_suspendable),
            cores_permille: self.cores_overcommit_permille.saturating_sub(load.promised_permille),
            sharers: if load.is_whole { 0 } else { self.sharers_max.saturating_sub(load.sharers) },
            is_empty: load.sharers == 0,
        }
    }

    /// A warning for a tenant with less memory than one context takes: it starts, and its programs then fail.
    pub fn too_small(&self, amounts: &Quota) -> Option<String> {
        let bytes = amounts.memory_bytes.filter(|bytes| *bytes < self.reserve_bytes_per_sharer)?;
        Some(format!(
            "{} is less than the {} that are kept for a tenant's contexts (admission.reserve): the first context of a program \
             may not fit; ask for more",
            MemorySize(bytes),
            MemorySize(self.reserve_bytes_per_sharer)
        ))
    }

    /// Whether one more tenant with these amounts fits beside `load`.
    pub fn fits(&self, gpu: &Gpu, load: &Load, amounts: &Quota, is_suspendable: bool) -> bool {
        let free = self.free(gpu, load, is_suspendable);
        let has_memory = match amounts.memory_bytes {
            Some(bytes) => bytes <= free.memory_bytes,
            None => free.is_empty && free.memory_bytes > 0,
        };
        self.is_open || has_memory && amounts.reserved_permille() <= free.cores_permille && free.sharers > 0
    }
}

/// GPUs that a request asks for.
#[derive(Debug, Clone, Copy)]
pub enum Requested<'a> {
    /// Exactly these GPUs.
    Named(&'a [GpuUuid]),
    /// Any GPUs that have room.
    Any {
        /// Number of different GPUs.
        count: usize,
        /// Preference among those with room.
        placement: Placement,
        /// The only GPUs to choose from; empty: all.
        include: &'a [GpuUuid],
        /// GPUs that must not be chosen.
        exclude: &'a [GpuUuid],
    },
}

/// Chooses the GPUs for a new tenant, in the order in which it will see them.
pub fn place(
    rules: &Rules,
    candidates: &[Candidate<'_>],
    amounts: &Quota,
    is_suspendable: bool,
    wanted: &Requested<'_>,
) -> Result<Vec<GpuUuid>, Refusal> {
    match wanted {
        // NVML may not have answered yet: who names a GPU has seen it.
        Requested::Named(uuids) if rules.is_open => Ok(uuids.to_vec()),
        Requested::Named(uuids) => {
            for uuid in *uuids {
                let candidate = find(candidates, uuid)?;
                if let Some(why) = why_unusable(candidate) {
                    return Err(Refusal::unusable(candidate, why));
                }
                if !rules.fits(candidate.gpu, &candidate.load, amounts, is_suspendable) {
                    return Err(Refusal::no_room(rules, amounts, is_suspendable, 1, &[*candidate]));
                }
            }
            Ok(uuids.to_vec())
        }
        Requested::Any { count, placement, include, exclude } => {
            for uuid in include.iter().chain(*exclude) {
                find(candidates, uuid)?;
            }
            let asked: Vec<Candidate<'_>> = candidates
                .iter()
                .filter(|candidate| include.is_empty() || include.contains(&candidate.gpu.uuid))
                .filter(|candidate| !exclude.contains(&candidate.gpu.uuid))
                .copied()
                .collect();
            let mut open: Vec<Candidate<'_>> = asked
                .iter()
                .filter(|candidate| {
                    why_unusable(candidate).is_none()
                        && rules.fits(candidate.gpu, &candidate.load, amounts, is_suspendable)
                })
                .copied()
                .collect();
            if open.len() < *count {
                return Err(Refusal::no_room(rules, amounts, is_suspendable, *count, &asked));
            }
            // The sort is stable: equal GPUs keep the inventory's order.
            match placement {
                Placement::Binpack | Placement::Topology => {
                    open.sort_by_key(|candidate| Reverse(fullness(rules, candidate)));
                }
                Placement::Spread => open.sort_by_key(|candidate| fullness(rules, candidate)),
            }
            if *placement == Placement::Topology {
                open = choose::nearest(&open, *count);
            }
            open.truncate(*count);
            Ok(open.iter().map(|candidate| candidate.gpu.uuid).collect())
        }
    }
}

/// Checks that a tenant with quota `before` on these GPUs can have `after`. `candidates` do not include the tenant itself.
/// An amount that does not grow is never refused.
pub fn resize(
    rules: &Rules,
    candidates: &[Candidate<'_>],
    gpus: &[GpuUuid],
    (before, after): (&Quota, &Quota),
    is_suspendable: bool,
) -> Result<(), Refusal> {
    // Going from all memory to an amount is checked, as the amount may exceed the GPU's memory.
    let memory_stays = match (before.memory_bytes, after.memory_bytes) {
        (Some(before), Some(after)) => after <= before,
        (before, after) => before == after,
    };
    let cores_stay = after.reserved_permille() <= before.reserved_permille();
    if rules.is_open || memory_stays && cores_stay {
        return Ok(());
    }
    for uuid in gpus {
        let candidate = find(candidates, uuid)?;
        let free = rules.free(candidate.gpu, &candidate.load, is_suspendable);
        // Unchanged amounts are not checked again: on an overcommitted node a tenant may still grow in the other one.
        let memory_fits = memory_stays
            || match after.memory_bytes {
                Some(bytes) => bytes <= free.memory_bytes,
                None => free.is_empty,
            };
        let cores_fit = cores_stay || after.reserved_permille() <= free.cores_permille;
        if !memory_fits || !cores_fit {
            return Err(Refusal::no_growth((before, after), &free, candidate.gpu.uuid, &candidate.load));
        }
    }
    Ok(())
}

fn find<'c, 'a>(candidates: &'c [Candidate<'a>], uuid: &GpuUuid) -> Result<&'c Candidate<'a>, Refusal> {
    let found = candidates.iter().find(|candidate| candidate.gpu.uuid == *uuid);
    found.ok_or_else(|| Refusal::unknown(uuid, candidates))
}

/// The reason why no new grant may be placed on the GPU; `None` if one may.
fn why_unusable(candidate: &Candidate<'_>) -> Option<String> {
    match &candidate.gpu.health {
        Health::Unhealthy(why) => Some(format!("unhealthy: {why}")),
        Health::Healthy if candidate.is_cordoned => Some("cordoned".to_owned()),
        Health::Healthy => None,
    }
}

/// Fullness of a GPU: its used memory and time together (millionths), then its number of tenants.
fn fullness(rules: &Rules, candidate: &Candidate<'_>) -> (u128, u32) {
    let part = |taken: u64, of: u64| u128::from(taken) * 1_000_000 / u128::from(of.max(1));
    let capacity = rules.memory_capacity_bytes(candidate.gpu, candidate.load.sharers);
    let memory = part(candidate.load.memory_bytes, capacity);
    let time = part(candidate.load.promised_permille.into(), rules.cores_overcommit_permille.into());
    (memory + time, candidate.load.sharers)
}
