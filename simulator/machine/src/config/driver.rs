//! `[driver]`: behaviour in which real drivers differ. A profile gives all keys, a machine's file may override some.
//!
//! `simulator/profiles/README.md` gives the source of each key.

use crate::bytes;
use serde::{Deserialize, Serialize};

/// Behaviour in which real NVMLs and drivers differ.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverProfile {
    /// Processes that NVML lists for a caller inside a PID namespace.
    pub nvml_lists: ProcessLists,
    /// Memory that NVML reports for each of them.
    pub nvml_namespace_bytes: NamespaceBytes,
    /// Whether NVML lists a process twice.
    pub nvml_duplicates: Duplicates,
    /// Whether managed memory counts in NVML's memory of a process. It always counts in the device's.
    pub nvml_counts_managed: bool,
    /// Whether NVML reports the memory of a device.
    pub nvml_device_memory: DeviceMemory,
    /// Whether NVML reports the memory of processes, to any caller.
    pub nvml_process_memory: ProcessMemory,
    /// Whether NVML lists processes as MPS clients instead of compute processes.
    pub nvml_mps_list: bool,
    /// Duration of `nvmlInit` (ns). Concurrent calls of several processes wait for each other.
    pub nvml_init_ns: u64,
    /// Duration of creating a context after its memory is allocated (ns).
    pub context_create_ns: u64,
    /// Exported symbols of potentially unsafe calls. Unless the caller is in relaxed mode, such a call returns 900. It
    /// invalidates captures of its own thread that are not relaxed, and global captures of any thread.
    pub capture_invalidating: Vec<String>,
    /// Whether a green context can be current to only one thread at a time.
    pub green_current_once: bool,
    /// Allocation unit of `cuMemAlloc` and its relatives (bytes).
    #[serde(deserialize_with = "bytes::deserialize")]
    pub allocation_unit_bytes: u64,
    /// Whether launch calls return only after the kernel has ended.
    pub launch_blocks: bool,
    /// Whether `cuInit` looks itself up in the driver's library, by the process's `dlsym`.
    pub looks_itself_up: bool,
    /// Time that recording an event with timing takes in its stream (ns).
    pub event_record_ns: u64,
    /// Result of `cuEventElapsedTime` for two such events recorded in direct succession (ns).
    pub event_pair_ns: u64,
    /// Order of contexts in time slicing.
    pub slice_order: SliceOrder,
    /// Variation of the slice length about `slice_ns`, up and down (thousandths).
    pub slice_spread_permille: u64,
    /// Whether a process sees only GPUs with a device node `/dev/nvidia<n>`, `n` being the GPU's position.
    pub device_nodes: bool,
    /// Delay between the end of the last holder and the release of its memory (ns).
    pub release_delay_ns: u64,
    /// Whether a dead process's memory stays taken while a child that it forked lives without `exec`, as the child has the
    /// driver's descriptors.
    pub child_keeps_memory: bool,
    /// Bandwidth at which a checkpoint moves a process's memory to the host (bytes per microsecond); 0: the driver has no
    /// checkpoints.
    pub checkpoint_bytes_per_us: u64,
    /// Bandwidth at which a restore moves it back (bytes per microsecond).
    pub restore_bytes_per_us: u64,
    /// Fixed duration of a checkpoint, and of a restore (ns).
    pub checkpoint_fixed_ns: u64,
}

/// Order of the contexts that have work, other than the resident one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceOrder {
    /// In the order of their creation.
    #[default]
    RoundRobin,
    /// By the submission time of the next command.
    Arrival,
}

/// Processes that NVML lists for a caller inside a PID namespace. A caller in the host's namespace sees all processes by
/// host PID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessLists {
    /// The processes in the caller's namespace, by their PIDs there.
    #[default]
    Translated,
    /// All processes, by host PID.
    Host,
    /// None.
    Nothing,
}

/// Memory that NVML reports for a process to a caller inside a PID namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamespaceBytes {
    /// Memory of the process.
    #[default]
    Told,
    /// 0 bytes.
    Zero,
    /// `NVML_VALUE_NOT_AVAILABLE`.
    NotAvailable,
}

/// Repetition of processes in NVML's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplicates {
    /// Each process is listed once.
    #[default]
    None,
    /// For a caller inside a PID namespace: each process is listed twice, with the same PID and all its memory in both
    /// entries.
    SameNamespacePid,
}

/// Availability of a device's memory in NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceMemory {
    /// Reported.
    #[default]
    Told,
    /// `NVML_ERROR_NOT_SUPPORTED`.
    NotSupported,
}

/// Availability of a device's processes and their memory in NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessMemory {
    /// Both are reported.
    #[default]
    Told,
    /// Processes are reported, with `NVML_VALUE_NOT_AVAILABLE` as their memory.
    NotAvailable,
    /// Neither is reported: the lists return `NVML_ERROR_NOT_SUPPORTED`.
    NotSupported,
}
