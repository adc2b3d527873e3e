//! Checkpoints of processes (CUDA Driver API, "Checkpointing"): the driver's own, except while the manager has moved the GPU state
//! of the tenant away. Then its processes may not move it: the manager has given the room to others.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::driver::{Call, Handled};
use crate::memory::state;
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs. They pass no gate: no state of the caller's is used.
pub(super) const HANDLERS: Handlers = Handlers::TELLING;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuCheckpointProcessLock`.
pub(super) fn lock(call: &Call<'_, CUresult>, pid: c_int, _: *mut CUcheckpointLockArgs) -> Handled {
    change(call, pid)
}

/// `cuCheckpointProcessCheckpoint`.
pub(super) fn checkpoint(
    call: &Call<'_, CUresult>,
    pid: c_int,
    _: *mut CUcheckpointCheckpointArgs,
) -> Handled {
    change(call, pid)
}

/// `cuCheckpointProcessRestore`.
pub(super) fn restore(call: &Call<'_, CUresult>, pid: c_int, _: *mut CUcheckpointRestoreArgs) -> Handled {
    change(call, pid)
}

/// `cuCheckpointProcessUnlock`.
pub(super) fn unlock(call: &Call<'_, CUresult>, pid: c_int, _: *mut CUcheckpointUnlockArgs) -> Handled {
    change(call, pid)
}

fn change(call: &Call<'_, CUresult>, pid: c_int) -> Handled {
    if is_held_by_manager(state::managed()?, pid) {
        return Err(CUerror::NOT_PERMITTED.into());
    }
    call.real()?;
    Ok(())
}

/// Whether the manager has moved, or moves, the state of this process, one of the tenant's.
fn is_held_by_manager(shim: &Shim, pid: c_int) -> bool {
    let Some(region) = shim.region() else {
        return false;
    };
    region.limits.is_suspendable()
        && !region.usage.suspend_state().lets_calls_pass()
        && region.usage.processes().any(|(_, process)| i64::from(process.pid) == i64::from(pid))
}
