//! Failure of a command of vcuda: one line for the user, one exit status for scripts.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use thiserror::Error;

/// Every way in which `vcuda` itself fails. A command started by `vcuda run` has its own exit status: it replaces this
/// process. Each message names what was given and what to do next.
#[derive(Debug, Error)]
pub enum Failure {
    /// Arguments or a configuration that cannot be meant on this machine, such as a GPU that is not there. Status 64
    /// (`EX_USAGE`).
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work, or a check failed. Status 1.
    #[error("{0}")]
    Failed(String),
    /// A part of vcuda that the command needs is not there: a library or program of its own, the manager. Status 69 (`EX_UNAVAILABLE`).
    #[error("{0}")]
    Unavailable(String),
    /// The command given to `run` or `sim` exists, but cannot be executed. Status 126, as in shells.
    #[error("{0}")]
    NotExecutable(String),
    /// The command given to `run` or `sim` does not exist. Status 127, as in shells.
    #[error("{0}")]
    NotFound(String),
    /// Checks failed and the report on stdout has said so. Status 1, nothing more to say.
    #[error("")]
    Reported,
    /// The reader of our output has gone (`vcuda smi | head -1`). Status 0: nothing is lost.
    #[error("")]
    OutputClosed,
}

impl Failure {
    /// A failed access to `path`, in words: `verb` is what was tried ("create", "read").
    pub fn access(verb: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::Failed(format!("cannot {verb} {}: {}", path.display(), reason(error)))
    }
}

/// Words of the operating system and, if the remedy is not in them, what to do about it.
pub(crate) fn reason(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull => {
            "; free some space there, or set XDG_RUNTIME_DIR to a directory that has some"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; set XDG_RUNTIME_DIR to a directory that can be written",
        io::ErrorKind::PermissionDenied => "; it belongs to another user or is write-protected",
        _ => "",
    };
    format!("{}{remedy}", plain(error))
}

/// "No space left on device (os error 28)" without the number, which does not help a reader of the line.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl From<io::Error> for Failure {
    /// Errors of writing to stdout; every other access goes through [`Failure::access`], which knows the path.
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

/// Shorthand for the errors of other crates, whose messages already name value and remedy.
pub fn failed(error: impl Display) -> Failure {
    Failure::Failed(error.to_string())
}
