//! `machine.toml`, the configuration of a simulated machine. Omitted fields come from the profile or have defaults.

use crate::MachineError;
use crate::bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

mod defaults;
mod driver;
mod profile;
mod validate;

pub use driver::{
    DeviceMemory, DriverProfile, Duplicates, MemoryLimits, NamespaceBytes, ProcessLists, ProcessMemory,
    SliceOrder,
};

pub(crate) use defaults::{FNV, fnv1a};

/// Maximum number of GPUs of a machine.
pub const MAX_GPUS: usize = 64;
/// Number of commands in a stream's ring.
pub const RING_ENTRIES: u64 = 1024;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default = "Config::without_profile", deny_unknown_fields)]
pub struct Config {
    /// Real driver and GPU to imitate, one of [`Config::profiles`]. It supplies all omitted values of the machine, its GPUs
    /// and `driver`.
    pub profile: String,
    /// Source of time.
    pub clock: ClockKind,
    /// NVIDIA driver release that is reported.
    pub driver_version: String,
    /// CUDA version that `cuDriverGetVersion` returns (12040 = 12.4).
    pub cuda_version: u32,
    /// Memory of each context on its GPU (bytes).
    #[serde(deserialize_with = "bytes::deserialize")]
    pub context_bytes: u64,
    /// Memory of each loaded module (bytes), charged by the simulated driver.
    #[serde(deserialize_with = "bytes::deserialize")]
    pub module_bytes: u64,
    /// Memory of each green context in addition to its primary context's (bytes), charged by the simulated driver.
    #[serde(deserialize_with = "bytes::deserialize")]
    pub green_context_bytes: u64,
    /// Unit in which NVML reports a process's memory (bytes).
    #[serde(deserialize_with = "bytes::deserialize")]
    pub granularity_bytes: u64,
    /// Longest time slice of a context while another has work (ns).
    pub slice_ns: u64,
    /// Cost of a context switch (ns).
    pub switch_ns: u64,
    /// Number of unfinished commands per stream at which a launch blocks (at most 1024).
    pub queue_depth: u64,
    /// Length of one utilization sample, ns (NVML: 1/6 s to 1 s).
    pub sample_ns: u64,
    /// Whether NVML's accounting mode is on.
    pub accounting: bool,
    /// Whether persistence mode is on.
    pub persistence: bool,
    /// Bandwidth of copies between host and device (bytes per microsecond).
    pub copy_bytes_per_us: u64,
    /// Bandwidth of copies and memsets within a device (bytes per microsecond).
    pub device_copy_bytes_per_us: u64,
    /// Fixed cost of a copy (ns).
    pub copy_latency_ns: u64,
    /// Durations of kernels.
    pub kernels: KernelConfig,
    /// Faults on request.
    pub faults: FaultConfig,
    /// Pairs of GPUs (by position) connected by NVLink.
    pub nvlinks: Vec<(usize, usize)>,
    /// Behaviour in which drivers differ.
    pub driver: DriverProfile,
    /// The GPUs, in the driver's order.
    pub gpus: Vec<GpuConfig>,
}

/// Source of a machine's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    /// CLOCK_MONOTONIC.
    #[default]
    Real,
    /// A word in the machine's state that `Machine::step_clock` moves.
    Virtual,
}

/// Durations of kernels. No results are computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelConfig {
    /// Fixed part of the duration of a kernel without an own duration (ns).
    pub default_ns: u64,
    /// Additional duration per wave of blocks (blocks / SMs, rounded up; ns).
    pub default_ns_per_wave: u64,
    /// Duration of an iteration of `vcuda_work` (ns).
    pub work_ns_per_iteration: u64,
    /// Durations by kernel name (ns).
    pub duration_ns: BTreeMap<String, u64>,
}

/// Injected faults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultConfig {
    /// Number of the allocation that fails in each process (1 = the first); contexts do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_nth_allocation: Option<u64>,
    /// Kernels of these names never end.
    pub never_ending_kernels: Vec<String>,
    /// Functions of the driver that fail, by exported symbol.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, FunctionFault>,
}

/// Calls of a function that fail, counted per process, and their error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionFault {
    /// Number of the call that fails (1 = the first).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// Interval of failing calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// The `CUresult` of a failing call.
    pub code: u32,
}

/// Configuration of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GpuConfig {
    /// Marketing name, as `cuDeviceGetName` and NVML give it.
    pub name: String,
    /// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; empty: derived from the machine's directory and the index.
    pub uuid: String,
    /// Memory, bytes.
    #[serde(deserialize_with = "bytes::deserialize")]
    pub memory_bytes: u64,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Compute capability, "major.minor".
    pub compute_capability: String,
    /// SM clock, MHz.
    pub clock_mhz: u32,
    /// Memory clock, MHz.
    pub memory_clock_mhz: u32,
    /// Memory bus, bits.
    pub memory_bus_bits: u32,
    /// L2 cache, bytes.
    #[serde(deserialize_with = "bytes::deserialize")]
    pub l2_bytes: u64,
    /// Whether it shares the processor's memory, as `cuDeviceGetAttribute` tells.
    pub integrated: bool,
    /// "dddd:bb:dd.f"; empty: derived from the index.
    pub pci_bus_id: String,
    /// NUMA node near the GPU.
    pub numa_node: u32,
    /// Power limit, mW.
    pub power_limit_mw: u32,
}

impl Config {
    /// Reads and checks `path`. Errors: `MachineError::Io`, `Syntax` or `Value`, each with the remedy.
    pub fn read(path: &Path) -> Result<Config, MachineError> {
        let text = std::fs::read_to_string(path).map_err(|source| MachineError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        let wrong =
            |error: toml::de::Error| MachineError::Syntax { path: path.to_owned(), reason: one_line(&error) };
        let file: toml::Table = toml::from_str(&text).map_err(wrong)?;
        let config: Config = profile::complete(file)?.try_into().map_err(wrong)?;
        config.validate()?;
        Ok(config)
    }

    /// The machine of a profile, with one GPU. Error: `MachineError::Value` if `name` is not one of
    /// [`Config::profiles`].
    pub fn of_profile(name: &str) -> Result<Config, MachineError> {
        let named = toml::Table::from_iter([("profile".to_owned(), name.into())]);
        let complete = profile::complete(named)?;
        complete.try_into().map_err(|error| MachineError::Value {
            field: "profile".into(),
            value: name.into(),
            remedy: one_line(&error),
        })
    }

    /// The names of the profiles; the default one is the first.
    pub fn profiles() -> Vec<&'static str> {
        profile::PROFILES.iter().map(|(name, _)| *name).collect()
    }

    /// The file's text. Error: `MachineError::Value` for numbers that TOML cannot hold (above 2^63-1).
    pub fn to_toml(&self) -> Result<String, MachineError> {
        toml::to_string(self).map_err(|error| MachineError::Value {
            field: "machine.toml".into(),
            value: "a number".into(),
            remedy: error.to_string(),
        })
    }

    /// A default machine with `count` GPUs of `memory_bytes` each.
    pub fn with_gpus(count: usize, memory_bytes: u64) -> Config {
        Config::default().of_gpus(count, Some(memory_bytes))
    }

    /// The same machine with `count` GPUs like its first one, of `memory_bytes` each if given.
    pub fn of_gpus(mut self, count: usize, memory_bytes: Option<u64>) -> Config {
        let mut gpu = self.gpus.into_iter().next().unwrap_or_default();
        if let Some(memory_bytes) = memory_bytes {
            gpu.memory_bytes = memory_bytes;
            gpu.name = match memory_bytes >> 30 {
                0 => "Simulated GPU".to_owned(),
                gib => format!("Simulated GPU {gib}GiB"),
            };
        }
        self.gpus = vec![gpu; count];
        self
    }
}

impl GpuConfig {
    /// Major and minor number; (9, 0) for an invalid text, which `Config::validate` refuses.
    pub fn capability(&self) -> (u32, u32) {
        validate::capability(&self.compute_capability).unwrap_or((9, 0))
    }
}

/// The parser's message and position without the quoted line.
fn one_line(error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    match error.span() {
        Some(span) => format!("{message} (at byte {})", span.start),
        // An error without a position names its key in another line.
        None => error.to_string().trim().replace('\n', " "),
    }
}

#[cfg(test)]
mod tests;
