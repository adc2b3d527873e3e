//! The simulated machine: what the kernel driver and the GPUs would be. No C interface.
//!
//! A machine is a directory with `machine.toml` (`Config`) and a sparse mapped file that all its processes share.
//! There is no service and no lock: a process that touches the machine copies its small core, plays events up to now on the
//! copy and commits the copy with one compare-and-swap (`commit`). A submission is a few stores into the stream's own
//! ring (`ring`); no other process is involved until one looks.
//!
//! | module | what |
//! |---|---|
//! | `machine`, `client` | what users of this crate call |
//! | `engine` | contexts in slices, streams side by side, copy engines: arithmetic on a copy |
//! | `core`, `layout`, `ring`, `history`, `map` | what is in the file |
//! | `commit`, `process_table`, `liveness`, `at_exit` | how it changes, who takes part, who has died |
//! | `namespaces` | by which PIDs processes see each other |
//! | `objects`, `object_files` | memory that more than one process holds |
//! | `releasing` | memory of the dead that the GPU does not have back yet |
//! | `faults` | what has happened to the GPUs, for who looks through NVML |
//! | `record`, `report` | the exact record, and NVML's late and rounded view |

mod at_exit;
mod bytes;
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
mod liveness;
mod machine;
mod map;
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
pub use client::{Client, Object, ObjectId, Stamp};
pub use command::{Command, ContextId, Engine, StreamId, Ticket};
pub use config::{
    ClockKind, Config, DeviceMemory, DriverProfile, Duplicates, FaultConfig, FunctionFault, GpuConfig,
    KernelConfig, MAX_GPUS, NamespaceBytes, ProcessLists, ProcessMemory, RING_ENTRIES, SliceOrder,
};
pub use directory::machine_directory;
pub use error::{MachineError, QueueFull, Refused};
pub use faults::{Faults, FaultsWatch, Xid};
pub use machine::Machine;
pub use report::{GpuMemory, GpuReport, ProcessReport, ProcessUse, Report, Sample, SeenAs};
