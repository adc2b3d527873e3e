//! What NVML knows of GPUs and the tenants on them, while room is wanted there. What a tenant writes of itself suspends no other.

use std::collections::HashMap;

use vcuda_region::GpuUuid;
use vcuda_region::suspension::SuspendState;

use super::super::Shared;
use crate::observe::{Device, Snapshot, Tenant};

/// Memory that NVML shows as free and the driver may not give: it takes memory in large pieces (bytes).
const PIECES_BYTES: u64 = 16 << 20;

/// The figures of several GPUs. One of which NVML does not tell the memory of each process is left out.
#[derive(Debug)]
pub(super) struct Figures<'s> {
    shared: &'s Shared,
    snapshot: &'s Snapshot,
    known: Vec<Known>,
    /// Whether there is one that is left out.
    is_incomplete: bool,
}

#[derive(Debug)]
struct Known {
    gpu: GpuUuid,
    /// Memory by host PID (bytes).
    by_process: HashMap<u32, u64>,
    /// Memory for tenants (bytes).
    total_bytes: u64,
}

/// Memory of a tenant that wants room, and what was free, before others were suspended for it: (bytes, bytes) by GPU.
#[derive(Debug, Clone, Default)]
pub(super) struct Before(Vec<(GpuUuid, u64, u64)>);

impl<'s> Figures<'s> {
    /// Asks NVML now.
    pub(super) fn of_all(shared: &'s Shared, snapshot: &'s Snapshot, gpus: &[GpuUuid]) -> Self {
        let known: Vec<Known> = gpus.iter().filter_map(|gpu| Known::ask(shared, *gpu)).collect();
        Self { is_incomplete: known.len() < gpus.len(), shared, snapshot, known }
    }

    pub(super) fn tenants(&self) -> &[Tenant] {
        &self.snapshot.tenants
    }

    /// Whether the driver may have refused a tenant memory within its quota.
    pub(super) fn may_lack_room(&self, tenant: &Tenant) -> bool {
        self.is_incomplete || self.known.iter().any(|gpu| gpu.may_lack_room(tenant))
    }

    /// Whether a tenant that is suspended now finds room again, at the latest when all other suspendable ones are away. It does
    /// not if a process outside of vcuda has taken the room that was theirs.
    pub(super) fn may_come_back(&self, tenant: &Tenant) -> bool {
        let others = self.snapshot.tenants.iter().filter(|other| other.id != tenant.id);
        let (leaving, staying): (Vec<_>, Vec<_>) = others.partition(|other| other.is_suspendable);
        let on_gpu = |other: &&&Tenant| self.shared.state(&other.id) != SuspendState::Suspended;
        self.known.iter().all(|gpu| {
            let leaving_bytes: u64 = leaving.iter().map(|other| gpu.used_bytes(other)).sum();
            let claims = staying.iter().filter(on_gpu).map(|other| gpu.quota_left_bytes(other));
            gpu.free_bytes().saturating_add(leaving_bytes) >= claims.fold(0, u64::saturating_add)
        })
    }

    /// The present figures for a tenant that wants room.
    pub(super) fn before(&self, id: &str) -> Before {
        let Some(tenant) = self.snapshot.find(id) else {
            return Before::default();
        };
        let figures = |gpu: &Known| (gpu.gpu, gpu.used_bytes(tenant), gpu.free_bytes());
        Before(self.known.iter().map(figures).collect())
    }
}

impl Known {
    fn ask(shared: &Shared, gpu: GpuUuid) -> Option<Self> {
        let total_bytes = shared.grants.inventory().find(&gpu)?.grantable_bytes(0);
        let processes = shared.node.processes(&gpu).ok()?.into_iter();
        let by_process = processes.map(|(pid, bytes)| Some((pid, bytes?)));
        Some(Self { gpu, by_process: by_process.collect::<Option<_>>()?, total_bytes })
    }

    fn free_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.by_process.values().sum())
    }

    fn used_bytes(&self, tenant: &Tenant) -> u64 {
        let host_pids = tenant.processes.iter().filter_map(|process| process.host_pid);
        host_pids.filter_map(|pid| self.by_process.get(&pid)).sum()
    }

    fn device<'t>(&self, tenant: &'t Tenant) -> Option<&'t Device> {
        tenant.devices.iter().find(|device| device.gpu == self.gpu)
    }

    /// Memory that a tenant may take beyond what NVML shows of it (bytes).
    fn quota_left_bytes(&self, tenant: &Tenant) -> u64 {
        self.device(tenant).map_or(0, |device| {
            let quota_bytes = device.config.memory_limit_bytes;
            quota_bytes.saturating_sub(self.used_bytes(tenant))
        })
    }

    /// Whether the driver may have refused a tenant memory within its quota. What it says that it uses is taken off the quota,
    /// too, as that only lowers its demand.
    fn may_lack_room(&self, tenant: &Tenant) -> bool {
        self.device(tenant).is_some_and(|device| {
            let quota_bytes = device.config.memory_limit_bytes.min(self.total_bytes);
            let used_bytes = device.used_bytes.max(self.used_bytes(tenant));
            let left_bytes = quota_bytes.saturating_sub(used_bytes);
            left_bytes > 0 && self.free_bytes() < left_bytes.saturating_add(PIECES_BYTES)
        })
    }
}

impl Before {
    /// Whether the tenant has taken memory since that it would not have had without a suspension. Unknown is no.
    pub(super) fn is_used_now(&self, shared: &Shared, snapshot: &Snapshot, id: &str) -> bool {
        let Some(tenant) = snapshot.find(id) else {
            return false;
        };
        self.0.iter().any(|(gpu, used_bytes, free_bytes)| {
            Known::ask(shared, *gpu).is_some_and(|now| {
                let more_bytes = now.used_bytes(tenant).saturating_sub(*used_bytes);
                more_bytes > 0 && more_bytes.saturating_add(PIECES_BYTES) >= *free_bytes
            })
        })
    }
}
