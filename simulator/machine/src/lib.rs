//! The simulated machine: kernel driver and GPUs, without a C interface.
//!
//! A machine is a directory with `machine.toml` (`Config`) and a sparse mapped file shared by all its processes. There is
//! no service and no lock: a process copies the small core, plays events up to now on the copy, and commits it with one
//! compare-and-swap (`commit`). A submission is a few stores into the stream's own ring (`ring`), without any other
//! process.
//!
//! | module | what |
//! |---|---|
//! | `machine`, `client` | API of this crate |
//! | `engine` | time slices, concurrent streams, copy engines |
//! | `core`, `layout`, `ring`, `history`, `map` | content of the file |
//! | `commit`, `process_table`, `liveness`, `at_exit` | changes of the file, joining and dead processes |
//! | `namespaces` | PIDs by which processes see each other |
//! | `checkpoint` | moving a process's GPU state to the host's memory and back |
//! | `objects`, `object_files` | memory objects of several processes |
//! | `releasing` | memory of dead processes that is not free yet |
//! | `cgroup`, `memory_limits`, `limited` | memory limits of cgroups |
//! | `faults` | faults of the GPUs, visible through NVML |
//! | `record`, `report` | the exact record, and NVML's view |

mod at_exit;
mod bytes;
mod cgroup;
mod checkpoint;
mod client;
mod command;
mod commit;
mod config;
mod core;
#[cfg(test)]
mod crash;
mod directory;
mod engine;
mod error;
mod faults;
mod history;
mod layout;
mod limited;
mod liveness;
mod machine;
mod map;
mod memory_limits;
mod namespaces;
mod object_files;
mod objects;
mod process_table;
mod record;
mod releasing;
mod report;
mod ring;
mod shared;
mod store;
mod sys;
#[cfg(test)]
mod tests;

pub use bytes::parse_bytes;
pub use cgroup::Cgroup;
pub use checkpoint::{CheckpointState, CheckpointStep, NotMoved};
pub use client::{Barrier, Client, Object, ObjectId, Stamp};
pub use command::{Command, ContextId, Engine, StreamId, Ticket};
pub use config::{
    ClockKind, Config, DeviceMemory, DriverProfile, Duplicates, FaultConfig, FunctionFault, GpuConfig,
    KernelConfig, MAX_GPUS, MemoryLimits, NamespaceBytes, ProcessLists, ProcessMemory, RING_ENTRIES,
    SliceOrder,
};
pub use directory::machine_directory;
pub use error::{MachineError, QueueFull, Refused};
pub use faults::{CheckpointFault, CheckpointFaults, Faults, FaultsWatch, Xid};
pub use machine::Machine;
pub use memory_limits::{Limits, NotLimited};
pub use report::{GpuMemory, GpuReport, ProcessReport, ProcessUse, Report, Sample, SeenAs, ShownMemory};
