//! The hooked functions that the shim also calls itself, most of them to undo what does not fit. The other functions that it
//! calls, and why these calls are made in relaxed capture mode: `ffi/real/own.rs`.

use vcuda_driver_api::prelude::*;
use vcuda_driver_api::signature;

use super::{Position, TABLE};
use crate::ffi::Relaxed;
use crate::ffi::real::call_through;

/// One function, with what is to live while it is called.
macro_rules! row {
    ({ $before:expr } $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty) => {
        /// The driver's function of this name.
        ///
        /// # Safety
        /// As the driver documents.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's name and prototype")]
        #[expect(clippy::indexing_slicing, reason = "a position is below the table's length, which the compiler sees")]
        pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
            let row = &TABLE[Position::$name as usize];
            let _during = $before;
            call_through!(row.slot(), ($($arg: $ty),*) -> $ret)
        }
    };
}

macro_rules! relaxed {
    ($($name:ident)*) => {
        $(signature!($name, row! { Relaxed::enter() });)*
    };
}

macro_rules! as_it_is {
    ($($name:ident)*) => {
        $(signature!($name, row! { () });)*
    };
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
