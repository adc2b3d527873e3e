//! Host functions and callbacks in streams.

use crate::export::prelude::*;
use crate::object::graph::node::Operation;
use crate::object::host_function::HostFunction;
use crate::semantics::capture;
use crate::semantics::host_thread::{Callback, call, call_back};

export! {
    cuLaunchHostFunc / cuLaunchHostFunc_ptsz => launch_host_function;
    // Launches a host function; the synchronisation mode (CUDA 13.1) is ignored, as the driver's thread waits in one way.
    cuLaunchHostFunc_v2 / cuLaunchHostFunc_v2_ptsz => |null, stream, function, data, _mode|
        launch_host_function(null, stream, function, data);
    cuStreamAddCallback / cuStreamAddCallback_ptsz => add_callback;
}

fn launch_host_function(null: Null, stream: CUstream, function: CUhostFn, data: *mut c_void) -> CUresult {
    let stream = resolve(stream, null)?;
    let function = HostFunction { function: function.ok_or(CUerror::INVALID_VALUE)?, data };
    match capture::intercept(&stream)? {
        Some(recording) => recording.add(Operation::Host(function)).map(drop),
        None => call(&stream, function),
    }
}

/// Adds a callback, which is "not supported with cuStreamBeginCapture".
fn add_callback(
    null: Null,
    handle: CUstream,
    callback: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(handle, null)?;
    capture::reject_if_capturing(&stream)?;
    let function = callback.ok_or(CUerror::INVALID_VALUE)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let callback = Callback { stream: handle, function, data };
    call_back(&stream, callback)
}
