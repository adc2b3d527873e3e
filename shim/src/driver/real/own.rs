//! The shim's own calls of the driver, as functions of the driver's names and prototypes.
//!
//! They are made in relaxed capture mode ([`Relaxed`](crate::driver::Relaxed)), so that they break no capture. Only
//! calls under `as_it_is` are not. Each list there says why that is harmless, and a new one must too.
//!
//! Some of these functions are hooked as well. The shim's own calls do not pass the hook.

#[allow(unused_imports, reason = "all that a prototype may mention")]
use vcuda_driver_api::prelude::*;
use vcuda_driver_api::signature;

use super::{DriverStatus, Slot, c_name, call_through};

/// A function of the driver, with a guard that lives during the call.
macro_rules! own_call {
    ({ $before:expr } $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty) => {
        /// The driver's function of this name.
        ///
        /// # Safety
        /// As the driver documents.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's name and prototype")]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
            static SLOT: Slot = Slot::new(c_name(concat!(stringify!($name), "\0")), <$ret as DriverStatus>::LIBRARY);
            let _during = $before;
            call_through!(SLOT, ($($arg: $ty),*) -> $ret)
        }
    };
}

/// Functions that are called in relaxed capture mode, so that they break no capture.
macro_rules! relaxed {
    ($($name:ident)*) => {
        $(signature!($name, own_call! { $crate::driver::Relaxed::enter() });)*
    };
}

/// Functions that are called in the thread's own mode. Each list says why that is harmless.
macro_rules! as_it_is {
    ($($name:ident)*) => {
        $(signature!($name, own_call! { () });)*
    };
}

relaxed! {
    cuArray3DCreate_v2
    cuArrayDestroy
    cuArrayGetMemoryRequirements
    cuCtxCreate_v2
    cuCtxDestroy_v2
    cuCtxDisablePeerAccess
    cuCtxFromGreenCtx
    cuCtxGetDevice
    cuCtxGetLimit
    cuCtxPopCurrent_v2
    cuCtxPushCurrent_v2
    cuCtxSetCurrent
    cuCtxSetLimit
    cuDeviceGetCount
    cuDeviceGetDefaultMemPool
    cuDeviceGetGraphMemAttribute
    cuDeviceGetMemPool
    cuDeviceGetUuid
    cuDeviceGetUuid_v2
    cuDeviceGraphMemTrim
    cuDevicePrimaryCtxGetState
    cuDevicePrimaryCtxRelease_v2
    cuDevicePrimaryCtxRetain
    cuDeviceTotalMem_v2
    cuEventCreate
    cuEventDestroy_v2
    cuEventElapsedTime
    cuEventQuery
    cuEventRecord
    cuGraphChildGraphNodeGetGraph
    cuGraphGetNodes
    cuGraphKernelNodeGetParams_v2
    cuGraphMemAllocNodeGetParams
    cuGraphMemcpyNodeGetParams
    cuGraphMemsetNodeGetParams
    cuGraphNodeGetType
    cuGreenCtxDestroy
    cuIpcCloseMemHandle
    cuLibraryUnload
    cuMemAllocPitch_v2
    cuMemFreeAsync
    cuMemFree_v2
    cuMemGetAddressRange_v2
    cuMemGetAllocationPropertiesFromHandle
    cuMemGetInfo_v2
    cuMemPoolGetAttribute
    cuMemPoolTrimTo
    cuMemRelease
    cuMemUnmap
    cuMipmappedArrayCreate
    cuMipmappedArrayDestroy
    cuMipmappedArrayGetMemoryRequirements
    cuModuleUnload
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

// Made in place of the application's own call: what the driver would refuse it must be refused.
as_it_is! {
    cuMemAllocFromPoolAsync
}

// Asks whether a capture forbids the application's own call, which is the same: what the driver would refuse it must be refused.
as_it_is! {
    cuMemAlloc_v2
}

// NVML is another library, which knows no streams.
as_it_is! {
    nvmlDeviceGetAccountingPids
    nvmlDeviceGetComputeRunningProcesses_v2
    nvmlDeviceGetComputeRunningProcesses_v3
    nvmlDeviceGetGraphicsRunningProcesses
    nvmlDeviceGetGraphicsRunningProcesses_v2
    nvmlDeviceGetGraphicsRunningProcesses_v3
    nvmlDeviceGetHandleByUUID
    nvmlDeviceGetMPSComputeRunningProcesses
    nvmlDeviceGetMPSComputeRunningProcesses_v2
    nvmlDeviceGetMPSComputeRunningProcesses_v3
    nvmlDeviceGetMemoryInfo
    nvmlDeviceGetMemoryInfo_v2
    nvmlDeviceGetMemoryLimits_v1
    nvmlDeviceGetProcessUtilization
    nvmlDeviceGetProcessesUtilizationInfo
    nvmlDeviceGetRunningProcessDetailList
    nvmlDeviceGetUUID
    nvmlInit_v2
}
