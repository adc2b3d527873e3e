//! The hooked functions that the shim also calls itself, most of them to undo what does not fit. The other functions that it
//! calls, and why these calls are made in relaxed capture mode: `driver/real/own.rs`.

use vcuda_driver_api::prelude::*;
use vcuda_driver_api::signature;

use super::{Position, TABLE};
use crate::driver::real::call::{as_it_is, own_call, relaxed};

/// The slot of the function's row.
macro_rules! slot {
    ($name:ident, $ret:ty) => {{
        #[expect(
            clippy::indexing_slicing,
            reason = "a position is below the table's length, which the compiler sees"
        )]
        let row = &TABLE[Position::$name as usize];
        row.slot()
    }};
}

relaxed! {
    cuArray3DCreate_v2
    cuArrayDestroy
    cuCtxCreate_v2
    cuCtxDestroy_v2
    cuCtxFromGreenCtx
    cuCtxSetLimit
    cuDeviceGraphMemTrim
    cuDevicePrimaryCtxRelease_v2
    cuDevicePrimaryCtxRetain
    cuGreenCtxDestroy
    cuIpcCloseMemHandle
    cuLibraryUnload
    cuMemAllocPitch_v2
    cuMemFreeAsync
    cuMemFree_v2
    cuMemGetInfo_v2
    cuMemPoolTrimTo
    cuMemRelease
    cuMemUnmap
    cuMipmappedArrayCreate
    cuMipmappedArrayDestroy
    cuModuleUnload
}

// In place of the application's own call: what the driver would refuse it must be refused.
as_it_is! {
    cuMemAllocFromPoolAsync
}

// NVML is another library, which knows no streams.
as_it_is! {
    nvmlDeviceGetAccountingPids
    nvmlDeviceGetComputeRunningProcesses_v2
    nvmlDeviceGetComputeRunningProcesses_v3
    nvmlDeviceGetGraphicsRunningProcesses
    nvmlDeviceGetGraphicsRunningProcesses_v2
    nvmlDeviceGetGraphicsRunningProcesses_v3
    nvmlDeviceGetMPSComputeRunningProcesses
    nvmlDeviceGetMPSComputeRunningProcesses_v2
    nvmlDeviceGetMPSComputeRunningProcesses_v3
    nvmlDeviceGetMemoryInfo
    nvmlDeviceGetProcessUtilization
    nvmlDeviceGetProcessesUtilizationInfo
    nvmlDeviceGetRunningProcessDetailList
}
