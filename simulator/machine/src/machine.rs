//! `Machine`: opens a machine, and answers queries that need no client.

use crate::commit::CannotCommit;
use crate::layout::CLIENTS;
use crate::shared::Shared;
use crate::{CheckpointState, CheckpointStep, Client, Config, MachineError, NotMoved};
use crate::{at_exit, store};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A simulated machine: GPUs, their memory and their schedule, shared by all processes that open its directory.
///
/// Cheap to clone; all clones are one handle.
#[derive(Debug, Clone)]
pub struct Machine {
    shared: Arc<Shared>,
}

impl Machine {
    /// Makes a machine in `dir` (created if missing) with `config`, which is stored as `dir/machine.toml`. Errors:
    /// `MachineError`; an existing machine with another configuration is refused.
    pub fn create(dir: &Path, config: &Config) -> Result<Machine, MachineError> {
        store::create(dir, config).map(Machine::of)
    }

    /// Opens the machine in `dir`. Error: `MachineError`, also if there is no machine.
    pub fn open(dir: &Path) -> Result<Machine, MachineError> {
        store::open(dir).map(Machine::of)
    }

    /// Opens the machine in `dir`; a missing one is made with the default configuration.
    pub fn open_or_create(dir: &Path) -> Result<Machine, MachineError> {
        store::open_or_create(dir).map(Machine::of)
    }

    /// A machine of this process alone, for tests and harnesses with virtual time. Each client counts as a process.
    /// Errors: `MachineError::Value` for an impossible configuration, `Io` if memory cannot be mapped.
    pub fn in_memory(config: Config) -> Result<Machine, MachineError> {
        store::in_memory(config).map(Machine::of)
    }

    fn of(shared: Shared) -> Machine {
        Machine { shared: Arc::new(shared) }
    }

    /// The configuration, with derived values (UUIDs, PCI addresses) filled in.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The machine's clock, ns: CLOCK_MONOTONIC, or the virtual clock.
    pub fn now_ns(&self) -> u64 {
        self.shared.now()
    }

    /// Advances a virtual clock; has no effect on a real one.
    pub fn step_clock(&self, ns: u64) {
        self.shared.step_clock(ns);
    }

    /// Joins the machine as a process. The client ends when dropped, or when the process dies. Error:
    /// `MachineError::Full`, or `Io` when the disk is full.
    pub fn attach(&self, pid: u32, name: &str) -> Result<Client, MachineError> {
        let (id, slot) = self.shared.join(pid, name).map_err(|why| self.cannot_join(why))?;
        if self.shared.liveness.has_others() {
            at_exit::register(Arc::downgrade(&self.shared));
        }
        self.shared.objects.prepare();
        Ok(Client::new(self.clone(), id, slot))
    }

    fn cannot_join(&self, why: CannotCommit) -> MachineError {
        let limit = usize::try_from(CLIENTS).unwrap_or(usize::MAX);
        let path = PathBuf::from("state");
        match why {
            CannotCommit::NoSlot | CannotCommit::TooLarge => MachineError::Full { what: "processes", limit },
            CannotCommit::DiskFull => MachineError::Io {
                action: "reserve space in",
                path,
                source: io::Error::from(io::ErrorKind::StorageFull),
            },
            CannotCommit::Damaged => {
                MachineError::State { path, found: "damaged state".into(), wanted: "a whole one".into() }
            }
        }
    }

    /// State of the process with this PID in the caller's namespace; `None` if no such process uses the driver.
    pub fn checkpoint_state(&self, pid: u32) -> Option<CheckpointState> {
        self.shared.checkpoint_state(pid)
    }

    /// Asks the process with this PID in the caller's namespace for a step of a checkpoint, and waits until it is done.
    pub fn move_state(&self, pid: u32, step: CheckpointStep) -> Result<(), NotMoved> {
        self.shared.move_state(pid, step)
    }

    /// Whether the calling process is in the host's PID namespace: that of the first process to use the machine since the
    /// computer was started.
    pub fn is_on_host(&self) -> bool {
        self.shared.is_on_host()
    }

    /// Whether `driver.device_nodes` lets processes of this computer, or container, use the GPU.
    pub fn has_node(&self, gpu: usize) -> bool {
        !self.config().driver.device_nodes || Path::new(&format!("/dev/nvidia{gpu}")).exists()
    }

    /// Sleeps for the duration of an `nvmlInit` (`driver.nvml_init_ns`), one process of the machine at a time.
    pub fn start_nvml(&self) {
        let ns = self.config().driver.nvml_init_ns;
        if ns > 0 {
            let _turn = self.shared.liveness.turn();
            std::thread::sleep(std::time::Duration::from_nanos(ns));
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}
