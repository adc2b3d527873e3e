//! `[driver]`: behaviour in which real drivers differ. A profile gives all keys, a machine's file may override some.
//!
//! Each key names the source of its behaviour.

use crate::bytes;
use serde::{Deserialize, Serialize};

/// Behaviour in which real NVMLs and drivers differ.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverProfile {
    /// Processes that NVML lists for a caller inside a PID namespace.
    /// Source: docs/hardware.md, "process lists in containers".
    pub nvml_lists: ProcessLists,
    /// Memory that NVML reports for each of them.
    /// Source: docs/hardware.md, "listed with 0 bytes"; the NVML reference allows `NVML_VALUE_NOT_AVAILABLE`.
    pub nvml_namespace_bytes: NamespaceBytes,
    /// Whether NVML lists a process twice.
    /// Source: docs/hardware.md, "a process listed twice".
    pub nvml_duplicates: Duplicates,
    /// Whether managed memory counts in NVML's memory of a process. It always counts in the device's.
    /// Source: docs/hardware.md, "managed memory".
    pub nvml_counts_managed: bool,
    /// Whether NVML reports the memory of a device.
    /// Source: docs/hardware.md, "memory of the GPU".
    pub nvml_device_memory: DeviceMemory,
    /// Whether NVML reports the memory of processes, to any caller.
    /// Source: NVML reference, under WDDM; CUDA on WSL User Guide, limitations: active compute processes.
    pub nvml_process_memory: ProcessMemory,
    /// Whether NVML lists processes as MPS clients instead of compute processes.
    /// Source: docs/hardware.md, "MPS clients"; `nvmlDeviceGetMPSComputeRunningProcesses`, without an MPS server.
    pub nvml_mps_list: bool,
    /// Duration of `nvmlInit` (ns). Concurrent calls of several processes wait for each other.
    /// Source: docs/hardware.md, "start of NVML".
    pub nvml_init_ns: u64,
    /// Duration of creating a context after its memory is allocated (ns).
    /// Source: 0 in each profile, so that tests are quick; 124 to 152 ms on an RTX 4070
    /// (AcademySoftwareFoundation/openqmc issue 109).
    pub context_create_ns: u64,
    /// Exported symbols of potentially unsafe calls. Unless the caller is in relaxed mode, such a call returns 900. It
    /// invalidates captures of its own thread that are not relaxed, and global captures of any thread.
    /// Source: Beyond those of every driver (`src/semantics/capture.rs`): docs/hardware.md, "calls during a capture";
    /// `h200-580` as seen on an H200 (580.159.04), where `cuStreamGetId` and `cuStreamGetDevice` are harmless; for the
    /// longer list of `gb10` evidence is open. `cuThreadExchangeStreamCaptureMode`: 900, then 901 of
    /// `cuStreamEndCapture`.
    pub capture_invalidating: Vec<String>,
    /// Whether a green context can be current to only one thread at a time.
    /// Source: A second thread is refused with `CUDA_ERROR_INVALID_CONTEXT`: docs/hardware.md, "green contexts"; false
    /// in `h200-580`, as an H200 (580.159.04) refused no second thread, and in `t4-470`, since there are none before
    /// 12.4.
    pub green_current_once: bool,
    /// Allocation unit of `cuMemAlloc` and its relatives (bytes).
    /// Source: 1 is what was asked for. docs/hardware.md, "allocation unit".
    #[serde(deserialize_with = "bytes::deserialize")]
    pub allocation_unit_bytes: u64,
    /// Whether launch calls return only after the kernel has ended.
    /// Source: Not for graphs and kernels that wait for the host. CUDA C++ Programming Guide, `CUDA_LAUNCH_BLOCKING`;
    /// debuggers and profilers do the same. True in no profile: a program that launches first and releases the kernel
    /// afterwards would never end.
    pub launch_blocks: bool,
    /// Whether `cuInit` looks itself up in the driver's library, by the process's `dlsym`.
    /// Source: docs/hardware.md, "look-ups by the driver of itself".
    pub looks_itself_up: bool,
    /// Time that recording an event with timing takes in its stream (ns).
    /// Source: docs/hardware.md, "time of an event"; about 2.5 us on a V100.
    pub event_record_ns: u64,
    /// Result of `cuEventElapsedTime` for two such events recorded in direct succession (ns).
    /// Source: docs/hardware.md, "time of an event"; that it need not equal the time of a record is open.
    pub event_pair_ns: u64,
    /// Order of contexts in time slicing.
    /// Source: docs/hardware.md, "turns between contexts".
    pub slice_order: SliceOrder,
    /// Variation of the slice length about `slice_ns`, up and down (thousandths).
    /// Source: 0 to 900. No public figures; every profile has 0, `accuracy matrix` tries 900.
    pub slice_spread_permille: u64,
    /// Whether a process sees only GPUs with a device node `/dev/nvidia<n>`, `n` being the GPU's position.
    /// Source: Real drivers open these files; NVIDIA's container toolkit puts a container's GPUs there. True in no
    /// profile, as computers without a GPU have none.
    pub device_nodes: bool,
    /// Delay between the end of the last holder and the release of its memory (ns).
    /// Source: docs/hardware.md, "end of a process" and "release of exported memory"; the kernel removes locks
    /// (`exit_files`, `filp_close`) before it calls the driver's release.
    pub release_delay_ns: u64,
    /// Whether a dead process's memory stays taken while a child that it forked lives without `exec`, as the child has the
    /// driver's descriptors.
    /// Source: docs/hardware.md, "end of a process"; fork(2), close(2); open for `/dev/dxg`, so `wsl2` has false.
    pub child_keeps_memory: bool,
    /// Bandwidth at which a checkpoint moves a process's memory to the host (bytes per microsecond); 0: the driver has no
    /// checkpoints.
    /// Source: docs/hardware.md, "checkpoint of a process": 1 GiB in 0.5 s and back in 0.25 s, 13 ms without a context;
    /// driver 570 or later, Linux; with MPS refused.
    pub checkpoint_bytes_per_us: u64,
    /// Bandwidth at which a restore moves it back (bytes per microsecond).
    pub restore_bytes_per_us: u64,
    /// Fixed duration of a checkpoint, and of a restore (ns).
    pub checkpoint_fixed_ns: u64,
    /// How the driver limits the memory of cgroups.
    /// Source: docs/hardware.md, "memory limits of cgroups"; from driver 615 on, `r615-dmem` and `r615-misc`.
    pub memory_limits: MemoryLimits,
    /// Unit of these limits (bytes).
    /// Source: open; the manuals say bytes.
    #[serde(deserialize_with = "bytes::deserialize")]
    pub memory_limit_unit_bytes: u64,
    /// Whether a limit between two units is rounded up, else down.
    /// Source: open; `r615-dmem` rounds down, `r615-misc` up.
    pub memory_limit_rounds_up: bool,
    /// Whether only the memory of MPS clients counts (`nvml_mps_list`).
    /// Source: open; false in each profile, as the manuals say that all memory counts. gpu-fractioning's change log tells of
    /// clients that MPS did not register, whose limits were not enforced.
    pub memory_limits_need_mps: bool,
}

/// Backend of the memory limits of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLimits {
    /// None: NVML has no such functions.
    #[default]
    None,
    /// The kernel's controller: limits of ancestors hold, too.
    Dmem,
    /// The driver's own: the nearest limited cgroup alone.
    Misc,
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
