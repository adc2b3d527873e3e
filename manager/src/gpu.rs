//! A GPU of the node as the inventory sees it.

use std::collections::BTreeMap;

use vcuda_region::GpuUuid;

/// Facts about one GPU. Everything that NVML does not tell stays empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its identity.
    pub uuid: GpuUuid,
    /// Marketing name.
    pub name: String,
    /// All of its memory (bytes).
    pub memory_total_bytes: u64,
    /// Memory that the driver keeps for itself (bytes).
    pub memory_reserved_bytes: u64,
    /// Used by all processes (bytes).
    pub memory_used_bytes: u64,
    /// Busy time of NVML's last sample (percent).
    pub utilization_percent: Option<u32>,
    /// Streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// Major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Node of memory and processors nearest to it.
    pub numa_node: Option<u32>,
    /// Such as `0000:3a:00.0`.
    pub pci_bus_id: String,
    /// The PCI root above it, such as `pci0000:3a`.
    pub pci_root: String,
    /// Minor number of its device node, `/dev/nvidia<minor>`.
    pub minor_number: Option<u32>,
    /// GPUs behind its NVLinks.
    pub nvlinks: Vec<GpuUuid>,
    /// Whether new tenants may have it.
    pub health: Health,
}

/// Whether a GPU can be given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It can.
    Healthy,
    /// It cannot, and why.
    Unhealthy(String),
}

/// The node's GPUs at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// In NVML's order.
    pub gpus: Vec<Gpu>,
    /// The driver's release; empty while unknown.
    pub driver_version: String,
    /// The reason why there are no GPUs, or not all.
    pub problem: Option<String>,
    /// MIG instances of GPUs in MIG mode: shown, never granted.
    pub mig_instances: Vec<MigInstance>,
    /// Number of each XID of each GPU since the manager's start, also of GPUs that are gone.
    pub xids: BTreeMap<(GpuUuid, u64), u64>,
}

/// A part of a GPU in MIG mode. The hardware isolates it already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigInstance {
    /// As NVML writes it, `MIG-` and more.
    pub uuid: String,
    /// The GPU that it is a part of.
    pub gpu: GpuUuid,
    /// NVML's name for it.
    pub name: String,
    /// All of its memory (bytes); 0 where NVML does not tell.
    pub memory_total_bytes: u64,
}

impl Inventory {
    /// The GPU of this UUID.
    #[must_use]
    pub fn find(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }
}

impl Gpu {
    /// A healthy one of which no more is known than this.
    #[must_use]
    pub fn new(uuid: GpuUuid, name: &str, memory_total_bytes: u64) -> Self {
        Self {
            uuid,
            name: name.to_owned(),
            memory_total_bytes,
            memory_reserved_bytes: 0,
            memory_used_bytes: 0,
            utilization_percent: None,
            multiprocessors: None,
            compute_capability: None,
            numa_node: None,
            pci_bus_id: String::new(),
            pci_root: String::new(),
            minor_number: None,
            nvlinks: Vec::new(),
            health: Health::Healthy,
        }
    }

    /// The most that tenants can have of it with `reserve_bytes` kept for contexts (bytes).
    #[must_use]
    pub fn grantable_bytes(&self, reserve_bytes: u64) -> u64 {
        self.memory_total_bytes
            .saturating_sub(self.memory_reserved_bytes)
            .saturating_sub(reserve_bytes)
    }
}
