//! Findings of one look, computed from what was read.

use std::collections::{BTreeMap, BTreeSet};

use vcuda_quota::MemorySize;
use vcuda_region::GpuUuid;

use vcuda_region::release;

use super::lowered_limits::LoweredLimits;
use super::{
    DETACHED, LIMIT_BELOW_USE, LOOKS, MEMORY_LEFT, NOT_ATTACHED, NOT_REGISTERED, OLDER_SHIM, OVER_LIMIT,
    TAMPERED, UNREGISTERED,
};
use crate::observe::{Device, Process, Snapshot, Tenant};

/// Tolerated difference between NVML's figure and the counted one (bytes), as NVML rounds and the driver's own use is
/// charged a moment later.
const SLACK_BYTES: u64 = 64 << 20;

/// Number of looks after which a process must have registered. It registers at once, or after two seconds if a manager was
/// too busy.
const UNHEARD_LOOKS: u32 = 10;

/// Use of one GPU by one process, as NVML shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) gpu: GpuUuid,
    pub(super) host_pid: u32,
    /// Memory (bytes), if NVML says.
    pub(super) used_bytes: Option<u64>,
    pub(super) owner: Owner,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A process of this tenant that has loaded its limits.
    Attached(String),
    /// A process of this tenant that has not loaded its limits.
    Inside(String),
    /// A process of this tenant whose files were deleted: its limits can no longer be changed.
    Detached(String),
    /// A process of no known tenant.
    Unknown,
}

impl Owner {
    /// The tenant's id, if it is known.
    pub(crate) fn tenant(&self) -> Option<&str> {
        match self {
            Owner::Attached(id) | Owner::Inside(id) | Owner::Detached(id) => Some(id),
            Owner::Unknown => None,
        }
    }
}

/// A deviation that the audit reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) key: Key,
    /// Number of looks in a row that must find it.
    pub(super) looks: u32,
    pub(super) text: String,
    /// Whether it needs no remedy: it is then reported once, and not kept among the findings.
    pub(super) is_note: bool,
    /// Memory in question (bytes).
    pub(super) bytes: u64,
}

/// Fields that identify a finding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) reason: &'static str,
    pub(super) tenant: Option<String>,
    pub(super) gpu: Option<GpuUuid>,
    pub(super) host_pid: Option<u32>,
}

impl Finding {
    pub(super) fn new(
        reason: &'static str,
        tenant: Option<&str>,
        gpu: Option<GpuUuid>,
        host_pid: Option<u32>,
        text: String,
    ) -> Self {
        let key = Key { reason, tenant: tenant.map(str::to_owned), gpu, host_pid };
        Self { key, looks: LOOKS, text, is_note: false, bytes: 0 }
    }
}

/// GPUs that tenants were granted.
pub(super) fn gpus_of(snapshot: &Snapshot) -> BTreeSet<GpuUuid> {
    let devices = snapshot.tenants.iter().flat_map(|tenant| &tenant.devices);
    devices.map(|device| device.gpu).collect()
}

/// All findings of one look.
pub(super) fn findings_in(snapshot: &Snapshot, uses: &[Use], lowered: &LoweredLimits) -> Vec<Finding> {
    let mut found: Vec<Finding> = uses.iter().filter_map(process_finding).collect();
    let mut by_owner: BTreeMap<(&str, GpuUuid), (u64, u64)> = BTreeMap::new();
    for one in uses {
        let bytes = one.used_bytes.unwrap_or(0);
        let (name, attached) = match &one.owner {
            Owner::Attached(name) => (name, bytes),
            Owner::Inside(name) | Owner::Detached(name) => (name, 0),
            Owner::Unknown => continue,
        };
        let sums = by_owner.entry((name.as_str(), one.gpu)).or_default();
        *sums = (sums.0.saturating_add(bytes), sums.1.saturating_add(attached));
    }
    for tenant in &snapshot.tenants {
        found.extend(damage_finding(tenant));
        found.extend(unregistered_finding(tenant));
        found.extend(older_shim_finding(tenant));
        for device in &tenant.devices {
            let sums = by_owner.get(&(tenant.id.as_str(), device.gpu)).copied().unwrap_or_default();
            found.extend(left_finding(tenant, device));
            let kept = lowered.kept_bytes(&tenant.id, device.gpu);
            found.extend(amount_findings(tenant, device, sums, kept));
        }
    }
    found
}

fn process_finding(one: &Use) -> Option<Finding> {
    let Use { gpu, host_pid: pid, .. } = one;
    match &one.owner {
        Owner::Attached(_) => None,
        Owner::Inside(name) => Some(Finding::new(
            NOT_ATTACHED,
            Some(name),
            Some(*gpu),
            Some(*pid),
            format!(
                "process {pid} of {name} uses {gpu} and has not loaded its limits: is it linked statically, or was the preloaded library removed from its environment?"
            ),
        )),
        Owner::Detached(name) => Some(Finding {
            bytes: one.used_bytes.unwrap_or(0),
            ..Finding::new(
                DETACHED,
                Some(name),
                Some(*gpu),
                Some(*pid),
                format!(
                    "process {pid} of {name} uses {gpu} with files that were deleted: it keeps the limits of then, and what it has is in no figure but NVML's; restart it, or end it if its grant was released"
                ),
            )
        }),
        Owner::Unknown => Some(Finding {
            bytes: one.used_bytes.unwrap_or(0),
            ..Finding::new(
                UNREGISTERED,
                None,
                Some(*gpu),
                Some(*pid),
                format!(
                    "process {pid} uses {gpu}, which is shared, and belongs to no container: nothing limits it; end it, or start it with `vcuda run`"
                ),
            )
        }),
    }
}

/// A process of the tenant that has memory by its slot and has not registered.
fn unregistered_finding(tenant: &Tenant) -> Option<Finding> {
    let is_unheard =
        |process: &&Process| !process.registered && process.used_bytes.iter().any(|bytes| *bytes > 0);
    let process = tenant.processes.iter().find(is_unheard)?;
    let text = format!(
        "process {} of {} has GPU memory by its slot and has not registered: can it reach manager.sock (mount the directory, not its files), and is its library of a release that speaks with this manager?",
        process.host_pid.unwrap_or(process.pid),
        tenant.id
    );
    Some(Finding {
        looks: UNHEARD_LOOKS,
        ..Finding::new(NOT_REGISTERED, Some(&tenant.id), None, process.host_pid, text)
    })
}

/// Processes with an older library than the manager's. They go on, and new processes of the tenant get the newer one.
fn older_shim_finding(tenant: &Tenant) -> Option<Finding> {
    let own = release::number();
    let is_older = |process: &&Process| process.release.is_some_and(|release| release < own);
    let older = tenant.processes.iter().filter(is_older).count();
    let oldest = tenant.processes.iter().filter_map(|process| process.release).min()?;
    (older > 0).then(|| Finding {
        is_note: true,
        ..Finding::new(
            OLDER_SHIM,
            Some(&tenant.id),
            None,
            None,
            format!(
                "{older} processes of {} have loaded libvcuda_shim {}, the manager is {}: they work together; restart them when it suits",
                tenant.id,
                release::name(oldest),
                release::name(own)
            ),
        )
    })
}

/// Memory of a tenant that has no process any more.
fn left_finding(tenant: &Tenant, device: &Device) -> Option<Finding> {
    (tenant.processes.is_empty() && device.used_bytes > 0).then(|| {
        let text = format!(
            "{} has no process, and another one keeps {} of {} that it has exported: they count until that one closes the descriptors or ends",
            tenant.id,
            MemorySize(device.used_bytes),
            device.gpu
        );
        Finding {
            bytes: device.used_bytes,
            ..Finding::new(MEMORY_LEFT, Some(&tenant.id), Some(device.gpu), None, text)
        }
    })
}

fn damage_finding(tenant: &Tenant) -> Option<Finding> {
    let problem = tenant.problem.as_ref()?;
    let text = format!("the files of {} cannot be trusted: {problem}; start it again", tenant.id);
    Some(Finding {
        // Two looks suffice, as files appear complete: only one that is just being removed looks damaged.
        looks: 2,
        ..Finding::new(TAMPERED, Some(&tenant.id), None, None, text)
    })
}

fn amount_findings(
    tenant: &Tenant,
    device: &Device,
    (all_bytes, attached_bytes): (u64, u64),
    kept_bytes: Option<u64>,
) -> Vec<Finding> {
    let (gpu, used, limit) = (device.gpu, device.used_bytes, device.config.memory_limit_bytes);
    let finding = |reason, text| Finding::new(reason, Some(&tenant.id), Some(gpu), None, text);
    let mut found = Vec::new();
    let allowed = kept_bytes.unwrap_or(0).max(limit);
    if limit > 0 && all_bytes.max(used) > allowed.saturating_add(SLACK_BYTES) {
        let have = all_bytes.max(used);
        let text = format!(
            "{} has {} of {gpu} and may have {}; end its processes that use most",
            tenant.id,
            MemorySize(have),
            MemorySize(limit)
        );
        found.push(Finding { bytes: have - limit, ..finding(OVER_LIMIT, text) });
    } else if let Some(kept) = kept_bytes {
        let text = format!(
            "the limit of {} was lowered to {}, and it has {} of {gpu}: it keeps that, and gets nothing more until it is below",
            tenant.id,
            MemorySize(limit),
            MemorySize(kept)
        );
        found.push(Finding { is_note: true, ..finding(LIMIT_BELOW_USE, text) });
    }
    if attached_bytes > used.saturating_add(SLACK_BYTES.max(used / 20)) {
        found.push(finding(
            TAMPERED,
            format!(
                "{} says that it uses {} of {gpu}, and NVML says {}: its processes hide memory",
                tenant.id,
                MemorySize(used),
                MemorySize(attached_bytes)
            ),
        ));
    }
    found
}
