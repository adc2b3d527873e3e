//! Form and fields of the queries, by nvidia-smi's names, with their units.

use std::str::FromStr;

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CsvFormat {
    pub(crate) is_headless: bool,
    pub(crate) is_unitless: bool,
}

impl FromStr for CsvFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut format = CsvFormat::default();
        let mut words = text.split(',').map(str::trim);
        let is_csv = words.next() == Some("csv");
        for word in words {
            match word {
                "noheader" => format.is_headless = true,
                "nounits" => format.is_unitless = true,
                _ => return Err(format!("{word}: write csv, csv,noheader or csv,noheader,nounits")),
            }
        }
        is_csv.then_some(format).ok_or_else(|| "write csv, csv,noheader or csv,noheader,nounits".to_owned())
    }
}

/// Figure of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GpuField {
    /// Time of the machine
    Timestamp,
    /// Index, for people
    Index,
    /// Number of GPUs
    Count,
    /// Product name
    #[value(alias = "gpu_name")]
    Name,
    /// UUID
    #[value(alias = "gpu_uuid")]
    Uuid,
    /// Version of the driver
    #[value(name = "driver_version")]
    DriverVersion,
    /// PCI address
    #[value(name = "pci.bus_id", alias = "gpu_bus_id")]
    PciBusId,
    /// Compute capability
    #[value(name = "compute_cap")]
    ComputeCapability,
    /// Newest CUDA version that the driver supports
    #[value(name = "cuda_version")]
    CudaVersion,
    /// Time in which a kernel ran
    #[value(name = "utilization.gpu")]
    Utilization,
    /// Time in which the memory was read or written
    #[value(name = "utilization.memory")]
    MemoryUtilization,
    /// Temperature in degrees Celsius
    #[value(name = "temperature.gpu")]
    Temperature,
    /// Power draw
    #[value(name = "power.draw")]
    PowerDraw,
    /// Power limit
    #[value(name = "power.limit")]
    PowerLimit,
    /// Total memory
    #[value(name = "memory.total")]
    MemoryTotal,
    /// Used memory
    #[value(name = "memory.used")]
    MemoryUsed,
    /// Free memory
    #[value(name = "memory.free")]
    MemoryFree,
    /// Memory granted to tenants
    #[value(name = "memory.granted")]
    MemoryGranted,
    /// GPU time guaranteed to tenants
    #[value(name = "time.granted")]
    TimeGranted,
}

/// Figure of a process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProcessField {
    /// Time of the machine
    Timestamp,
    /// Product name of the GPU
    #[value(name = "gpu_name")]
    GpuName,
    /// UUID of the GPU
    #[value(name = "gpu_uuid")]
    GpuUuid,
    /// PID, by the host where it can be seen
    Pid,
    /// Name of the command
    #[value(name = "process_name", alias = "name")]
    Name,
    /// Used memory
    #[value(name = "used_gpu_memory", alias = "used_memory")]
    UsedMemory,
}

/// Figure of a tenant on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TenantField {
    /// Time of the machine
    Timestamp,
    /// Name
    Name,
    /// Namespace, pod and container
    Holder,
    /// UUID of the GPU
    #[value(name = "gpu_uuid")]
    GpuUuid,
    /// Memory quota
    #[value(name = "memory.limit")]
    MemoryLimit,
    /// Used memory
    #[value(name = "memory.used")]
    MemoryUsed,
    /// Part of the used memory that is in host memory, as the tenant is suspended
    #[value(name = "memory.suspended")]
    MemorySuspended,
    /// Maximum share of GPU time
    #[value(name = "cores.limit")]
    CoresLimit,
    /// Share of GPU time over the last second
    #[value(name = "cores.used")]
    CoresUsed,
    /// Policy
    Policy,
    /// running, idle (its processes hold memory), empty (no process does), or suspending, suspended, resuming, failed
    State,
    /// Number of processes
    Processes,
    /// Denied allocations
    Denied,
}

impl TenantField {
    /// Whether it needs the share of GPU time of the last second.
    pub(crate) fn needs_share(self) -> bool {
        matches!(self, TenantField::CoresUsed | TenantField::State)
    }
}

/// A field with the title of its column.
pub(crate) trait Queried: ValueEnum {
    /// Unit in the title, if there is one.
    fn unit(&self) -> Option<&'static str>;

    /// Name and unit, such as `memory.used [MiB]`.
    fn title(&self) -> String {
        let value = self.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        match self.unit() {
            Some(unit) => format!("{name} [{unit}]"),
            None => name.to_owned(),
        }
    }
}

impl Queried for GpuField {
    fn unit(&self) -> Option<&'static str> {
        match self {
            GpuField::MemoryTotal | GpuField::MemoryUsed | GpuField::MemoryFree | GpuField::MemoryGranted => {
                Some("MiB")
            }
            GpuField::PowerDraw | GpuField::PowerLimit => Some("W"),
            GpuField::Utilization | GpuField::MemoryUtilization | GpuField::TimeGranted => Some("%"),
            _ => None,
        }
    }
}

impl Queried for ProcessField {
    fn unit(&self) -> Option<&'static str> {
        matches!(self, ProcessField::UsedMemory).then_some("MiB")
    }
}

impl Queried for TenantField {
    fn unit(&self) -> Option<&'static str> {
        match self {
            TenantField::MemoryLimit | TenantField::MemoryUsed | TenantField::MemorySuspended => Some("MiB"),
            TenantField::CoresLimit | TenantField::CoresUsed => Some("%"),
            _ => None,
        }
    }
}
