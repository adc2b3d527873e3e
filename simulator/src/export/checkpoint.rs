//! CUDA Checkpointing: a process moves the GPU state of another one, or its own, to the memory of the host and back.
//!
//! The PID is that in the caller's namespace. The caller needs no `cuInit` (docs/hardware.md, "checkpoint of a process").

use vcuda_machine::{CheckpointState, CheckpointStep, Machine, NotMoved};

use crate::export::prelude::*;
use crate::object::process::{CHECKPOINT_THREAD, machine};

export! {
    cuCheckpointProcessGetRestoreThreadId => get_restore_thread_id;
    cuCheckpointProcessGetState => get_state;
    cuCheckpointProcessLock => lock;
    cuCheckpointProcessCheckpoint => checkpoint;
    cuCheckpointProcessRestore => restore;
    cuCheckpointProcessUnlock => unlock;
}

/// The machine, if its driver has checkpoints.
fn machine_with_checkpoints() -> Result<&'static Machine, CUerror> {
    let machine = machine()?;
    match machine.config().driver.checkpoint_bytes_per_us {
        0 => Err(CUerror::NOT_SUPPORTED),
        _ => Ok(machine),
    }
}

/// "The process ID of the CUDA process."
fn process_id(pid: c_int) -> Result<u32, CUerror> {
    u32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(CUerror::INVALID_VALUE)
}

/// The state of a process that uses the driver.
fn state_of(pid: c_int) -> Result<CheckpointState, CUerror> {
    let machine = machine_with_checkpoints()?;
    machine.checkpoint_state(process_id(pid)?).ok_or(CUerror::NOT_INITIALIZED)
}

fn get_state(pid: c_int, state: *mut CUprocessState) -> CUresult {
    let known = match state_of(pid)? {
        CheckpointState::Running => CUprocessState::RUNNING,
        CheckpointState::Locked => CUprocessState::LOCKED,
        CheckpointState::Checkpointed => CUprocessState::CHECKPOINTED,
        CheckpointState::Failed => CUprocessState::FAILED,
    };
    put(state, known)
}

/// Finds the thread by its name, so that its number is the one in the caller's namespace.
fn get_restore_thread_id(pid: c_int, tid: *mut c_int) -> CUresult {
    state_of(pid)?;
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| CUerror::OPERATING_SYSTEM)?;
    let found = threads.flatten().find(|thread| {
        std::fs::read_to_string(thread.path().join("comm"))
            .is_ok_and(|name| name.trim_end() == CHECKPOINT_THREAD)
    });
    let number = found.and_then(|thread| thread.file_name().to_str()?.parse().ok());
    put(tid, number.ok_or(CUerror::OPERATING_SYSTEM)?)
}

fn step(pid: c_int, step: CheckpointStep) -> CUresult {
    let moved = machine_with_checkpoints()?.move_state(process_id(pid)?, step);
    moved.map_err(|why| match why {
        NotMoved::NoProcess => CUerror::NOT_INITIALIZED,
        NotMoved::NotReady => CUerror::NOT_READY,
        NotMoved::NotSupported => CUerror::NOT_SUPPORTED,
        NotMoved::OutOfMemory => CUerror::OUT_OF_MEMORY,
        NotMoved::IllegalState => CUerror::ILLEGAL_STATE,
        NotMoved::OperatingSystem => CUerror::OPERATING_SYSTEM,
    })
}

/// Optional arguments, whose reserved parts "must be zero".
fn optional<T: Copy>(arguments: *const T, is_right: impl FnOnce(&T) -> bool) -> Result<Option<T>, CUerror> {
    if arguments.is_null() {
        return Ok(None);
    }
    let arguments = get(arguments)?;
    if is_right(&arguments) { Ok(Some(arguments)) } else { Err(CUerror::INVALID_VALUE) }
}

/// "Timeout in milliseconds to attempt to lock the process, 0 indicates no timeout."
fn lock(pid: c_int, arguments: *mut CUcheckpointLockArgs) -> CUresult {
    let is_right = |a: &CUcheckpointLockArgs| a.reserved0 == 0 && a.reserved1 == [0; 7];
    let timeout_ms = optional(arguments, is_right)?.map_or(0, |arguments| arguments.timeoutMs);
    step(pid, CheckpointStep::Lock { timeout_ms })
}

/// Storage of the caller's is not simulated.
fn checkpoint(pid: c_int, arguments: *mut CUcheckpointCheckpointArgs) -> CUresult {
    let arguments = optional(arguments, |a| a.reserved == [0; 56])?;
    if arguments.is_some_and(|arguments| is_possible(arguments.customStorageInfo_out)) {
        return Err(CUerror::NOT_SUPPORTED);
    }
    step(pid, CheckpointStep::Checkpoint)
}

/// Other GPUs than before are not simulated, nor storage of the caller's.
fn restore(pid: c_int, arguments: *mut CUcheckpointRestoreArgs) -> CUresult {
    let arguments = optional(arguments, |a| a.reserved == [0; 40])?;
    if arguments.is_some_and(|a| a.gpuPairsCount > 0 || is_possible(a.customStorageInfo_out)) {
        return Err(CUerror::NOT_SUPPORTED);
    }
    step(pid, CheckpointStep::Restore)
}

fn unlock(pid: c_int, arguments: *mut CUcheckpointUnlockArgs) -> CUresult {
    optional(arguments, |a| a.reserved == [0; 8])?;
    step(pid, CheckpointStep::Unlock)
}
