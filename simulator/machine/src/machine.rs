//! `Machine`: opening one, and what can be asked of it without being a client.

use crate::{Client, Config, GpuMemory, MachineError, ProcessUse, Report, Sample};
use std::path::Path;

/// A simulated machine: GPUs, their memory and their schedule, shared by all processes that opened the same directory.
///
/// Cheap to clone; all clones are one handle.
#[derive(Debug, Clone)]
pub struct Machine {}

#[allow(
    clippy::panic,
    unused_variables,
    clippy::unimplemented,
    reason = "skeleton; bodies follow"
)]
impl Machine {
    /// Makes a machine in `dir` (made if missing) with `config`, which becomes `dir/machine.toml`.
    ///
    /// # Errors
    /// `MachineError`; a machine that exists there with another configuration is refused.
    pub fn create(dir: &Path, config: &Config) -> Result<Machine, MachineError> {
        unimplemented!()
    }
    /// Opens the machine in `dir`.
    ///
    /// # Errors
    /// `MachineError`, also if there is none.
    pub fn open(dir: &Path) -> Result<Machine, MachineError> {
        unimplemented!()
    }
    /// Opens the machine in `dir`; a missing one is made with the default configuration.
    ///
    /// # Errors
    /// `MachineError`.
    pub fn open_or_create(dir: &Path) -> Result<Machine, MachineError> {
        unimplemented!()
    }
    /// A machine of this process alone (tests, virtual-time harness). Every client is a process of its own.
    ///
    /// # Errors
    /// `MachineError::Value` for an impossible configuration, `Io` if memory cannot be mapped.
    pub fn in_memory(config: Config) -> Result<Machine, MachineError> {
        unimplemented!()
    }
    /// The configuration, with everything derived filled in (UUIDs, PCI addresses).
    #[must_use]
    pub fn config(&self) -> &Config {
        unimplemented!()
    }
    /// The machine's clock, ns: CLOCK_MONOTONIC, or the virtual clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        unimplemented!()
    }
    /// Moves a virtual clock on; nothing happens on a real one.
    pub fn step_clock(&self, ns: u64) {
        unimplemented!()
    }
    /// Joins the machine as a process. The client ends when dropped, or when the process dies.
    ///
    /// # Errors
    /// `MachineError::Full`, or `Io` when the disk is full.
    pub fn attach(&self, pid: u32, name: &str) -> Result<Client, MachineError> {
        unimplemented!()
    }
    /// The exact record, up to now.
    #[must_use]
    pub fn report(&self) -> Report {
        unimplemented!()
    }
    /// Memory of a GPU (zeroes for one that does not exist). The dead hold none.
    #[must_use]
    pub fn memory(&self, gpu: usize) -> GpuMemory {
        unimplemented!()
    }
    /// Living processes with a context on the GPU.
    #[must_use]
    pub fn processes(&self, gpu: usize) -> Vec<ProcessUse> {
        unimplemented!()
    }
    /// Percent of the last complete sample period in which a kernel ran.
    #[must_use]
    pub fn utilization(&self, gpu: usize) -> u32 {
        unimplemented!()
    }
    /// Complete sample periods that ended after `since_ns`, oldest first; empty: nothing new.
    #[must_use]
    pub fn samples(&self, gpu: usize, since_ns: u64) -> Vec<Sample> {
        unimplemented!()
    }
}
