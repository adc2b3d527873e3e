//! Types of the reports: the exact record, and NVML's view.

use serde::{Deserialize, Serialize};

/// The exact record of a machine (`vcuda sim report --json`), including dead processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// The GPUs, in the driver's order.
    pub gpus: Vec<GpuReport>,
    /// Entries by process and GPU that it used, dead processes first.
    pub processes: Vec<ProcessReport>,
}

/// The record of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuReport {
    /// "GPU-...".
    pub uuid: String,
    /// Memory of the GPU, bytes.
    pub memory_total_bytes: u64,
    /// Memory held now (bytes, exact).
    pub memory_used_bytes: u64,
    /// Maximum memory held (bytes).
    pub memory_peak_bytes: u64,
    /// Time in which a kernel ran (ns).
    pub busy_ns: u64,
    /// Time of context switches (ns).
    pub switched_ns: u64,
}

/// The record of one process on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessReport {
    /// PID as the process knows it.
    pub pid: u32,
    /// The GPU.
    pub gpu_uuid: String,
    /// Whether the process is alive.
    pub alive: bool,
    /// Time of the start of its first kernel; without kernels, of its first use of the GPU (machine clock, ns).
    pub first_ns: u64,
    /// Time at which a kernel of it last ran; without kernels, as `first_ns` (machine clock, ns).
    pub last_ns: u64,
    /// Time in which the GPU ran its kernels, counted once for all streams (ns).
    pub service_ns: u64,
    /// Memory held now (bytes, exact).
    pub memory_used_bytes: u64,
    /// Maximum memory held (bytes).
    pub memory_peak_bytes: u64,
    /// Number of submitted kernels.
    pub launches: u64,
    /// Number of refused allocations and contexts.
    pub denied_allocations: u64,
}

/// Memory of one GPU, over all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuMemory {
    /// Memory of the GPU, bytes.
    pub total_bytes: u64,
    /// Memory held now (bytes, exact).
    pub used_bytes: u64,
    /// Memory held now as NVML reports it: that of each process, and that held by descriptors only, rounded up to
    /// `granularity_bytes`; at most the total.
    pub reported_bytes: u64,
    /// Maximum memory held (bytes, exact).
    pub peak_bytes: u64,
}

/// Memory of one GPU, as the driver shows it to a process under a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShownMemory {
    /// The hard limit, at most the memory of the GPU (bytes).
    pub total_bytes: u64,
    /// What counts against the limit (bytes).
    pub used_bytes: u64,
    /// What is left of both (bytes).
    pub free_bytes: u64,
}

/// PIDs by which the calling process can know another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeenAs {
    /// PID in the caller's namespace; `None` if the other is not visible there.
    pub here: Option<u32>,
    /// PID in the host's namespace. Until a process of that namespace has used the machine, a number of 2^22 or more, which
    /// is no PID.
    pub on_host: u32,
}

/// A living process with a context on a GPU, none whose state a checkpoint has moved to the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessUse {
    /// PID as the process knows it.
    pub pid: u32,
    /// PIDs as others know it.
    pub seen: SeenAs,
    /// Name, at most 63 bytes.
    pub name: String,
    /// Memory held now (bytes, exact).
    pub memory_used_bytes: u64,
    /// Memory held now as NVML reports it: rounded up to `granularity_bytes`, without managed memory unless
    /// `driver.nvml_counts_managed`.
    pub memory_reported_bytes: u64,
    /// Time in which the GPU ran its kernels, counted once for all streams (ns).
    pub service_ns: u64,
}

/// Utilization of one process in one sample period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// PID as the process knows it.
    pub pid: u32,
    /// PIDs as others know it.
    pub seen: SeenAs,
    /// Part of the period in which its kernels ran (percent).
    pub percent: u32,
    /// End of the period (machine clock, ns).
    pub timestamp_ns: u64,
}
