//! A call within a hook: [`NestedCall`], with what a thread that left the hook by a jump gives back.

use crate::compute;
use crate::driver::reentrancy::{NestedCall, ThreadState};
use crate::runtime::{in_flight, room, suspend};

/// Proves whose the present call is; `None` if it is the driver's own.
#[cold]
#[inline(never)]
pub(super) fn prove() -> Option<NestedCall> {
    let give_back = |left: &ThreadState| {
        in_flight::give_back(left);
        suspend::give_back(left);
        compute::give_back(left);
        room::give_back();
    };
    NestedCall::prove(give_back, compute::step_aside)
}
