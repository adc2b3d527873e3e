//! Device, context, IPC and checkpoint structures.

use super::super::*;
use super::structs;
use std::ffi::{c_char, c_int, c_uint, c_void};

structs! {
    /// .
    struct CUuuid [16] {
        bytes: [c_char; 16],
    }
    /// .
    struct CUdevprop [56] {
        maxThreadsPerBlock: c_int, maxThreadsDim: [c_int; 3], maxGridSize: [c_int; 3],
        sharedMemPerBlock: c_int, totalConstantMemory: c_int, SIMDWidth: c_int, memPitch: c_int,
        regsPerBlock: c_int, clockRate: c_int, textureAlign: c_int,
    }
    /// .
    struct CUctxCreateParams [24] {
        execAffinityParams: *mut CUexecAffinityParam, numExecAffinityParams: c_int,
        cigParams: *mut CUctxCigParam,
    }
    /// .
    struct CUexecAffinityParam [8] {
        r#type: CUexecAffinityType, smCount: CUexecAffinitySmCount,
    }
    /// .
    struct CUipcEventHandle [64] {
        reserved: [c_char; 64],
    }
    /// .
    struct CUipcMemHandle [64] {
        reserved: [c_char; 64],
    }
    /// .
    struct CUdevResource [144] {
        r#type: CUdevResourceType, _internal_padding: [u8; 92], value: CUdevResource_value,
        nextResource: *mut CUdevResource,
    }
    /// .
    union CUdevResource_value [40] {
        sm: CUdevSmResource, wqConfig: CUdevWorkqueueConfigResource, wq: CUdevWorkqueueResource,
        _oversize: [u8; 40],
    }
    /// .
    struct CUcheckpointLockArgs [64] {
        timeoutMs: c_uint, reserved0: c_uint, reserved1: [u64; 7],
    }
    /// .
    struct CUcheckpointCheckpointArgs [64] {
        customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo, reserved: [c_char; 56],
    }
    /// .
    struct CUcheckpointRestoreArgs [64] {
        gpuPairs: *mut CUcheckpointGpuPair, gpuPairsCount: c_uint, padding0: c_uint,
        customStorageInfo_out: *mut *mut CUcheckpointCustomStorageInfo, reserved: [c_char; 40],
    }
    /// .
    struct CUcheckpointUnlockArgs [64] {
        reserved: [u64; 8],
    }
    /// .
    struct CUctxCigParam [16] {
        sharedDataType: CUcigDataType, sharedData: *mut c_void,
    }
    /// .
    struct CUexecAffinitySmCount [4] {
        val: c_uint,
    }
    /// .
    struct CUdevSmResource [20] {
        smCount: c_uint, minSmPartitionSize: c_uint, smCoscheduledAlignment: c_uint, flags: c_uint,
        localityDomainId: c_uint,
    }
    /// .
    struct CUdevWorkqueueConfigResource [12] {
        device: CUdevice, wqConcurrencyLimit: c_uint, sharingScope: CUdevWorkqueueConfigScope,
    }
    /// .
    struct CUdevWorkqueueResource [40] {
        reserved: [u8; 40],
    }
    /// .
    struct CUcheckpointCustomStorageInfo [24] {
        handle: CUcheckpointOperationHandle, perDeviceData: *mut CUcheckpointCustomStoragePerDeviceData,
        deviceCount: c_uint,
    }
    /// .
    struct CUcheckpointGpuPair [32] {
        oldUuid: CUuuid, newUuid: CUuuid,
    }
    /// .
    struct CUcheckpointCustomStoragePerDeviceData [24] {
        devPtr: CUdeviceptr, size: usize, stream: CUstream,
    }
}
