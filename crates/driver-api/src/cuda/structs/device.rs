//! Device, context, IPC and checkpoint structures.

use super::super::*;
use std::ffi::{c_char, c_int, c_uint, c_void};

structs! {
    /// A device's identity.
    struct CUuuid [16] {
        bytes: [c_char; 16],
    }
    /// Properties of a device, as `cuDeviceGetProperties` gives them (deprecated there).
    struct CUdevprop [56] {
        maxThreadsPerBlock: c_int, maxThreadsDim: [c_int; 3], maxGridSize: [c_int; 3],
        sharedMemPerBlock: c_int, totalConstantMemory: c_int, SIMDWidth: c_int, memPitch: c_int,
        regsPerBlock: c_int, clockRate: c_int, textureAlign: c_int,
    }
    /// Parameters of `cuCtxCreate_v4`.
    struct CUctxCreateParams [24] {
        execAffinityParams: *mut CUexecAffinityParam, numExecAffinityParams: c_int,
        cigParams: *mut CUctxCigParam,
    }
    /// Execution affinity of a context; its union has the one member `smCount`.
    struct CUexecAffinityParam [8] {
        r#type: CUexecAffinityType, smCount: CUexecAffinitySmCount,
    }
    /// A handle by which other processes open an event.
    struct CUipcEventHandle [64] {
        reserved: [c_char; 64],
    }
    /// A handle by which other processes open an allocation.
    struct CUipcMemHandle [64] {
        reserved: [c_char; 64],
    }
    /// A device resource; `type` selects the member of `value`.
    struct CUdevResource [144] {
        r#type: CUdevResourceType, _internal_padding: [u8; 92], value: CUdevResource_value,
        nextResource: *mut CUdevResource,
    }
    /// A device resource, by its type.
    union CUdevResource_value [40] {
        sm: CUdevSmResource, wqConfig: CUdevWorkqueueConfigResource, wq: CUdevWorkqueueResource,
        _oversize: [u8; 40],
    }
    /// Arguments of `cuCheckpointProcessLock`.
    struct CUcheckpointLockArgs [64] {
        timeoutMs: c_uint, reserved0: c_uint, reserved1: [u64; 7],
    }
    /// Arguments of `cuCheckpointProcessCheckpoint`.
    struct CUcheckpointCheckpointArgs [64] {
        customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo, reserved: [c_char; 56],
    }
    /// Arguments of `cuCheckpointProcessRestore`.
    struct CUcheckpointRestoreArgs [64] {
        gpuPairs: *mut CUcheckpointGpuPair, gpuPairsCount: c_uint, padding0: c_uint,
        customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo, reserved: [c_char; 40],
    }
    /// Arguments of `cuCheckpointProcessUnlock`.
    struct CUcheckpointUnlockArgs [64] {
        reserved: [u64; 8],
    }
    /// Graphics data shared with a context.
    struct CUctxCigParam [16] {
        sharedDataType: CUcigDataType, sharedData: *mut c_void,
    }
    /// Multiprocessors of a context.
    struct CUexecAffinitySmCount [4] {
        val: c_uint,
    }
    /// Multiprocessors as a resource.
    struct CUdevSmResource [20] {
        smCount: c_uint, minSmPartitionSize: c_uint, smCoscheduledAlignment: c_uint, flags: c_uint,
        localityDomainId: c_uint,
    }
    /// Parameters of a group of `cuDevSmResourceSplit`.
    struct CU_DEV_SM_RESOURCE_GROUP_PARAMS [64] {
        smCount: c_uint, coscheduledSmCount: c_uint, preferredCoscheduledSmCount: c_uint, flags: c_uint,
        localityDomainId: c_uint, reserved: [c_uint; 11],
    }
    /// Configuration of work queues.
    struct CUdevWorkqueueConfigResource [12] {
        device: CUdevice, wqConcurrencyLimit: c_uint, sharingScope: CUdevWorkqueueConfigScope,
    }
    /// Work queues as a resource.
    struct CUdevWorkqueueResource [40] {
        reserved: [u8; 40],
    }
    /// Storage of a checkpoint.
    struct CUcheckpointCustomStorageInfo [24] {
        handle: CUcheckpointOperationHandle, perDeviceData: *mut CUcheckpointCustomStoragePerDeviceData,
        deviceCount: c_uint,
    }
    /// A GPU at the checkpoint and the GPU that takes its place.
    struct CUcheckpointGpuPair [32] {
        oldUuid: CUuuid, newUuid: CUuuid,
    }
    /// Storage of a checkpoint on one device; `size` in bytes.
    struct CUcheckpointCustomStoragePerDeviceData [24] {
        devPtr: CUdeviceptr, size: usize, stream: CUstream,
    }
}
