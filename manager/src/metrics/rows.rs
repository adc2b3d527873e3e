//! Rows of a scrape: each GPU and tenant with its values from inventory, snapshot and grants.
//!
//! A granted tenant has a row as long as its grant, with zeros until the first look. A tenant of `vcuda run` has one as
//! long as its directory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vcuda_quota::{Policy, Priority, Quota};
use vcuda_region::GpuUuid;
use vcuda_region::suspension::SuspendState;

use super::labels::{ContainerLabels, UsedLabels};
use crate::gpu::{Gpu, Inventory};
use crate::grant::Grant;
use crate::observe::{Device, Snapshot, Tenant};

#[derive(Debug)]
pub(super) struct TenantRow {
    pub(super) id: String,
    pub(super) labels: ContainerLabels,
    pub(super) is_attached: bool,
    pub(super) findings: u64,
    pub(super) processes: u64,
    pub(super) state: SuspendState,
    pub(super) limits_generation: u64,
    pub(super) devices: Vec<DeviceRow>,
}

/// Row of a tenant on one GPU. Shares are thousandths of the GPU's time.
#[derive(Debug)]
pub(super) struct DeviceRow {
    pub(super) gpu: GpuUuid,
    /// Memory limit (bytes); the GPU's memory if there is none.
    pub(super) limit_bytes: u64,
    pub(super) cap_permille: u32,
    pub(super) promised_permille: u32,
    pub(super) policy: Policy,
    pub(super) priority: Priority,
    pub(super) used: Used,
    /// Part of the used memory that is in host memory (bytes).
    pub(super) away_bytes: u64,
}

/// Use so far; zeros before the first look.
#[derive(Debug, Default)]
pub(super) struct Used {
    pub(super) bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) overhead_bytes: u64,
    pub(super) denied: u64,
    pub(super) launches: u64,
    pub(super) served_ns: u64,
    pub(super) held_ns: u64,
    pub(super) debt_admits: u64,
    pub(super) forgiven_ns: u64,
    pub(super) cores_permille: u32,
}

/// Sums of what tenants were granted on a GPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) bytes: u64,
    pub(super) permille: u32,
    pub(super) shares: u64,
}

impl DeviceRow {
    /// Without a limit, a tenant may use all memory of its GPU; 0 while the GPU is unknown.
    fn new(gpu: GpuUuid, quota: &Quota, gpus: &BTreeMap<GpuUuid, &Gpu>, used: Used) -> Self {
        let all_bytes = gpus.get(&gpu).map_or(0, |gpu| gpu.memory_total_bytes);
        Self {
            gpu,
            limit_bytes: quota.memory_bytes.unwrap_or(all_bytes),
            cap_permille: quota.cores_max_permille,
            promised_permille: quota.reserved_permille(),
            policy: quota.policy,
            priority: quota.priority,
            used,
            away_bytes: 0,
        }
    }
}

impl From<&Device> for Used {
    fn from(device: &Device) -> Self {
        Self {
            bytes: device.used_bytes,
            peak_bytes: device.peak_bytes,
            overhead_bytes: device.overhead_bytes,
            denied: device.denied,
            launches: device.launches,
            served_ns: device.served_ns,
            held_ns: device.held_ns,
            debt_admits: device.debt_admits,
            forgiven_ns: device.forgiven_ns,
            cores_permille: device.cores_used_permille,
        }
    }
}

/// Rows of all tenants, the newest first (it gets the plain names). A tenant without a grant is about to be removed.
pub(super) fn rows(
    inventory: &Inventory,
    snapshot: &Snapshot,
    grants: &[Arc<Grant>],
    states: impl Fn(&str) -> SuspendState,
) -> Vec<TenantRow> {
    let gpus: BTreeMap<GpuUuid, &Gpu> = inventory.gpus.iter().map(|gpu| (gpu.uuid, gpu)).collect();
    let seen: BTreeMap<&str, &Tenant> =
        snapshot.tenants.iter().map(|tenant| (tenant.id.as_str(), tenant)).collect();
    let mut newest_first: Vec<&Grant> = grants.iter().map(AsRef::as_ref).collect();
    newest_first.sort_by_key(|grant| std::cmp::Reverse(grant.number));
    let mut used = UsedLabels::default();
    let mut rows = Vec::with_capacity(snapshot.tenants.len().max(grants.len()));
    for grant in newest_first {
        let tenant = seen.get(grant.id.as_str()).copied();
        rows.push(granted(grant, tenant, &gpus, &mut used));
    }
    for row in &mut rows {
        row.state = states(&row.id);
        for device in row.devices.iter_mut().filter(|_| row.state.is_memory_away()) {
            device.away_bytes = device.used.bytes;
        }
    }
    rows
}

fn granted(
    grant: &Grant,
    seen: Option<&Tenant>,
    gpus: &BTreeMap<GpuUuid, &Gpu>,
    used: &mut UsedLabels,
) -> TenantRow {
    let holder = &grant.holder;
    let name = if holder.container.is_empty() { grant.id.as_str() } else { &holder.container };
    let mut done = BTreeSet::new();
    let devices = grant.gpus.iter().filter(|gpu| done.insert(**gpu)).map(|gpu| {
        let device = seen.and_then(|tenant| tenant.devices.iter().find(|device| device.gpu == *gpu));
        let used = device.map(Used::from).unwrap_or_default();
        DeviceRow::new(*gpu, &grant.amounts, gpus, used)
    });
    TenantRow {
        id: grant.id.as_str().to_owned(),
        labels: used.reserve(&holder.namespace, &holder.pod, name, grant.id.as_str()),
        is_attached: seen.is_some_and(|tenant| tenant.attached),
        findings: seen.map_or(0, |tenant| tenant.findings.len() as u64),
        processes: seen.map_or(0, |tenant| tenant.processes.len() as u64),
        state: SuspendState::Running,
        limits_generation: seen.map_or(0, |tenant| tenant.limits_generation),
        devices: devices.collect(),
    }
}

/// Sums of what tenants were granted, by GPU.
pub(super) fn by_gpu(rows: &[TenantRow]) -> BTreeMap<GpuUuid, Granted> {
    let mut all: BTreeMap<GpuUuid, Granted> = BTreeMap::new();
    for device in rows.iter().flat_map(|row| &row.devices) {
        let granted = all.entry(device.gpu).or_default();
        granted.bytes = granted.bytes.saturating_add(device.limit_bytes);
        granted.permille = granted.permille.saturating_add(device.promised_permille);
        granted.shares += 1;
    }
    all
}
