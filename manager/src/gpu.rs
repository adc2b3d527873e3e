//! A GPU of the node as the inventory sees it.

use std::collections::BTreeMap;

use vcuda_region::GpuUuid;

/// Facts about one GPU. What NVML does not tell stays empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// UUID.
    pub uuid: GpuUuid,
    /// Marketing name.
    pub name: String,
    /// Total memory (bytes).
    pub memory_total_bytes: u64,
    /// Memory that the driver keeps for itself (bytes).
    pub memory_reserved_bytes: u64,
    /// Memory used by all processes (bytes).
    pub memory_used_bytes: u64,
    /// Utilisation in NVML's last sample (percent).
    pub utilization_percent: Option<u32>,
    /// What its sensors show.
    pub sensors: Sensors,
    /// Whether persistence mode is on.
    pub is_persistent: Option<bool>,
    /// Number of streaming multiprocessors.
    pub multiprocessors: Option<u32>,
    /// CUDA compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Nearest NUMA node.
    pub numa_node: Option<u32>,
    /// PCI address, such as `0000:3a:00.0`.
    pub pci_bus_id: String,
    /// PCI root above the GPU, such as `pci0000:3a`.
    pub pci_root: String,
    /// Minor number of its device node, `/dev/nvidia<minor>`.
    pub minor_number: Option<u32>,
    /// GPUs connected by NVLink.
    pub nvlinks: Vec<GpuUuid>,
    /// Whether new tenants may use it.
    pub health: Health,
}

/// Readings of a GPU's sensors at the last look. What NVML does not tell is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sensors {
    /// Temperature of the GPU (degrees Celsius).
    pub temperature_celsius: Option<u32>,
    /// Power draw (mW).
    pub power_draw_mw: Option<u32>,
    /// Power limit that is enforced (mW).
    pub power_limit_mw: Option<u32>,
    /// Time in which its memory was read or written, in NVML's last sample (percent).
    pub memory_utilization_percent: Option<u32>,
}

/// Whether a GPU can be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The GPU can be granted.
    Healthy,
    /// The GPU cannot be granted, with the reason.
    Unhealthy(String),
}

/// The node's GPUs at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// GPUs in NVML's order at the first look; one that is seen later comes last, and none moves.
    pub gpus: Vec<Gpu>,
    /// Driver version; empty while unknown.
    pub driver_version: String,
    /// The newest CUDA version that the driver supports, such as `12.8`; empty while unknown.
    pub cuda_version: String,
    /// Whether the driver has memory limits of cgroups.
    pub has_memory_limits: bool,
    /// The reason why GPUs are missing, if any are.
    pub problem: Option<String>,
    /// MIG instances of GPUs in MIG mode: shown, never granted.
    pub mig_instances: Vec<MigInstance>,
    /// Count of each XID of each GPU since the manager's start, also of GPUs that are gone.
    pub xids: BTreeMap<(GpuUuid, u64), u64>,
}

/// An instance of a GPU in MIG mode, which the hardware isolates already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigInstance {
    /// UUID as NVML writes it, beginning with `MIG-`.
    pub uuid: String,
    /// The GPU that it belongs to.
    pub gpu: GpuUuid,
    /// Name by NVML.
    pub name: String,
    /// Total memory (bytes); 0 if NVML does not tell.
    pub memory_total_bytes: u64,
}

impl Inventory {
    /// The GPU with this UUID.
    pub fn find(&self, uuid: &GpuUuid) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.uuid == *uuid)
    }

    /// The reason why no GPU can be granted. `None` while one can: a GPU that is missing or ill does not keep the others.
    pub fn outage(&self) -> Option<&str> {
        let is_healthy = |gpu: &Gpu| gpu.health == Health::Healthy;
        self.problem.as_deref().filter(|_| !self.gpus.iter().any(is_healthy))
    }
}

impl Gpu {
    /// A healthy GPU of which only these facts are known.
    pub fn new(uuid: GpuUuid, name: &str, memory_total_bytes: u64) -> Self {
        Self {
            uuid,
            name: name.to_owned(),
            memory_total_bytes,
            memory_reserved_bytes: 0,
            memory_used_bytes: 0,
            utilization_percent: None,
            sensors: Sensors::default(),
            is_persistent: None,
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

    /// Marks all readings as not known: NVML does not answer for it any more.
    pub(crate) fn forget_readings(&mut self) {
        self.utilization_percent = None;
        self.sensors = Sensors::default();
    }

    /// Maximum memory for tenants if `reserve_bytes` are kept for contexts (bytes).
    pub fn grantable_bytes(&self, reserve_bytes: u64) -> u64 {
        self.memory_total_bytes.saturating_sub(self.memory_reserved_bytes).saturating_sub(reserve_bytes)
    }
}

/// Source of the processes on a GPU by NVML: host PID, and memory in bytes if NVML tells it.
pub(crate) type Processes = dyn Fn(&GpuUuid) -> Result<Vec<(u32, Option<u64>)>, String> + Send;
