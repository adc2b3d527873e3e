//! The steps that move the GPU state of a tenant's processes away, and back.
//!
//! All are locked before the first is copied, and all are back before the first goes on: processes of a tenant may wait for
//! each other.

use std::thread::sleep;
use std::time::Duration;

use thiserror::Error;

use super::helper::Helper;
use super::records::Process;
use crate::checkpoint::{Outcome, ProcessState, Step};

/// Time for a lock, which waits for the GPU's work of the process.
const LOCK_WITHIN: Duration = Duration::from_secs(2);
/// Time for a copy: 80 GiB at 1 GiB/s, with room.
const COPY_WITHIN: Duration = Duration::from_secs(180);
/// Time for an unlock.
const UNLOCK_WITHIN: Duration = Duration::from_secs(10);
/// Failed steps after which a process is given up.
const ATTEMPTS: u32 = 5;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Reason why the processes were not moved. Some may be locked or copied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum NotMoved {
    /// The driver did not do a step.
    #[error("process {0}: {1}")]
    Step(u32, Outcome),
    /// A call began, or a process was added, while the processes were being locked.
    #[error("it began to use the GPU again; try again when it is idle")]
    InUse,
}

/// A process that cannot be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("process {0} cannot be brought back: {1}; end it")]
pub(super) struct Lost(u32, Outcome);

/// Locks all processes, and copies them if `is_quiet` says then that no call got in between. Processes that have ended, or
/// have not started CUDA, have nothing to move.
///
/// # Errors
/// See [`NotMoved`]: the caller brings all processes back.
pub(super) fn move_away(
    helper: &Helper,
    processes: &[Process],
    is_quiet: impl Fn() -> bool,
) -> Result<(), NotMoved> {
    let mut locked = Vec::new();
    for process in processes {
        match helper.step(Step::Lock, process, LOCK_WITHIN) {
            Outcome::Done => locked.push(process),
            Outcome::Gone | Outcome::NoCuda => {}
            outcome => {
                // The driver may still be about to lock it.
                if outcome == Outcome::NoAnswer {
                    sleep(LOCK_WITHIN + PAUSE);
                }
                return Err(NotMoved::Step(process.host_pid, outcome));
            }
        }
    }
    if !is_quiet() {
        return Err(NotMoved::InUse);
    }
    for process in locked {
        match helper.step(Step::Checkpoint, process, COPY_WITHIN) {
            Outcome::Done | Outcome::Gone => {}
            outcome => return Err(NotMoved::Step(process.host_pid, outcome)),
        }
    }
    Ok(())
}

/// Brings all processes back to where they run, from wherever they are.
///
/// # Errors
/// A process is lost. The others run.
pub(super) fn bring_back(helper: &Helper, processes: &[Process]) -> Result<(), Lost> {
    // Each is tried, whatever became of the others.
    let restored: Vec<_> = processes
        .iter()
        .map(|one| advance(helper, one, Goal::Here))
        .collect();
    let running: Vec<_> = processes
        .iter()
        .map(|one| advance(helper, one, Goal::Running))
        .collect();
    restored.into_iter().chain(running).collect()
}

/// How far a process is brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Its memory is on the GPU; it may be locked.
    Here,
    /// Its calls are served.
    Running,
}

/// Does steps until a process is at the goal. One that has ended, or has not started CUDA, is.
fn advance(helper: &Helper, process: &Process, goal: Goal) -> Result<(), Lost> {
    let mut last = Outcome::NoAnswer;
    let mut failures = 0;
    while failures < ATTEMPTS {
        let (step, limit) = match helper.state(process) {
            Ok(ProcessState::Running) | Err(Outcome::Gone | Outcome::NoCuda) => return Ok(()),
            Ok(ProcessState::Locked) if goal == Goal::Here => return Ok(()),
            Ok(ProcessState::Locked) => (Step::Unlock, UNLOCK_WITHIN),
            Ok(ProcessState::Checkpointed) => (Step::Restore, COPY_WITHIN),
            Ok(ProcessState::Failed) => return Err(Lost(process.host_pid, Outcome::Lost)),
            Ok(ProcessState::Other) => (Step::State, UNLOCK_WITHIN),
            Err(outcome) => {
                last = outcome;
                (Step::State, UNLOCK_WITHIN)
            }
        };
        match (step, helper.step(step, process, limit)) {
            // No later attempt succeeds (docs/gpu-results.md, "Checkpoints of a process").
            (Step::Restore, outcome @ (Outcome::NoRoom | Outcome::Lost)) => {
                return Err(Lost(process.host_pid, outcome));
            }
            (Step::Restore, Outcome::Done) if goal == Goal::Here => return Ok(()),
            (Step::Unlock, Outcome::Done) => return Ok(()),
            (Step::Restore, Outcome::Done) => {}
            (_, outcome) => {
                last = if outcome == Outcome::Done { last } else { outcome };
                failures += 1;
                sleep(PAUSE);
            }
        }
    }
    Err(Lost(process.host_pid, last))
}
