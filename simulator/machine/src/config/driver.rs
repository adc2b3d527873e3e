//! `[driver]`: in what real drivers differ. Each profile says all of it, a machine's file as much as it likes.
//!
//! `simulator/profiles/README.md` has the source of each key.

use crate::bytes;
use serde::{Deserialize, Serialize};

/// Behaviour of NVML and the driver in which real ones differ.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverProfile {
    /// Which processes NVML lists for a caller inside a PID namespace.
    pub nvml_lists: ProcessLists,
    /// The memory that NVML gives with each of them.
    pub nvml_namespace_bytes: NamespaceBytes,
    /// Whether NVML lists them twice.
    pub nvml_duplicates: Duplicates,
    /// Whether managed memory is part of a process's memory in NVML. It always is part of the device's.
    pub nvml_counts_managed: bool,
    /// Whether NVML tells the memory of a device.
    pub nvml_device_memory: DeviceMemory,
    /// Whether NVML tells the memory of processes, to any caller.
    pub nvml_process_memory: ProcessMemory,
    /// Whether processes are in NVML's list of MPS clients, and not in that of compute processes.
    pub nvml_mps_list: bool,
    /// Duration of `nvmlInit`, ns. Processes that initialise NVML at the same time wait for each other.
    pub nvml_init_ns: u64,
    /// Duration of the making of a context once its memory is taken, ns.
    pub context_create_ns: u64,
    /// Functions of the driver that are potentially unsafe calls, by exported symbol: unless the caller is in relaxed
    /// mode, such a call answers 900 and invalidates captures of its own thread that are not relaxed, and global captures
    /// of any thread.
    pub capture_invalidating: Vec<String>,
    /// Whether a green context can be current to one thread at a time only.
    pub green_current_once: bool,
    /// Unit to which memory of `cuMemAlloc` and its relatives is rounded up on the GPU, bytes.
    #[serde(deserialize_with = "bytes::deserialize")]
    pub allocation_unit_bytes: u64,
    /// Whether launch calls return only when the kernel has ended.
    pub launch_blocks: bool,
    /// Whether `cuInit` looks itself up in the driver's library, by the `dlsym` that the process has.
    pub looks_itself_up: bool,
    /// Time that recording an event with timing takes in its stream, ns.
    pub event_record_ns: u64,
    /// Answer of `cuEventElapsedTime` for two such events recorded with nothing between them, ns.
    pub event_pair_ns: u64,
    /// Which context gets the next slice.
    pub slice_order: SliceOrder,
    /// By how much the length of a slice varies about `slice_ns`, up and down, thousandths.
    pub slice_spread_permille: u64,
    /// Whether a process sees only GPUs whose `/dev/nvidia<n>` exists, `n` being the GPU's position on the machine.
    pub device_nodes: bool,
    /// Delay from the end of its last holder until memory is the GPU's again, ns.
    pub release_delay_ns: u64,
    /// Whether a dead process's memory stays taken for as long as a child that it forked lives and has not called `exec`:
    /// such a child has the driver's descriptors.
    pub child_keeps_memory: bool,
}

/// Which context gets the next slice, of those that have work and not the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceOrder {
    /// The next in the order in which the contexts were made.
    #[default]
    RoundRobin,
    /// The one whose next command was submitted first.
    Arrival,
}

/// Which processes NVML lists for a caller inside a PID namespace. A caller in the namespace of the host sees all of them,
/// by the PIDs of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessLists {
    /// Those that are in the caller's namespace, by their PIDs there.
    #[default]
    Translated,
    /// All of them, by the PIDs of the host.
    Host,
    /// None.
    Nothing,
}

/// The memory that NVML gives with a process for a caller inside a PID namespace.
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

/// Whether NVML lists a process twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Duplicates {
    /// Each process once.
    #[default]
    None,
    /// For a caller inside a PID namespace: each process twice, with the same PID and all its memory in both entries.
    SameNamespacePid,
}

/// Whether NVML tells the memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceMemory {
    /// It does.
    #[default]
    Told,
    /// `NVML_ERROR_NOT_SUPPORTED`.
    NotSupported,
}

/// Whether NVML tells which processes use a device, and their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessMemory {
    /// Both.
    #[default]
    Told,
    /// The processes, each with `NVML_VALUE_NOT_AVAILABLE`.
    NotAvailable,
    /// Neither: the lists answer `NVML_ERROR_NOT_SUPPORTED`.
    NotSupported,
}
