//! Checkpoints of processes (CUDA Driver API, "CUDA Checkpointing"): driver 570 or later.

use std::ffi::c_int;
use std::ptr::null_mut;

use vcuda_driver_api::cuda::{CUcheckpointLockArgs, CUprocessState, fn_types};

use super::{Cuda, CudaProblem};

/// The PIDs are those of the caller's namespace.
impl Cuda {
    /// State of a process that uses the driver. Needs no [`Cuda::init`].
    pub fn checkpoint_state(&self, pid: c_int) -> Result<CUprocessState, CudaProblem> {
        let get = function!(self, cuCheckpointProcessGetState);
        let mut state = CUprocessState::RUNNING;
        // SAFETY: `state` is valid for writing.
        checked!(cuCheckpointProcessGetState, unsafe { get(pid, &raw mut state) })?;
        Ok(state)
    }

    /// Locks a running process; gives up after `timeout_ms`, 0: never.
    pub fn checkpoint_lock(&self, pid: c_int, timeout_ms: u32) -> Result<(), CudaProblem> {
        let lock = function!(self, cuCheckpointProcessLock);
        let mut arguments = CUcheckpointLockArgs { timeoutMs: timeout_ms, reserved0: 0, reserved1: [0; 7] };
        // SAFETY: `arguments` is valid for the call.
        checked!(cuCheckpointProcessLock, unsafe { lock(pid, &raw mut arguments) })
    }

    /// Moves the GPU state of a locked process to its host memory.
    pub fn checkpoint(&self, pid: c_int) -> Result<(), CudaProblem> {
        let checkpoint = function!(self, cuCheckpointProcessCheckpoint);
        // SAFETY: the arguments are optional.
        checked!(cuCheckpointProcessCheckpoint, unsafe { checkpoint(pid, null_mut()) })
    }

    /// Moves the state back; the process is locked then.
    pub fn checkpoint_restore(&self, pid: c_int) -> Result<(), CudaProblem> {
        let restore = function!(self, cuCheckpointProcessRestore);
        // SAFETY: the arguments are optional.
        checked!(cuCheckpointProcessRestore, unsafe { restore(pid, null_mut()) })
    }

    /// Lets a locked process go on.
    pub fn checkpoint_unlock(&self, pid: c_int) -> Result<(), CudaProblem> {
        let unlock = function!(self, cuCheckpointProcessUnlock);
        // SAFETY: the arguments are optional.
        checked!(cuCheckpointProcessUnlock, unsafe { unlock(pid, null_mut()) })
    }
}
