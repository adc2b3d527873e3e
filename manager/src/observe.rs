//! The tenants' state: what is read of their `usage` again and again, shared by service, metrics and audit.
//!
//! Every figure of a [`Snapshot`] is what the tenants' processes wrote, bounded and not believed (I12, I15).

mod fates;
mod looks;
mod tenant;
mod totals;
mod watch;

use vcuda_quota::DeviceConfig;
use vcuda_region::GpuUuid;

use crate::grant::Grant;

pub use looks::Looks;
pub use watch::{Findings, Observatory};

/// All tenants of the node at one moment, those of `vcuda run` under the same root too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// Counts the snapshots, from 1; 0: there was no look yet.
    pub number: u64,
    /// Time at which it was begun (`CLOCK_MONOTONIC`, ns).
    pub taken_ns: u64,
    /// In the order of their names.
    pub tenants: Vec<Tenant>,
}

/// One tenant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tenant {
    /// Name of its directory: for a granted one, the grant's id.
    pub id: String,
    /// Whether its directory has a `grant` file. Else it is one of `vcuda run`.
    pub is_granted: bool,
    /// Number of times that its limits were written.
    pub limits_generation: u64,
    /// Its GPUs, in the order in which it sees them.
    pub devices: Vec<Device>,
    /// Its processes that hold a slot or have registered, the living only.
    pub processes: Vec<Process>,
    /// A process has registered and sees its limits.
    pub attached: bool,
    /// Findings of the audit that hold now, a sentence each.
    pub findings: Vec<String>,
    /// The reason why its files cannot be read. Its figures are then the last that could be.
    pub problem: Option<String>,
}

/// One tenant's use of one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// The GPU.
    pub gpu: GpuUuid,
    /// Values in its limits.
    pub config: DeviceConfig,
    /// Memory counted now, overhead included (bytes).
    pub used_bytes: u64,
    /// Most memory counted at once (bytes).
    pub peak_bytes: u64,
    /// Part of it that the driver itself takes (bytes).
    pub overhead_bytes: u64,
    /// Reservations refused since the directory was made, of processes that are gone too.
    pub denied: u64,
    /// Launches since the directory was made, of processes that are gone too.
    pub launches: u64,
    /// GPU time that counts as the tenant's, since its directory was made (ns).
    pub served_ns: u64,
    /// Time that launches waited, since the directory was made (ns).
    pub held_ns: u64,
    /// Launches that proceeded on debt after a wait, as `held_ns`.
    pub debt_admits: u64,
    /// Debt forgiven, since the directory was made (ns).
    pub forgiven_ns: u64,
    /// GPU time of the last second (thousandths of the GPU's).
    pub cores_used_permille: u32,
    /// Copies between the host and the GPU while its time was metered.
    pub host_copies: u64,
    /// Bytes that they moved.
    pub host_copied_bytes: u64,
}

impl Device {
    /// One of which nothing has been used.
    #[must_use]
    pub fn unused(gpu: GpuUuid, config: DeviceConfig) -> Self {
        Self {
            gpu,
            config,
            used_bytes: 0,
            peak_bytes: 0,
            overhead_bytes: 0,
            denied: 0,
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
    /// In its own.
    pub pid: u32,
    /// The command's name as the kernel has it.
    pub name: String,
    /// It has registered.
    pub registered: bool,
    /// Release of its library, by its registration ([`vcuda_region::release::NUMBER`]).
    pub release: Option<u32>,
    /// Memory (bytes) by GPU, in the order of the tenant's devices.
    pub used_bytes: Vec<u64>,
}

impl Tenant {
    /// One that was granted just now.
    #[must_use]
    pub fn unused(grant: &Grant) -> Self {
        let config = grant.amounts.config();
        Self {
            id: grant.id.as_str().to_owned(),
            is_granted: true,
            devices: grant
                .gpus
                .iter()
                .map(|gpu| Device::unused(*gpu, config))
                .collect(),
            ..Self::default()
        }
    }
}

impl Snapshot {
    /// The tenant of this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Tenant> {
        let place = self
            .tenants
            .binary_search_by(|tenant| tenant.id.as_str().cmp(id))
            .ok()?;
        self.tenants.get(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_found_by_its_id() {
        let named = |id: &str| Tenant {
            id: id.to_owned(),
            ..Tenant::default()
        };
        let snapshot = Snapshot {
            tenants: ["a-1", "a-10", "a-2", "b-3"].map(named).to_vec(),
            ..Snapshot::default()
        };
        assert_eq!(snapshot.find("a-10").unwrap().id, "a-10");
        assert!(snapshot.find("a-3").is_none());
    }
}
