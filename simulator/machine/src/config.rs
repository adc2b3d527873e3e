//! `machine.toml`: what the simulated machine is. Every field may be left out: then it is the profile's, or a default.

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
    DeviceMemory, DriverProfile, Duplicates, NamespaceBytes, ProcessLists, ProcessMemory, SliceOrder,
};

pub(crate) use defaults::{FNV, fnv1a};

/// Most GPUs of one machine.
pub const MAX_GPUS: usize = 64;
/// Commands that a stream's ring can hold.
pub const RING_ENTRIES: u64 = 1024;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default = "Config::without_profile", deny_unknown_fields)]
pub struct Config {
    /// The real driver and GPU that the machine is like, one of [`Config::profiles`]. What the file leaves out of the
    /// machine, of its GPUs and of `driver` is this profile's.
    pub profile: String,
    /// Where time comes from.
    pub clock: ClockKind,
    /// NVIDIA driver release that the machine claims to run.
    pub driver_version: String,
    /// CUDA version of that driver, as `cuDriverGetVersion` says it (12040 = 12.4).
    pub cuda_version: u32,
    /// Bytes that each context takes on its GPU.
    #[serde(deserialize_with = "bytes::deserialize")]
    pub context_bytes: u64,
    /// Bytes that each loaded module takes (charged by the simulated driver).
    #[serde(deserialize_with = "bytes::deserialize")]
    pub module_bytes: u64,
    /// Bytes that each green context takes beside its primary context's (charged by the simulated driver).
    #[serde(deserialize_with = "bytes::deserialize")]
    pub green_context_bytes: u64,
    /// NVML reports a process's memory in multiples of this.
    #[serde(deserialize_with = "bytes::deserialize")]
    pub granularity_bytes: u64,
    /// Longest turn of one context while another has work, ns.
    pub slice_ns: u64,
    /// Cost of changing the resident context, ns.
    pub switch_ns: u64,
    /// Unfinished commands per stream after which a launch blocks (at most 1024).
    pub queue_depth: u64,
    /// Length of one utilization sample, ns (NVML: 1/6 s to 1 s).
    pub sample_ns: u64,
    /// Whether NVML's accounting mode is on.
    pub accounting: bool,
    /// Bytes per microsecond of a copy between host and device.
    pub copy_bytes_per_us: u64,
    /// Bytes per microsecond of a copy or set within a device.
    pub device_copy_bytes_per_us: u64,
    /// Fixed part of every copy, ns.
    pub copy_latency_ns: u64,
    /// Durations of kernels.
    pub kernels: KernelConfig,
    /// Faults on request.
    pub faults: FaultConfig,
    /// Pairs of GPUs (by position) between which an NVLink is.
    pub nvlinks: Vec<(usize, usize)>,
    /// In what the driver differs from others.
    pub driver: DriverProfile,
    /// The GPUs, in the driver's order.
    pub gpus: Vec<GpuConfig>,
}

/// Where a machine's time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    /// CLOCK_MONOTONIC.
    #[default]
    Real,
    /// A word in the machine's state that `Machine::step_clock` moves.
    Virtual,
}

/// Durations of kernels (numbers are not computed, only time passes).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelConfig {
    /// Fixed part of a kernel without a duration of its own, ns.
    pub default_ns: u64,
    /// Added for each wave of blocks (blocks / SMs, rounded up), ns.
    pub default_ns_per_wave: u64,
    /// One iteration of `vcuda_work`, ns.
    pub work_ns_per_iteration: u64,
    /// Durations by kernel name, ns.
    pub duration_ns: BTreeMap<String, u64>,
}

/// Faults on request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultConfig {
    /// The nth allocation of each process fails (1 = the first); contexts count as none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_nth_allocation: Option<u64>,
    /// Kernels of these names never end.
    pub never_ending_kernels: Vec<String>,
    /// Functions of the driver that fail, by exported symbol.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, FunctionFault>,
}

/// When a function fails, counted in each process for itself, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FunctionFault {
    /// This call fails (1 = the first).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// Every so manyth call fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// The `CUresult`.
    pub code: u32,
}

/// One GPU.
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
    /// "dddd:bb:dd.f"; empty: derived from the index.
    pub pci_bus_id: String,
    /// Node of memory and processors that it is near to.
    pub numa_node: u32,
    /// Power limit, mW.
    pub power_limit_mw: u32,
}

impl Config {
    /// Reads and checks `path`.
    ///
    /// # Errors
    /// `MachineError::Io`, `Syntax` or `Value`, each with the remedy.
    pub fn read(path: &Path) -> Result<Config, MachineError> {
        let text = std::fs::read_to_string(path).map_err(|source| MachineError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        let wrong = |error: toml::de::Error| MachineError::Syntax {
            path: path.to_owned(),
            reason: one_line(&error),
        };
        let file: toml::Table = toml::from_str(&text).map_err(wrong)?;
        let config: Config = profile::complete(file)?.try_into().map_err(wrong)?;
        config.validate()?;
        Ok(config)
    }

    /// The machine that a profile describes, with one GPU.
    ///
    /// # Errors
    /// `MachineError::Value` for a name that is none of [`Config::profiles`].
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
    #[must_use]
    pub fn profiles() -> Vec<&'static str> {
        profile::PROFILES.iter().map(|(name, _)| *name).collect()
    }

    /// The file's text.
    ///
    /// # Errors
    /// `MachineError::Value` for numbers that TOML cannot hold (above 2^63-1).
    pub fn to_toml(&self) -> Result<String, MachineError> {
        toml::to_string(self).map_err(|error| MachineError::Value {
            field: "machine.toml".into(),
            value: "a number".into(),
            remedy: error.to_string(),
        })
    }

    /// A machine of `count` GPUs of `memory_bytes` each, otherwise the defaults.
    #[must_use]
    pub fn with_gpus(count: usize, memory_bytes: u64) -> Config {
        Config::default().of_gpus(count, Some(memory_bytes))
    }

    /// The same machine with `count` GPUs like its first one, of `memory_bytes` each if given.
    #[must_use]
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
    /// (major, minor); (9, 0) where the text is none, which `Config::validate` refuses.
    #[must_use]
    pub fn capability(&self) -> (u32, u32) {
        validate::capability(&self.compute_capability).unwrap_or((9, 0))
    }
}

/// The parser's message and place, without its drawing of the line.
fn one_line(error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    match error.span() {
        Some(span) => format!("{message} (at byte {})", span.start),
        // What has no place in the text names its key in another line.
        None => error.to_string().trim().replace('\n', " "),
    }
}

#[cfg(test)]
mod tests;
