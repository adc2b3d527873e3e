//! The functions that the shim calls and does not hook. Those that it also hooks are listed in `hooks/own.rs`.
//!
//! A call through either list is made in relaxed capture mode ([`Relaxed`](crate::driver::Relaxed)), so that it breaks no capture. Only what stands
//! under `as_it_is` is not, each with the reason why that is harmless. What is added there needs such a reason too.

#[allow(unused_imports, reason = "all that a prototype may mention")]
use vcuda_driver_api::prelude::*;
use vcuda_driver_api::signature;

use super::call::{as_it_is, own_call, relaxed};
use super::{Answering, Slot};

/// A slot of its own.
macro_rules! slot {
    ($name:ident, $ret:ty) => {{
        static SLOT: Slot = Slot::new(
            $crate::hooks::table::c_name(concat!(stringify!($name), "\0")),
            <$ret as Answering>::LIBRARY,
        );
        &SLOT
    }};
}

relaxed! {
    cuArrayGetMemoryRequirements
    cuCtxDisablePeerAccess
    cuCtxGetDevice
    cuCtxGetLimit
    cuCtxPopCurrent_v2
    cuCtxPushCurrent_v2
    cuCtxSetCurrent
    cuDeviceGetCount
    cuDeviceGetDefaultMemPool
    cuDeviceGetGraphMemAttribute
    cuDeviceGetMemPool
    cuDeviceGetUuid
    cuDeviceGetUuid_v2
    cuDevicePrimaryCtxGetState
    cuEventCreate
    cuEventDestroy_v2
    cuEventElapsedTime
    cuEventQuery
    cuEventRecord
    cuFuncGetName
    cuGraphChildGraphNodeGetGraph
    cuGraphGetNodes
    cuGraphKernelNodeGetParams_v2
    cuGraphMemAllocNodeGetParams
    cuGraphMemcpyNodeGetParams
    cuGraphMemsetNodeGetParams
    cuGraphNodeGetType
    cuKernelGetName
    cuMemGetAddressRange_v2
    cuMemGetAllocationPropertiesFromHandle
    cuMemPoolGetAttribute
    cuMipmappedArrayGetMemoryRequirements
    cuPointerGetAttribute
    cuStreamGetCtx
    cuStreamQuery
}

// Exchanges the mode itself ("callers are encouraged to use this API in a push-pop fashion", at any time).
as_it_is! {
    cuThreadExchangeStreamCaptureMode
}

// The question whether a stream is captured. Of the legacy stream it may be answered with 906, which breaks nothing (CUDA
// Driver API, `cuStreamIsCapturing`).
as_it_is! {
    cuStreamIsCapturing
    cuStreamIsCapturing_ptsz
}

// The calling thread's context. Programs whose captures succeed ask for it within them: PyTorch before each product of
// matrices (`getCurrentCUDABlasHandle`), Triton before each launch (`ensureCudaContext`).
as_it_is! {
    cuCtxGetCurrent
}

// NVML is another library, which knows no streams.
as_it_is! {
    nvmlDeviceGetHandleByUUID
    nvmlDeviceGetUUID
    nvmlInit_v2
}
