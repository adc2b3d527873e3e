//! Moving the GPU state of a process to host memory and back, by a program of its own.
//!
//! A driver that hangs or crashes in a step ends `vcuda-checkpoint` ([`program`]), not the manager. The program does one step and
//! tells what came of it by its exit status, or does the steps that its standard input asks for and reports each. Experimental:
//! [`crate::suspend`] uses it.

mod driver;
pub mod program;
mod stepper;

use std::fmt;
use std::num::NonZeroU64;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Tell the state, and change nothing.
    State,
    /// Let no CUDA call begin, and wait for the GPU's work.
    Lock,
    /// Move the GPU state of a locked process to its host memory.
    Checkpoint,
    /// Move it back; the process stays locked.
    Restore,
    /// Let a locked process go on.
    Unlock,
}

impl Step {
    /// The step as an argument of `vcuda-checkpoint`.
    pub const fn name(self) -> &'static str {
        match self {
            Step::State => "state",
            Step::Lock => "lock",
            Step::Checkpoint => "checkpoint",
            Step::Restore => "restore",
            Step::Unlock => "unlock",
        }
    }
}

/// A step on a process: a line of JSON for `vcuda-checkpoint --serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The step.
    pub step: Step,
    /// PID of the process, in the program's PID namespace.
    pub pid: i32,
    /// Start time of the process (clock ticks since boot).
    pub start_ticks: NonZeroU64,
    /// Time for the step (ms).
    pub limit_ms: u32,
}

/// What came of a request: a line of JSON from `vcuda-checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The step.
    pub step: Step,
    /// PID of the process.
    pub pid: i32,
    /// Start time of the process (clock ticks since boot).
    pub start_ticks: NonZeroU64,
    /// The outcome.
    pub outcome: Outcome,
    /// State of the process afterwards, if the driver told it.
    pub state: Option<ProcessState>,
    /// The driver's error.
    pub error: Option<String>,
    /// Duration of the step, and of the driver's start if that came first (ms).
    pub took_ms: u64,
}

/// State of a process, as the driver calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessState {
    /// Its calls are served.
    Running,
    /// Its calls wait.
    Locked,
    /// Its GPU state is in host memory.
    Checkpointed,
    /// It cannot use the GPU any more.
    Failed,
    /// Another one, of a newer driver.
    Other,
}

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is done.
    Done,
    /// The lock did not come in time; nothing has changed.
    NotReady,
    /// The process has memory that cannot be moved; it stays locked.
    NotSupported,
    /// No room: on the GPU for a restore, after which none succeeds any more; on the host for a checkpoint.
    NoRoom,
    /// The driver calls the process failed.
    Lost,
    /// The process is in another state than the step needs.
    WrongState,
    /// No process has this PID and start time, or it has ended.
    Gone,
    /// The process has not started CUDA.
    NoCuda,
    /// The driver did not answer in time; what came of the step is not known.
    NoAnswer,
    /// The driver answered with another error.
    Refused,
    /// There is no driver, or none with checkpoints.
    NoDriver,
}

impl Outcome {
    /// All outcomes, in the order of their exit statuses.
    pub const ALL: [Outcome; 11] = [
        Outcome::Done,
        Outcome::NotReady,
        Outcome::NotSupported,
        Outcome::NoRoom,
        Outcome::Lost,
        Outcome::WrongState,
        Outcome::Gone,
        Outcome::NoCuda,
        Outcome::NoAnswer,
        Outcome::Refused,
        Outcome::NoDriver,
    ];

    /// Exit status of `vcuda-checkpoint`. 64 is wrong use (sysexits.h).
    pub const fn status(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::NotReady => 2,
            Outcome::NotSupported => 3,
            Outcome::NoRoom => 4,
            Outcome::Lost => 5,
            Outcome::WrongState => 6,
            Outcome::Gone => 7,
            Outcome::NoCuda => 8,
            Outcome::NoAnswer => 9,
            Outcome::Refused => 10,
            Outcome::NoDriver => 69,
        }
    }

    /// The outcome with this exit status; `None` for a program that crashed or was used wrongly.
    pub fn of_status(status: i32) -> Option<Outcome> {
        let mut all = Outcome::ALL.into_iter();
        all.find(|outcome| i32::from(outcome.status()) == status)
    }
}

/// The outcome in words.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Done => "done",
            Outcome::NotReady => {
                "the GPU still worked for the process at the end of the time; nothing has changed"
            }
            Outcome::NotSupported => "the process has memory that the driver cannot move; unlock it",
            Outcome::NoRoom => {
                "no room for the process's memory; after a restore the process is lost: end it"
            }
            Outcome::Lost => "the driver has given the process up: end it",
            Outcome::WrongState => "the process is in another state than this step needs",
            Outcome::Gone => "no process has this PID and start time",
            Outcome::NoCuda => "the process has not started CUDA",
            Outcome::NoAnswer => "the driver did not answer in time; ask for the state, or end the process",
            Outcome::Refused => "the driver refused",
            Outcome::NoDriver => "no driver with checkpoints: it needs release 570 or later",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_the_name_of_its_argument() {
        for step in Step::value_variants() {
            let argument = step.to_possible_value().unwrap();
            assert_eq!(argument.get_name(), step.name());
        }
    }

    #[test]
    fn each_outcome_has_an_exit_status_of_its_own() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::of_status(i32::from(outcome.status())), Some(outcome));
        }
        assert_eq!(Outcome::of_status(64), None);
        assert_eq!(Outcome::of_status(1), None);
    }
}
