//! The steps that move the GPU state of a tenant's processes away, and back, for several processes at a time.
//!
//! All are locked before the first is copied, and all are back before the first goes on: processes of a tenant may wait for
//! each other.

use std::thread::{self, sleep};
use std::time::Duration;

use thiserror::Error;

use super::helper::Helper;
use super::records::Process;
use crate::checkpoint::{Outcome, ProcessState, Step};

/// Time for a lock, which waits for the GPU's work of the process.
const LOCK_WITHIN: Duration = Duration::from_secs(2);
/// Time for a copy: 80 GiB at 1 GiB/s, with room.
const COPY_WITHIN: Duration = Duration::from_secs(180);
const UNLOCK_WITHIN: Duration = Duration::from_secs(10);
/// Number of processes for which steps are done at the same time: each has a run of the program, which starts the driver.
const AT_ONCE: usize = 8;
/// Failed steps after which a process is given up.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// Reason why the processes were not moved. Some may be locked or copied.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum NotMoved {
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

impl NotMoved {
    /// Whether what became of a step is not known.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self, Self::Step(_, Outcome::NoAnswer))
    }
}

/// Does `work` for all processes, several at a time. Returns the results in their order.
fn for_all<T: Send>(processes: &[Process], work: impl Fn(&Process) -> T + Sync) -> Vec<T> {
    let mut results: Vec<Option<T>> = processes.iter().map(|_| None).collect();
    for (some, slots) in processes.chunks(AT_ONCE).zip(results.chunks_mut(AT_ONCE)) {
        thread::scope(|scope| {
            for (process, slot) in some.iter().zip(slots) {
                let work = &work;
                // If there is no thread, it is done below.
                let _ = thread::Builder::new().spawn_scoped(scope, move || *slot = Some(work(process)));
            }
        });
    }
    let done = results.into_iter().zip(processes);
    done.map(|(result, process)| result.unwrap_or_else(|| work(process))).collect()
}

/// Locks all processes. Returns those that have something to move: none that has ended, or has not started CUDA.
pub(super) fn lock_all(helper: &Helper, processes: &[Process]) -> Result<Vec<Process>, NotMoved> {
    let outcomes = for_all(processes, |one| helper.step(Step::Lock, one, LOCK_WITHIN));
    if outcomes.contains(&Outcome::NoAnswer) {
        // The driver may still be about to lock it.
        sleep(LOCK_WITHIN + PAUSE);
    }
    let mut locked = Vec::new();
    for (process, outcome) in processes.iter().zip(outcomes) {
        match outcome {
            Outcome::Done => locked.push(*process),
            Outcome::Gone | Outcome::NoCuda => {}
            outcome => return Err(NotMoved::Step(process.host_pid, outcome)),
        }
    }
    Ok(locked)
}

/// Copies locked processes to host memory.
///
/// # Errors
/// [`NotMoved::Step`], that of a step whose end is not known if there is one. Some may be copied.
pub(super) fn copy_all(helper: &Helper, locked: &[Process]) -> Result<(), NotMoved> {
    let outcomes = for_all(locked, |one| helper.step(Step::Checkpoint, one, COPY_WITHIN));
    let failed = locked.iter().zip(outcomes);
    let mut failed: Vec<NotMoved> = failed
        .filter(|(_, outcome)| !matches!(outcome, Outcome::Done | Outcome::Gone))
        .map(|(process, outcome)| NotMoved::Step(process.host_pid, outcome))
        .collect();
    failed.sort_by_key(|why| !why.is_unknown());
    failed.into_iter().next().map_or(Ok(()), Err)
}

/// Moves the memory of processes away that came back without the manager, whether they are locked or run. The others stay as they
/// are.
pub(super) fn take_away(helper: &Helper, processes: &[Process]) -> Result<(), NotMoved> {
    let states = for_all(processes, |one| helper.state(one));
    let in_state = |wanted: ProcessState| -> Vec<Process> {
        let all = processes.iter().zip(&states);
        all.filter(|(_, state)| **state == Ok(wanted)).map(|(process, _)| *process).collect()
    };
    let mut locked = in_state(ProcessState::Locked);
    locked.extend(lock_all(helper, &in_state(ProcessState::Running))?);
    copy_all(helper, &locked)
}

/// Whether the memory of a process is, or may be, away.
pub(super) fn is_any_away(helper: &Helper, processes: &[Process]) -> bool {
    let states = for_all(processes, |one| helper.state(one));
    states.into_iter().any(|state| match state {
        Ok(ProcessState::Running | ProcessState::Locked | ProcessState::Failed) => false,
        Ok(ProcessState::Checkpointed | ProcessState::Other) => true,
        Err(outcome) => !matches!(outcome, Outcome::Gone | Outcome::NoCuda),
    })
}

/// Brings all processes back to where they run, from wherever they are.
pub(super) fn bring_back(helper: &Helper, processes: &[Process]) -> Result<(), Lost> {
    // Each is tried, whatever became of the others.
    let restored = for_all(processes, |one| advance(helper, one, Goal::Here));
    let running = for_all(processes, |one| advance(helper, one, Goal::Running));
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
            // No later attempt succeeds (docs/evidence.md, "Checkpoints of a process").
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
