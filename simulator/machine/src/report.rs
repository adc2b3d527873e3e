//! Reports of the machine about itself: the exact record, and the view of NVML-like observers.

use serde::{Deserialize, Serialize};

/// The exact record of a machine (`vcuda sim report --json`). Dead processes stay.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// The GPUs, in the driver's order.
    pub gpus: Vec<GpuReport>,
    /// One entry per process and GPU that it used, the dead first.
    pub processes: Vec<ProcessReport>,
}

/// The record of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuReport {
    /// "GPU-...".
    pub uuid: String,
    /// Memory of the GPU, bytes.
    pub memory_total_bytes: u64,
    /// Memory held now, bytes, exact.
    pub memory_used_bytes: u64,
    /// Most memory ever held, bytes.
    pub memory_peak_bytes: u64,
    /// Time during which a kernel ran, ns.
    pub busy_ns: u64,
    /// Time that changes from one context to another took, ns.
    pub switched_ns: u64,
}

/// The record of one process on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessReport {
    /// The process, as it knows itself.
    pub pid: u32,
    /// The GPU.
    pub gpu_uuid: String,
    /// Whether the process lives.
    pub alive: bool,
    /// When its first kernel began to run, machine clock, ns; without kernels: when it first used the GPU.
    pub first_ns: u64,
    /// When its kernels last ran, machine clock, ns; without kernels: as `first_ns`.
    pub last_ns: u64,
    /// Union over streams of the time that the GPU really spent on its kernels, ns.
    pub service_ns: u64,
    /// Memory held now, bytes, exact.
    pub memory_used_bytes: u64,
    /// Most memory ever held, bytes.
    pub memory_peak_bytes: u64,
    /// Kernels submitted.
    pub launches: u64,
    /// Allocations (and contexts) refused.
    pub denied_allocations: u64,
}

/// Memory of one GPU, over all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuMemory {
    /// Memory of the GPU, bytes.
    pub total_bytes: u64,
    /// Held now, bytes, exact.
    pub used_bytes: u64,
    /// Held now as NVML reports it: each process, and what only descriptors hold, rounded up to `granularity_bytes`, at
    /// most the total.
    pub reported_bytes: u64,
    /// Most ever held, bytes, exact.
    pub peak_bytes: u64,
}

/// The numbers by which the asking process can know another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeenAs {
    /// In the PID namespace of the process that asks; none: it cannot see the other.
    pub here: Option<u32>,
    /// In the PID namespace of the host. Until a process of that namespace has looked at the machine, a number that is no
    /// process's: 2^22 and more.
    pub on_host: u32,
}

/// A living process with a context on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProcessUse {
    /// The process, as it knows itself.
    pub pid: u32,
    /// As others know it.
    pub seen: SeenAs,
    /// Its name, at most 63 bytes.
    pub name: String,
    /// Held now, bytes, exact.
    pub memory_used_bytes: u64,
    /// Held now as NVML reports it: rounded up to `granularity_bytes`, without managed memory unless
    /// `driver.nvml_counts_managed`.
    pub memory_reported_bytes: u64,
    /// Union over streams of the time that the GPU really spent on its kernels, ns.
    pub service_ns: u64,
}

/// Utilization of one process in one sample period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The process, as it knows itself.
    pub pid: u32,
    /// As others know it.
    pub seen: SeenAs,
    /// Share of the period in which its kernels ran, 0 to 100.
    pub percent: u32,
    /// End of the period, machine clock, ns.
    pub timestamp_ns: u64,
}
