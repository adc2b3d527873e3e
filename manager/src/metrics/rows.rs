//! Rows of a scrape: each GPU and tenant with its values from inventory, snapshot and grants.
//!
//! A granted tenant has a row as long as its grant, with zeros until the first look. A tenant of `vcuda run` has one as
//! long as its directory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vcuda_quota::Quota;
use vcuda_region::GpuUuid;
use vcuda_region::suspension::SuspendState;

use super::labels::{ContainerLabels, UsedLabels};
use crate::gpu::{Gpu, Inventory};
use crate::grant::Grant;
use crate::observe::{Device, Snapshot, Tenant};

/// Findings of the audit at its last look. Missing entries are 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// Memory of processes of no known tenant, by GPU (bytes).
    pub unregistered_bytes: BTreeMap<GpuUuid, u64>,
    /// Memory beyond a tenant's limit by NVML, by its id and GPU (bytes).
    pub over_bytes: BTreeMap<(String, GpuUuid), u64>,
}

#[derive(Debug)]
pub(super) struct TenantRow<'a> {
    pub(super) labels: ContainerLabels,
    /// The tenant, once it was looked at.
    pub(super) seen: Option<&'a Tenant>,
    pub(super) state: SuspendState,
    pub(super) devices: Vec<DeviceRow>,
}

/// Row of a tenant on one GPU. Shares are thousandths of the GPU's time.
#[derive(Debug)]
pub(super) struct DeviceRow {
    pub(super) gpu: GpuUuid,
    /// Memory limit (bytes). Without a limit it is the GPU's memory, 0 while the GPU is unknown.
    pub(super) limit_bytes: u64,
    pub(super) quota: Quota,
    pub(super) limits_generation: u64,
    /// Use so far; zeros before the first look.
    pub(super) used: Device,
    /// Part of the used memory that is in host memory (bytes).
    pub(super) away_bytes: u64,
    /// Memory beyond the limit, by NVML (bytes).
    pub(super) over_bytes: u64,
}

/// A GPU at a scrape.
pub(super) struct OnGpu<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) granted: Granted,
    pub(super) is_cordoned: bool,
    /// Memory of processes of no known tenant (bytes).
    pub(super) unregistered_bytes: u64,
}

/// Sums of what tenants were granted on a GPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) bytes: u64,
    pub(super) permille: u32,
    pub(super) shares: u64,
}

/// Rows of all tenants, the newest first (it gets the plain names). A tenant without a grant is about to be removed.
pub(super) fn rows<'a>(
    inventory: &Inventory,
    snapshot: &'a Snapshot,
    grants: &'a [Arc<Grant>],
    audited: &Audited,
    states: impl Fn(&str) -> SuspendState,
) -> Vec<TenantRow<'a>> {
    let mut newest_first: Vec<&Grant> = grants.iter().map(AsRef::as_ref).collect();
    newest_first.sort_by_key(|grant| std::cmp::Reverse(grant.number));
    let mut labels = UsedLabels::default();
    let row = |grant: &'a Grant| {
        let (id, holder) = (grant.id.as_str(), &grant.holder);
        let (seen, state) = (snapshot.find(id), states(id));
        let name = if holder.container.is_empty() { id } else { &holder.container };
        let mut done = BTreeSet::new();
        let gpus = grant.gpus.iter().filter(|gpu| done.insert(**gpu));
        let device = |gpu: &GpuUuid| {
            let all_bytes = inventory.find(gpu).map_or(0, |gpu| gpu.memory_total_bytes);
            let used = seen.and_then(|tenant| tenant.devices.iter().find(|device| device.gpu == *gpu));
            let used = used.copied().unwrap_or_else(|| Device::unused(*gpu, grant.amounts.config()));
            DeviceRow {
                gpu: *gpu,
                limit_bytes: grant.amounts.memory_bytes.unwrap_or(all_bytes),
                quota: grant.amounts,
                limits_generation: seen.map_or(0, |tenant| tenant.limits_generation),
                used,
                away_bytes: if state.is_memory_away() { used.used_bytes } else { 0 },
                over_bytes: audited.over_bytes.get(&(id.to_owned(), *gpu)).copied().unwrap_or(0),
            }
        };
        let labels = labels.reserve(&holder.namespace, &holder.pod, name, id);
        TenantRow { seen, labels, state, devices: gpus.map(device).collect() }
    };
    newest_first.into_iter().map(row).collect()
}

/// Sums of what tenants were granted, by GPU.
pub(super) fn by_gpu(rows: &[TenantRow<'_>]) -> BTreeMap<GpuUuid, Granted> {
    let mut all: BTreeMap<GpuUuid, Granted> = BTreeMap::new();
    for device in rows.iter().flat_map(|row| &row.devices) {
        let granted = all.entry(device.gpu).or_default();
        granted.bytes = granted.bytes.saturating_add(device.limit_bytes);
        granted.permille = granted.permille.saturating_add(device.quota.reserved_permille());
        granted.shares += 1;
    }
    all
}
