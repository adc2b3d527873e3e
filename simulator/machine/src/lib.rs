//! The simulated machine: what the kernel driver and the GPUs would be. No C interface.
//!
//! A machine is a directory with `machine.toml` (`Config`) and a sparse mapped file that all its processes share.
//! There is no service and no lock: whoever touches the machine copies its small core, plays events up to now on the
//! copy and commits the copy with one compare-and-swap.

mod bytes;
mod client;
mod command;
mod config;
mod directory;
mod error;
mod machine;
mod report;
mod sys;

pub use bytes::parse_bytes;
pub use client::{Client, Stamp};
pub use command::{Command, ContextId, Engine, StreamId, Ticket};
pub use config::{ClockKind, Config, FaultConfig, GpuConfig, KernelConfig, MAX_GPUS, RING_ENTRIES};
pub use directory::machine_directory;
pub use error::{MachineError, QueueFull, Refused};
pub use machine::Machine;
pub use report::{GpuMemory, GpuReport, ProcessReport, ProcessUse, Report, Sample};
