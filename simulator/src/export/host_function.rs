//! Host functions and callbacks in streams.

use vcuda_driver_api::prelude::*;

use crate::object::graph::node::Operation;
use crate::object::host_function::HostFunction;
use crate::semantics::capture;
use crate::semantics::host_thread::{Callback, call, call_back};
use crate::semantics::stream::{Null, resolve};

export! {
    cuLaunchHostFunc => launch_host_function::<false>;
    cuLaunchHostFunc_ptsz => launch_host_function::<true>;
    cuLaunchHostFunc_v2 => launch_host_function_v2::<false>;
    cuLaunchHostFunc_v2_ptsz => launch_host_function_v2::<true>;
    cuStreamAddCallback => add_callback::<false>;
    cuStreamAddCallback_ptsz => add_callback::<true>;
}

fn launch_host_function<const PER_THREAD: bool>(
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    let function = HostFunction { function: function.ok_or(CUerror::INVALID_VALUE)?, data };
    match capture::intercept(&stream)? {
        Some(recording) => recording.add(Operation::Host(function)).map(drop),
        None => call(&stream, function),
    }
}

/// Launches a host function; the synchronisation mode (CUDA 13.1) is ignored, as the driver's thread waits in one way.
fn launch_host_function_v2<const PER_THREAD: bool>(
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
    _mode: c_uint,
) -> CUresult {
    launch_host_function::<PER_THREAD>(stream, function, data)
}

/// Adds a callback, which is "not supported with cuStreamBeginCapture".
fn add_callback<const PER_THREAD: bool>(
    handle: CUstream,
    callback: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(handle, Null::of(PER_THREAD))?;
    capture::reject_if_capturing(&stream)?;
    let function = callback.ok_or(CUerror::INVALID_VALUE)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let callback = Callback { stream: handle, function, data };
    call_back(&stream, callback)
}
