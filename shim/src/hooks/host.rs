//! Streams that wait for the host: for a function to return, for a value to be set. The time that they wait is nobody's
//! GPU time, and a held launch may be what the host has yet to do before it sets the value.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::compute::{self, Launches};
use crate::driver::{Bypass, Call, Handled};
use crate::runtime::stream::Stream;

/// What the table must know of these handlers.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_NOTHING;

/// No launch is metered: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    compute::idle()
}

fn feed(call: &Call<'_, CUresult>, stream: Stream) -> Handled {
    let launches = Launches::get().ok_or(Bypass::NoLimit)?;
    Ok(launches.feed(call, stream)?)
}

/// The calls that take a stream first: what else they take goes to the driver as it came.
macro_rules! with_stream {
    ($($(#[$meta:meta])* $name:ident $stream:ident ($($argument:ty),*);)*) => {$(
        $(#[$meta])*
        pub(super) fn $name(call: &Call<'_, CUresult>, stream: CUstream, $(_: $argument),*) -> Handled {
            feed(call, Stream::$stream(stream))
        }
    )*};
}

with_stream! {
    /// `cuLaunchHostFunc`.
    function legacy (CUhostFn, *mut c_void);
    /// `cuLaunchHostFunc_ptsz`.
    function_per_thread per_thread (CUhostFn, *mut c_void);
    /// `cuLaunchHostFunc_v2`.
    function_v2 legacy (CUhostFn, *mut c_void, c_uint);
    /// `cuLaunchHostFunc_v2_ptsz`.
    function_v2_per_thread per_thread (CUhostFn, *mut c_void, c_uint);
    /// `cuStreamAddCallback`.
    callback legacy (CUstreamCallback, *mut c_void, c_uint);
    /// `cuStreamAddCallback_ptsz`.
    callback_per_thread per_thread (CUstreamCallback, *mut c_void, c_uint);
    /// `cuStreamWaitValue32`, both versions.
    wait_value_32 legacy (CUdeviceptr, u32, c_uint);
    /// `cuStreamWaitValue32_ptsz`, both versions.
    wait_value_32_per_thread per_thread (CUdeviceptr, u32, c_uint);
    /// `cuStreamWaitValue64`, both versions.
    wait_value_64 legacy (CUdeviceptr, u64, c_uint);
    /// `cuStreamWaitValue64_ptsz`, both versions.
    wait_value_64_per_thread per_thread (CUdeviceptr, u64, c_uint);
    /// `cuStreamBatchMemOp`, both versions: one of its operations may be a wait.
    batch legacy (c_uint, *mut CUstreamBatchMemOpParams, c_uint);
    /// `cuStreamBatchMemOp_ptsz`, both versions.
    batch_per_thread per_thread (c_uint, *mut CUstreamBatchMemOpParams, c_uint);
}
