//! Snapshots of all tenants, read from their `usage` files and shared by service, metrics and audit.
//!
//! The tenants' processes wrote every figure of a [`Snapshot`]. The figures are bounded, but not trusted (I12, I15).

mod slot_processes;
mod snapshot_cache;
mod tenant;
mod totals;
mod watch;

use vcuda_quota::DeviceConfig;
use vcuda_region::GpuUuid;

use crate::grant::Grant;

pub use snapshot_cache::SnapshotCache;
pub use watch::{DriverLimits, Findings, Observatory};

/// All tenants of the node at one moment, those of `vcuda run` under the same root too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Number of the snapshot, from 1; 0 before the first.
    pub number: u64,
    /// Time before the first read (`CLOCK_MONOTONIC`, ns).
    pub taken_ns: u64,
    /// Tenants in the order of their names.
    pub tenants: Vec<Tenant>,
    /// Tenants whose directories went away within the last seconds, by their last figures: each with the number of the first snapshot
    /// without it.
    pub ended: Vec<(u64, Tenant)>,
}

/// State of a tenant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tenant {
    /// Name of its directory, which is its grant's id.
    pub id: String,
    /// Inode of its directory: a later tenant of the name has another one.
    pub inode: u64,
    /// Whether it ends with its processes, as one of `vcuda run` does.
    pub is_transient: bool,
    /// Whether it may be suspended.
    pub is_suspendable: bool,
    /// Number of times that its limits were written.
    pub limits_generation: u64,
    /// Its GPUs, in the order in which it sees them.
    pub devices: Vec<Device>,
    /// Its living processes that hold a slot or have registered.
    pub processes: Vec<Process>,
    /// Whether a process has registered and holds a slot.
    pub attached: bool,
    /// Present findings of the audit, a sentence each.
    pub findings: Vec<String>,
    /// Whether the driver limits its memory, too.
    pub driver_limit: DriverLimit,
    /// The reason why its files cannot be read. The figures are then the last readable ones.
    pub problem: Option<String>,
}

/// Whether the driver itself holds a tenant's processes to its quotas of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DriverLimit {
    /// The driver has no such limits, or the tenant has no quota or no process.
    #[default]
    None,
    /// The cgroups of all its processes are limited on all GPUs with a quota.
    Set,
    /// The reason why one of them is not, a clause.
    Missing(String),
}

/// A tenant's use of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// The GPU.
    pub gpu: GpuUuid,
    /// Limits of the tenant on this GPU.
    pub config: DeviceConfig,
    /// Memory counted now, overhead included (bytes).
    pub used_bytes: u64,
    /// Most memory counted at once (bytes).
    pub peak_bytes: u64,
    /// Part of `used_bytes` that is the driver's overhead (bytes).
    pub overhead_bytes: u64,
    /// Reservations refused since the directory was made, including those of dead processes.
    pub denied: u64,
    /// Size of the last one (bytes); 0 if it is not known.
    pub denied_bytes: u64,
    /// Memory of the tenant then (bytes).
    pub denied_used_bytes: u64,
    /// Launches since the directory was made, including those of dead processes.
    pub launches: u64,
    /// GPU time charged to the tenant since its directory was made (ns).
    pub served_ns: u64,
    /// Time that launches waited, since the directory was made (ns).
    pub held_ns: u64,
    /// Launches that proceeded on debt after a wait, since the directory was made.
    pub debt_admits: u64,
    /// Debt forgiven, since the directory was made (ns).
    pub forgiven_ns: u64,
    /// GPU time of the last second (thousandths of the GPU).
    pub cores_used_permille: u32,
    /// Number of copies between host and GPU while GPU time was metered.
    pub host_copies: u64,
    /// Bytes of those copies.
    pub host_copied_bytes: u64,
}

impl Device {
    /// A device that the tenant has not used yet.
    pub fn unused(gpu: GpuUuid, config: DeviceConfig) -> Self {
        Self {
            gpu,
            config,
            used_bytes: 0,
            peak_bytes: 0,
            overhead_bytes: 0,
            denied: 0,
            denied_bytes: 0,
            denied_used_bytes: 0,
            launches: 0,
            served_ns: 0,
            held_ns: 0,
            debt_admits: 0,
            forgiven_ns: 0,
            cores_used_permille: 0,
            host_copies: 0,
            host_copied_bytes: 0,
        }
    }
}

/// A process of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// PID in the host's PID namespace; `None` if unknown (it has not registered).
    pub host_pid: Option<u32>,
    /// PID in the process's own PID namespace.
    pub pid: u32,
    /// Name of the command, from the kernel.
    pub name: String,
    /// Whether the process has registered.
    pub registered: bool,
    /// Release of its shim, from the registration ([`vcuda_region::release::NUMBER`]).
    pub release: Option<u32>,
    /// Memory (bytes) by GPU, in the order of the tenant's devices.
    pub used_bytes: Vec<u64>,
}

impl Tenant {
    /// A tenant that was granted just now.
    pub fn unused(grant: &Grant) -> Self {
        let config = grant.amounts.config();
        Self {
            id: grant.id.as_str().to_owned(),
            is_transient: grant.is_transient,
            is_suspendable: grant.is_suspendable,
            devices: grant.gpus.iter().map(|gpu| Device::unused(*gpu, config)).collect(),
            ..Self::default()
        }
    }
}

impl Snapshot {
    /// The tenant with this ID.
    pub fn find(&self, id: &str) -> Option<&Tenant> {
        let place = self.tenants.binary_search_by(|tenant| tenant.id.as_str().cmp(id)).ok()?;
        self.tenants.get(place)
    }
}
