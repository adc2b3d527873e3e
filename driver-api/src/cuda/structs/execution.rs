//! Launch and stream structures.

use super::super::*;
use super::structs;
use std::ffi::{c_char, c_int, c_uint, c_void};

structs! {
    /// .
    struct CUstreamCigCaptureParams [8] {
        streamCigParams: *mut CUstreamCigParam,
    }
    /// .
    union CUstreamBatchMemOpParams [48] {
        operation: CUstreamBatchMemOpType, waitValue: CUstreamBatchMemOpParams_waitValue,
        writeValue: CUstreamBatchMemOpParams_writeValue,
        flushRemoteWrites: CUstreamBatchMemOpParams_flushRemoteWrites,
        memoryBarrier: CUstreamBatchMemOpParams_memoryBarrier,
        atomicReduction: CUstreamBatchMemOpParams_atomicReduction, pad: [u64; 6],
    }
    /// .
    struct CUstreamBatchMemOpParams_waitValue [40] {
        operation: CUstreamBatchMemOpType, address: CUdeviceptr, value64: u64, flags: c_uint,
        alias: CUdeviceptr,
    }
    /// .
    struct CUstreamBatchMemOpParams_writeValue [40] {
        operation: CUstreamBatchMemOpType, address: CUdeviceptr, value64: u64, flags: c_uint,
        alias: CUdeviceptr,
    }
    /// .
    struct CUstreamBatchMemOpParams_flushRemoteWrites [8] {
        operation: CUstreamBatchMemOpType, flags: c_uint,
    }
    /// .
    struct CUstreamBatchMemOpParams_memoryBarrier [8] {
        operation: CUstreamBatchMemOpType, flags: c_uint,
    }
    /// .
    struct CUstreamBatchMemOpParams_atomicReduction [40] {
        operation: CUstreamBatchMemOpType, flags: c_uint, reductionOp: CUstreamAtomicReductionOpType,
        dataType: CUstreamAtomicReductionDataType, address: CUdeviceptr, value: u64, alias: CUdeviceptr,
    }
    /// .
    struct CUlaunchConfig [56] {
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint,
        blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, attrs: *mut CUlaunchAttribute,
        numAttrs: c_uint,
    }
    /// .
    struct CUDA_LAUNCH_PARAMS [56] {
        function: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
        blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream,
        kernelParams: *mut *mut c_void,
    }
    /// .
    struct CUstreamCigParam [16] {
        streamSharedDataType: CUstreamCigDataType, streamSharedData: *mut c_void,
    }
    /// .
    union CUlaunchAttributeValue [64] {
        pad: [c_char; 64], accessPolicyWindow: CUaccessPolicyWindow, cooperative: c_int,
        syncPolicy: CUsynchronizationPolicy, clusterDim: CUlaunchAttributeValue_clusterDim,
        clusterSchedulingPolicyPreference: CUclusterSchedulingPolicy,
        programmaticStreamSerializationAllowed: c_int,
        programmaticEvent: CUlaunchAttributeValue_programmaticEvent,
        launchCompletionEvent: CUlaunchAttributeValue_launchCompletionEvent, priority: c_int,
        memSyncDomainMap: CUlaunchMemSyncDomainMap, memSyncDomain: CUlaunchMemSyncDomain,
        preferredClusterDim: CUlaunchAttributeValue_preferredClusterDim,
        deviceUpdatableKernelNode: CUlaunchAttributeValue_deviceUpdatableKernelNode,
        sharedMemCarveout: c_uint, nvlinkUtilCentricScheduling: c_uint,
        portableClusterSizeMode: CUlaunchAttributePortableClusterMode,
        sharedMemoryMode: CUsharedMemoryMode,
    }
    /// .
    struct CUlaunchAttributeValue_clusterDim [12] {
        x: c_uint, y: c_uint, z: c_uint,
    }
    /// .
    struct CUlaunchAttributeValue_programmaticEvent [16] {
        event: CUevent, flags: c_int, triggerAtBlockStart: c_int,
    }
    /// .
    struct CUlaunchAttributeValue_launchCompletionEvent [16] {
        event: CUevent, flags: c_int,
    }
    /// .
    struct CUlaunchAttributeValue_preferredClusterDim [12] {
        x: c_uint, y: c_uint, z: c_uint,
    }
    /// .
    struct CUlaunchAttributeValue_deviceUpdatableKernelNode [16] {
        deviceUpdatable: c_int, devNode: CUgraphDeviceNode,
    }
    /// .
    struct CUlaunchAttribute [72] {
        id: CUlaunchAttributeID, pad: [c_char; 4], value: CUlaunchAttributeValue,
    }
    /// .
    struct CUaccessPolicyWindow [32] {
        base_ptr: *mut c_void, num_bytes: usize, hitRatio: f32, hitProp: CUaccessProperty,
        missProp: CUaccessProperty,
    }
    /// .
    struct CUlaunchMemSyncDomainMap [2] {
        default_: u8, remote: u8,
    }
}
