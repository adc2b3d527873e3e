//! Failure of a command of vcuda: one line for the user and an exit status for scripts.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use thiserror::Error;
use vcuda_machine::MachineError;

/// Reason for which `vcuda` itself fails. A command started by `vcuda run` replaces this process, so it has its own exit
/// status. Each message names the given value and a remedy.
#[derive(Debug, Error)]
pub enum Failure {
    /// Impossible arguments or configuration, such as a GPU that does not exist. Status 64 (`EX_USAGE`).
    #[error("{0}")]
    Usage(String),
    /// An attempt or a check failed. Status 1.
    #[error("{0}")]
    Failed(String),
    /// A missing part of vcuda: a library, a program, or the manager. Status 69 (`EX_UNAVAILABLE`).
    #[error("{0}")]
    Unavailable(String),
    /// The command given to `run` or `sim` exists, but cannot be executed. Status 126, as in shells.
    #[error("{0}")]
    NotExecutable(String),
    /// The command given to `run` or `sim` does not exist. Status 127, as in shells.
    #[error("{0}")]
    NotFound(String),
    /// Failed checks that the report on stdout has already shown. Status 1.
    #[error("")]
    Reported,
    /// The reader of stdout has closed it (`vcuda smi | head -1`). Status 0, as nothing is lost.
    #[error("")]
    OutputClosed,
}

impl Failure {
    /// Failure to access `path`; `verb` names the attempt ("create", "read").
    pub fn access(verb: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::Failed(format!("cannot {verb} {}: {}", path.display(), reason(error)))
    }

    /// As [`Failure::access`], for a file that the user chose: another one is the remedy.
    pub(crate) fn output(verb: &str, path: &Path, error: &io::Error) -> Failure {
        let remedy = match error.kind() {
            io::ErrorKind::StorageFull => "; free some space there, or name a file elsewhere",
            io::ErrorKind::ReadOnlyFilesystem => "; name a file elsewhere",
            kind => other_remedy(kind),
        };
        Failure::Failed(format!("cannot {verb} {}: {}{remedy}", path.display(), plain(error)))
    }
}

/// The operating system's message, with a remedy if it has none.
pub(crate) fn reason(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull => {
            "; free some space there, or set XDG_RUNTIME_DIR to a directory that has some"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; set XDG_RUNTIME_DIR to a directory that can be written",
        kind => other_remedy(kind),
    };
    format!("{}{remedy}", plain(error))
}

/// Remedy where it does not matter who chose the place.
fn other_remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => "; it belongs to another user or is write-protected",
        _ => "",
    }
}

/// The message without "(os error 28)".
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl From<io::Error> for Failure {
    /// Error of writing to stdout; all other accesses use [`Failure::access`], which knows the path.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Failed(format!("cannot write the output: {}", plain(&error))),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(io::ErrorKind::BrokenPipe) => Failure::OutputClosed,
            _ => Failure::Failed(format!("cannot write the output: {error}")),
        }
    }
}

impl From<MachineError> for Failure {
    /// An impossible configuration is a usage error.
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Syntax { .. } | MachineError::Value { .. } => Failure::Usage(error.to_string()),
            _ => Failure::Failed(error.to_string()),
        }
    }
}

impl From<&Failure> for ExitCode {
    fn from(failure: &Failure) -> Self {
        ExitCode::from(match failure {
            Failure::OutputClosed => 0,
            Failure::Failed(_) | Failure::Reported => 1,
            Failure::Usage(_) => 64,
            Failure::Unavailable(_) => 69,
            Failure::NotExecutable(_) => 126,
            Failure::NotFound(_) => 127,
        })
    }
}

/// A failure from an error of another crate, whose message already names value and remedy.
pub fn failed(error: impl Display) -> Failure {
    Failure::Failed(error.to_string())
}
