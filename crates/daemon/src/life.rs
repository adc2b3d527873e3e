//! Start and end of a daemon: flags, threads, signals, exit statuses.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use nix::sys::signal::SigSet;
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::ConfigError;

/// Exit status of wrong use or configuration (`EX_USAGE`, sysexits.h).
const USAGE: u8 = 64;
/// Exit status if a resource is missing or used by another process (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;
const FAILED: u8 = 1;

/// Failure that ended a daemon.
#[derive(Debug, Error)]
pub enum RunError {
    /// Invalid configuration. Exit status 64.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Resource that is missing or used by another process. Exit status 69.
    #[error("{0}")]
    Unavailable(String),
    /// Any other failure. Exit status 1.
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

/// Main function of the daemon `name`: parses the flags `F` and calls `work`.
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
            // Printed on stderr, even if the log goes elsewhere.
            let _ = writeln!(io::stderr(), "{name}: {error}");
            ExitCode::from(error.status())
        }
    }
}

/// Runs `life` to its end on a new runtime, with all signals unblocked.
pub fn block_on(life: impl Future<Output = Result<(), RunError>>) -> Result<(), RunError> {
    // Blocked signals are inherited, and would keep the daemon from being ended.
    let unblocked = SigSet::empty().thread_set_mask();
    unblocked.map_err(|error| RunError::Failed(format!("no signals: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Two suffice for answers, as blocking work has its own threads.
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| RunError::Failed(format!("no threads: {error}")))?;
    runtime.block_on(life)
}

/// Stream of one kind of signal.
pub fn listen(kind: SignalKind) -> Result<Signal, RunError> {
    signal(kind).map_err(|error| RunError::Failed(format!("no signals: {error}")))
}

/// Signals that end a daemon.
#[derive(Debug)]
pub struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    /// Listens for the signals, which then no longer end the process by themselves.
    pub fn listen() -> Result<Self, RunError> {
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Name of the next signal. Cancel-safe.
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
