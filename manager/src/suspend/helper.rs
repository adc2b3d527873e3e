//! `vcuda-checkpoint`, so that a driver that hangs or crashes does not take the manager with it. A run of the program does one
//! step after the other, since the driver's start takes longer than most of them. After a crash, a step that was under way has no
//! outcome that is known, and the next step is another run's.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use parking_lot::Mutex;
use vcuda_daemon::lock_file;
use vcuda_region::process::Identity;

use super::records::Process;
use crate::checkpoint::{Outcome, ProcessState, Report, Request, Step};

/// Where the program is, and what it works with.
#[derive(Debug, Clone)]
pub struct Settings {
    pub program: PathBuf,
    pub cuda_library: Option<PathBuf>,
    /// Folder of the tenants' locks.
    pub locks: PathBuf,
}

/// The program for one tenant. It has the tenant's lock, and each run of the program inherits it: after a crash of the manager
/// the next one waits until a step that was under way has ended.
#[derive(Debug)]
pub(super) struct Helper {
    /// Runs that wait for a request. They end before the lock is given up, as fields are dropped in this order.
    idle: Mutex<Vec<Run>>,
    settings: Settings,
    lock: Flock<File>,
}

/// A run of the program. It is killed when this is dropped; it does nothing then, or its step has no outcome.
#[derive(Debug)]
struct Run {
    child: Child,
    requests: ChildStdin,
    reports: BufReader<ChildStdout>,
}

impl Settings {
    /// Waits until no run of the program works for the tenant, and takes its lock.
    pub(super) fn lock(&self, id: &str) -> io::Result<Helper> {
        std::fs::create_dir_all(&self.locks)?;
        let file = lock_file::open(&self.locks.join(id))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| io::Error::from(error))?;
        Ok(Helper { idle: Mutex::default(), settings: self.clone(), lock })
    }

    /// Whether the program finds a driver with checkpoints. It does no step.
    pub(super) fn finds_driver(&self) -> io::Result<bool> {
        let me = Identity::of(std::process::id())?;
        let mut command = Command::new(&self.program);
        command
            .args([Step::State.name(), "--limit-ms", "2000"])
            .args(["--pid", &me.pid.to_string(), "--start-ticks", &me.start_ticks.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(library) = &self.cuda_library {
            command.arg("--cuda-library").arg(library);
        }
        let status = command.status()?.code();
        Ok(status.and_then(Outcome::of_status) != Some(Outcome::NoDriver))
    }

    pub(super) fn remove_lock(&self, id: &str) {
        // One that stays is used again.
        let _ = std::fs::remove_file(self.locks.join(id));
    }
}

impl Helper {
    /// Starts a run if there is none, so that its driver is ready by the first step.
    pub(super) fn start_early(&self) {
        let is_ready = !self.idle.lock().is_empty();
        if !is_ready && let Ok(run) = Run::start(&self.settings, &self.lock) {
            self.idle.lock().push(run);
        }
    }

    /// Ends all runs but one.
    pub(super) fn keep_one(&self) {
        self.idle.lock().truncate(1);
    }

    /// Does a step, for at most `limit`. A program that crashed, or could not be run, has no outcome that is known.
    pub(super) fn step(&self, step: Step, process: &Process, limit: Duration) -> Outcome {
        self.report(step, process, limit).0
    }

    /// State of a process.
    ///
    /// # Errors
    /// The outcome of the question, if the driver does not tell the state.
    pub(super) fn state(&self, process: &Process) -> Result<ProcessState, Outcome> {
        match self.report(Step::State, process, STATE_WITHIN) {
            (Outcome::Done, Some(state)) => Ok(state),
            (outcome, _) => Err(outcome),
        }
    }

    fn report(&self, step: Step, process: &Process, limit: Duration) -> (Outcome, Option<ProcessState>) {
        let (Ok(pid), Some(start_ticks)) =
            (i32::try_from(process.host_pid), NonZeroU64::new(process.start_ticks))
        else {
            return (Outcome::Gone, None);
        };
        let request = Request {
            step,
            pid,
            start_ticks,
            limit_ms: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
        };
        let idle = self.idle.lock().pop();
        let mut run = match idle.map_or_else(|| Run::start(&self.settings, &self.lock), Ok) {
            Ok(run) => run,
            Err(error) => {
                tracing::error!(program = %self.settings.program.display(), "cannot be run: {error}");
                return (Outcome::NoDriver, None);
            }
        };
        match run.report(&request) {
            Ok(report) => {
                // After a failure, the next attempt starts the driver anew.
                if report.outcome == Outcome::Done {
                    self.idle.lock().push(run);
                }
                (report.outcome, report.state)
            }
            Err(error) => {
                tracing::warn!(pid, step = step.name(), "vcuda-checkpoint ended: {error}");
                (Outcome::NoAnswer, None)
            }
        }
    }
}

impl Run {
    fn start(settings: &Settings, lock: &File) -> io::Result<Self> {
        let mut command = Command::new(&settings.program);
        command
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The lock, by the descriptor that the program uses least.
            .stderr(Stdio::from(lock.try_clone()?));
        if let Some(library) = &settings.cuda_library {
            command.arg("--cuda-library").arg(library);
        }
        let mut child = command.spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(requests), Some(reports)) => Ok(Self { child, requests, reports: BufReader::new(reports) }),
            _ => Err(io::Error::other("its pipes are missing")),
        }
    }

    /// Has the program do a step.
    fn report(&mut self, request: &Request) -> io::Result<Report> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.requests.write_all(line.as_bytes())?;
        line.clear();
        self.reports.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // One that has ended already has nothing to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Time for a question, which the driver answers in milliseconds.
const STATE_WITHIN: Duration = Duration::from_secs(5);
