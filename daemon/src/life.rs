//! Start and end of a daemon: flags, threads, signals, exit statuses.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use nix::sys::signal::SigSet;
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::ConfigError;

/// Wrong use or configuration (`EX_USAGE`, sysexits.h).
const USAGE: u8 = 64;
/// Something that it needs is another's (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;
/// Anything else.
const FAILED: u8 = 1;

/// Why a daemon ended otherwise than by a signal.
#[derive(Debug, Error)]
pub enum RunError {
    /// It was configured wrongly. Exit status 64.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Something that it needs is another's, or not there. Exit status 69.
    #[error("{0}")]
    Unavailable(String),
    /// Anything else. Exit status 1.
    #[error("{0}")]
    Failed(String),
}

impl RunError {
    fn status(&self) -> u8 {
        match self {
            Self::Config(_) => USAGE,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Failed(_) => FAILED,
        }
    }
}

/// The `main` of the daemon `name`, which does `work` as its flags `F` say.
pub fn main<F: Parser>(name: &str, work: impl FnOnce(F) -> Result<(), RunError>) -> ExitCode {
    let flags = match F::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(USAGE),
            };
        }
    };
    match work(flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line on stderr, also where the log goes elsewhere.
            let _ = writeln!(io::stderr(), "{name}: {error}");
            ExitCode::from(error.status())
        }
    }
}

/// Lives `life` to its end, on threads of its own and with no signal blocked.
///
/// # Errors
/// There are no threads, or `life`'s own.
pub fn block_on(life: impl Future<Output = Result<(), RunError>>) -> Result<(), RunError> {
    // Whoever started this may have had signals blocked, which is inherited: it could not be ended then.
    let unblocked = SigSet::empty().thread_set_mask();
    unblocked.map_err(|error| RunError::Failed(format!("no signals: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // What takes long has threads of its own; these two answer.
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| RunError::Failed(format!("no threads: {error}")))?;
    runtime.block_on(life)
}

/// One kind of signal, from now on.
///
/// # Errors
/// The system's.
pub fn listen(kind: SignalKind) -> Result<Signal, RunError> {
    signal(kind).map_err(|error| RunError::Failed(format!("no signals: {error}")))
}

/// The signals that end a daemon.
#[derive(Debug)]
pub struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    /// Listens for them, which else would end the process at once.
    ///
    /// # Errors
    /// The system's.
    pub fn listen() -> Result<Self, RunError> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// The name of the next one. Nothing is lost if this is dropped before.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_status() {
        let config = RunError::from(ConfigError::Together("a".to_owned()));
        assert_eq!((config.status(), config.to_string()), (64, "a".to_owned()));
        assert_eq!(RunError::Unavailable(String::new()).status(), 69);
        assert_eq!(RunError::Failed(String::new()).status(), 1);
    }

    #[test]
    fn what_a_life_ends_with_is_what_it_returns() {
        assert!(block_on(async { Ok(()) }).is_ok());
        let failed = block_on(async {
            let mut ends = Ends::listen()?;
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
            Err(RunError::Failed(ends.next().await.to_owned()))
        });
        assert_eq!(failed.unwrap_err().to_string(), "SIGTERM");
    }
}
