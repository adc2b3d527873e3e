//! Streams that wait for the host: for a function to return, or for a value to be set. That wait is not GPU time, and a
//! waiting launch may be what the host has yet to do before it sets the value.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::compute::Launches;
use crate::driver::{Bypass, Call, Handled};
use crate::memory::state;
use crate::runtime::limits;
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_NOTHING;

/// Whether no launch is metered, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    limits::is_idle()
}

fn feed(call: &Call<'_, CUresult>, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    let launches = Launches::get(state::get()).ok_or(Bypass::NoLimit)?;
    Ok(launches.feed(call, stream)?)
}

/// `cuLaunchHostFunc`.
pub(super) fn function(call: &Call<'_, CUresult>, stream: CUstream, _: CUhostFn, _: *mut c_void) -> Handled {
    feed(call, stream)
}

/// `cuLaunchHostFunc_v2`.
pub(super) fn function_v2(
    call: &Call<'_, CUresult>,
    stream: CUstream,
    _: CUhostFn,
    _: *mut c_void,
    _: c_uint,
) -> Handled {
    feed(call, stream)
}

/// `cuStreamAddCallback`.
pub(super) fn callback(
    call: &Call<'_, CUresult>,
    stream: CUstream,
    _: CUstreamCallback,
    _: *mut c_void,
    _: c_uint,
) -> Handled {
    feed(call, stream)
}

/// `cuStreamWaitValue32` and `64`, both versions: `V` is the value.
pub(super) fn wait_value<V>(
    call: &Call<'_, CUresult>,
    stream: CUstream,
    _: CUdeviceptr,
    _: V,
    _: c_uint,
) -> Handled {
    feed(call, stream)
}

/// `cuStreamBatchMemOp`, both versions: one of its operations may be a wait.
pub(super) fn batch(
    call: &Call<'_, CUresult>,
    stream: CUstream,
    _: c_uint,
    _: *mut CUstreamBatchMemOpParams,
    _: c_uint,
) -> Handled {
    feed(call, stream)
}
