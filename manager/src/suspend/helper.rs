//! `vcuda-checkpoint`, run once for each step, so that a driver that hangs or crashes does not take the manager with it.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::Deserialize;

use super::records::Process;
use crate::checkpoint::{Outcome, ProcessState, Step};

/// Where the program is, and what it works with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Path of `vcuda-checkpoint`.
    pub program: PathBuf,
    /// Path of the CUDA driver, if not the system's own.
    pub cuda_library: Option<PathBuf>,
    /// Folder of the tenants' locks.
    pub locks: PathBuf,
}

/// The program for one tenant. It has the tenant's lock, and each run of the program inherits it: after a crash of the manager
/// the next one waits until a step that was under way has ended.
#[derive(Debug)]
pub(super) struct Helper {
    settings: Settings,
    lock: Flock<File>,
}

/// The part of the program's report that is used here.
#[derive(Deserialize)]
struct Report {
    state: Option<ProcessState>,
}

impl Settings {
    /// Waits until no run of the program works for the tenant, and takes its lock.
    ///
    /// # Errors
    /// The lock file cannot be made.
    pub(super) fn lock(&self, id: &str) -> io::Result<Helper> {
        std::fs::create_dir_all(&self.locks)?;
        let file = File::create(self.locks.join(id))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| io::Error::from(error))?;
        Ok(Helper {
            settings: self.clone(),
            lock,
        })
    }

    /// Removes the lock of a tenant that runs.
    pub(super) fn remove_lock(&self, id: &str) {
        // One that stays is used again.
        let _ = std::fs::remove_file(self.locks.join(id));
    }
}

impl Helper {
    /// Does a step, for at most `limit`. A program that crashed, or could not be run, has no outcome that is known.
    pub(super) fn step(&self, step: Step, process: &Process, limit: Duration) -> Outcome {
        self.run(step, process, limit).0
    }

    /// State of a process.
    ///
    /// # Errors
    /// The outcome of the question, if the driver does not tell the state.
    pub(super) fn state(&self, process: &Process) -> Result<ProcessState, Outcome> {
        match self.run(Step::State, process, STATE_WITHIN) {
            (Outcome::Done, Some(state)) => Ok(state),
            (outcome, _) => Err(outcome),
        }
    }

    fn run(&self, step: Step, process: &Process, limit: Duration) -> (Outcome, Option<ProcessState>) {
        let Ok(lock) = self.lock.try_clone() else {
            return (Outcome::NoAnswer, None);
        };
        let mut command = Command::new(&self.settings.program);
        command
            .arg(step.name())
            .arg(format!("--pid={}", process.host_pid))
            .arg(format!("--start-ticks={}", process.start_ticks))
            .arg(format!("--limit-ms={}", limit.as_millis()))
            .arg("--json")
            // The lock: the program reads nothing.
            .stdin(Stdio::from(lock))
            .stderr(Stdio::null());
        if let Some(library) = &self.settings.cuda_library {
            command.arg("--cuda-library").arg(library);
        }
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                tracing::error!(program = %self.settings.program.display(), "cannot be run: {error}");
                return (Outcome::NoDriver, None);
            }
        };
        let status = output.status.code().and_then(Outcome::of_status);
        let state = serde_json::from_slice::<Report>(&output.stdout)
            .ok()
            .and_then(|report| report.state);
        (status.unwrap_or(Outcome::NoAnswer), state)
    }
}

/// Time for a question, which the driver answers in milliseconds.
const STATE_WITHIN: Duration = Duration::from_secs(5);
