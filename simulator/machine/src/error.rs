//! Errors: of opening a machine (`MachineError`), and refusals of a machine (`Refused`).

use std::io;
use std::path::PathBuf;

/// Failure to make, open or join a machine. Every message names the value and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// A file or directory of the machine cannot be made, read or mapped.
    #[error("cannot {action} {path}: {source}; make the directory writable or name another one in VCUDA_SIM")]
    Io {
        /// The attempted action, as a verb ("open", "map").
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// `machine.toml` is not valid TOML, or has an unknown or ill-typed field.
    #[error(
        "{path} is not a machine configuration: {reason}; correct it or remove the file for the defaults"
    )]
    Syntax {
        /// The configuration file.
        path: PathBuf,
        /// Message of the parser, on one line.
        reason: String,
    },
    /// A field of the configuration has an impossible value.
    #[error("machine configuration: {field} = {value} is not possible: {remedy}")]
    Value {
        /// The field, as written in `machine.toml`.
        field: String,
        /// The value found.
        value: String,
        /// A possible value or remedy.
        remedy: String,
    },
    /// The state file was written by another version of this library, or is no state file.
    #[error("{path} holds {found}, this vcuda needs {wanted}; end its processes and remove the file")]
    State {
        /// The state file.
        path: PathBuf,
        /// Content of the file.
        found: String,
        /// Required content.
        wanted: String,
    },
    /// No slot is free.
    #[error("the simulated machine already serves {limit} {what}; end some of them")]
    Full {
        /// Plural name of the slots.
        what: &'static str,
        /// Maximum number.
        limit: usize,
    },
}

/// Refusal of a client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Less free memory than requested.
    #[error("out of GPU memory: {requested} bytes asked for, {free} free")]
    OutOfMemory {
        /// Requested bytes.
        requested: u64,
        /// Free bytes at that moment.
        free: u64,
    },
    /// The configuration makes this allocation fail (`faults.fail_nth_allocation`).
    #[error("allocation failed by faults.fail_nth_allocation")]
    Fault,
    /// There is no such GPU on this machine.
    #[error("the simulated machine has no GPU {0}")]
    NoSuchGpu(usize),
    /// The context or stream does not exist, or not any more.
    #[error("no such context or stream")]
    Gone,
    /// A table of the machine is full.
    #[error("the simulated machine has no room for more {0}")]
    Full(&'static str),
    /// The file system holding the machine's state is full.
    #[error("no space left for the simulated machine's state file")]
    DiskFull,
}

/// The stream's queue holds `queue_depth` unfinished commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream's queue is full")]
pub struct QueueFull;
