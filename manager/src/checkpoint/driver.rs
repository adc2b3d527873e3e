//! One step of the driver, and the meaning of its answer.

use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Pid;
use vcuda_driver_api::CUerror;
use vcuda_driver_api::cuda::CUprocessState;
use vcuda_driver_open::{Cuda, CudaProblem};
use vcuda_region::process::{Identity, Liveness, ProcessView};

use super::{Outcome, ProcessState, Step};

/// A process that a reused PID is not taken for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) pid: Pid,
    /// Start time (clock ticks since boot).
    pub(super) start_ticks: u64,
}

impl Target {
    fn is_alive(self) -> bool {
        let pid = u32::try_from(self.pid.as_raw()).ok();
        let found = pid.and_then(|pid| Identity::of(pid).ok());
        let found = found.filter(|found| found.start_ticks == self.start_ticks);
        found.is_some_and(|found| {
            // A process that has ended keeps its PID until its parent asks.
            let view = Identity::current().map(ProcessView::new);
            view.is_ok_and(|view| view.liveness(&found) != Liveness::Dead)
        })
    }
}

/// What is known after a step.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcome: Outcome,
    /// The process's state, if the driver told it.
    pub(super) state: Option<ProcessState>,
    pub(super) error: Option<String>,
}

impl Answer {
    pub(super) fn of(outcome: Outcome) -> Answer {
        Answer { outcome, state: None, error: None }
    }
}

/// The driver, loaded once it is needed.
#[derive(Debug)]
pub(super) struct Driver {
    /// Path of its library, if not the system's own.
    library: Option<PathBuf>,
    loaded: Option<Cuda>,
}

impl Driver {
    pub(super) fn new(library: Option<PathBuf>) -> Driver {
        Driver { library, loaded: None }
    }

    fn load(&mut self) -> Result<&Cuda, CudaProblem> {
        let cuda = match self.loaded.take() {
            Some(cuda) => cuda,
            None => self.library.as_deref().map_or_else(Cuda::load, Cuda::load_from)?,
        };
        Ok(self.loaded.insert(cuda))
    }

    /// Starts the driver, which a step does as well: it says then what is wrong.
    pub(super) fn start(&mut self) {
        let _ = self.load().and_then(Cuda::init);
    }

    /// Does a step. It ends only when the driver answers.
    pub(super) fn take(&mut self, step: Step, target: Target, limit: Duration) -> Answer {
        if !target.is_alive() {
            return Answer::of(Outcome::Gone);
        }
        let cuda = match self.load() {
            Ok(cuda) => cuda,
            Err(problem) => return failed(&problem, target, None),
        };
        let done = do_step(cuda, step, target, limit);
        let state = cuda.checkpoint_state(target.pid.as_raw()).ok().map(state_of);
        match done {
            Ok(true) => Answer { outcome: Outcome::Done, state, error: None },
            Ok(false) => Answer::of(Outcome::Gone),
            Err(problem) => failed(&problem, target, state),
        }
    }
}

/// Whether the process was there.
fn do_step(cuda: &Cuda, step: Step, target: Target, limit: Duration) -> Result<bool, CudaProblem> {
    let pid = target.pid.as_raw();
    if step != Step::State {
        cuda.init()?;
    }
    // The start of the driver takes seconds if many processes start it at once, so the process may have ended.
    if !target.is_alive() {
        return Ok(false);
    }
    match step {
        Step::State => cuda.checkpoint_state(pid).map(drop),
        Step::Lock => cuda.checkpoint_lock(pid, u32::try_from(limit.as_millis()).unwrap_or(u32::MAX)),
        Step::Checkpoint => cuda.checkpoint(pid),
        Step::Restore => cuda.checkpoint_restore(pid),
        Step::Unlock => cuda.checkpoint_unlock(pid),
    }?;
    Ok(true)
}

fn failed(problem: &CudaProblem, target: Target, state: Option<ProcessState>) -> Answer {
    let outcome = match problem {
        CudaProblem::NoDriver(_) | CudaProblem::Missing(_) => Outcome::NoDriver,
        CudaProblem::Refused { .. } if !target.is_alive() => Outcome::Gone,
        CudaProblem::Refused { .. } if state == Some(ProcessState::Failed) => Outcome::Lost,
        CudaProblem::Refused { call: "cuInit", .. } => Outcome::NoDriver,
        CudaProblem::Refused { error, .. } => of_error(*error, state),
    };
    Answer { outcome, state, error: Some(problem.to_string()) }
}

fn of_error(error: CUerror, state: Option<ProcessState>) -> Outcome {
    match error {
        CUerror::NOT_READY => Outcome::NotReady,
        // If the driver knows the process's state, it has checkpoints.
        CUerror::NOT_SUPPORTED if state.is_none() => Outcome::NoDriver,
        CUerror::NOT_SUPPORTED => Outcome::NotSupported,
        CUerror::OUT_OF_MEMORY => Outcome::NoRoom,
        CUerror::ILLEGAL_STATE => Outcome::WrongState,
        CUerror::NOT_INITIALIZED => Outcome::NoCuda,
        _ => Outcome::Refused,
    }
}

fn state_of(state: CUprocessState) -> ProcessState {
    match state {
        CUprocessState::RUNNING => ProcessState::Running,
        CUprocessState::LOCKED => ProcessState::Locked,
        CUprocessState::CHECKPOINTED => ProcessState::Checkpointed,
        CUprocessState::FAILED => ProcessState::Failed,
        _ => ProcessState::Other,
    }
}
