//! Launch and stream structures.

use super::super::*;
use std::ffi::{c_char, c_int, c_uint, c_void};

structs! {
    /// Graphics data of a captured stream.
    struct CUstreamCigCaptureParams [8] {
        streamCigParams: *mut CUstreamCigParam,
    }
    /// An entry of `cuStreamBatchMemOp`; `operation` selects the member.
    union CUstreamBatchMemOpParams [48] {
        operation: CUstreamBatchMemOpType, waitValue: CUstreamBatchMemOpParams_waitValue,
        writeValue: CUstreamBatchMemOpParams_writeValue,
        flushRemoteWrites: CUstreamBatchMemOpParams_flushRemoteWrites,
        memoryBarrier: CUstreamBatchMemOpParams_memoryBarrier,
        atomicReduction: CUstreamBatchMemOpParams_atomicReduction, pad: [u64; 6],
    }
    /// A wait; `value64` holds the 32-bit value in its low half.
    struct CUstreamBatchMemOpParams_waitValue [40] {
        operation: CUstreamBatchMemOpType, address: CUdeviceptr, value64: u64, flags: c_uint,
        alias: CUdeviceptr,
    }
    /// A write; `value64` holds the 32-bit value in its low half.
    struct CUstreamBatchMemOpParams_writeValue [40] {
        operation: CUstreamBatchMemOpType, address: CUdeviceptr, value64: u64, flags: c_uint,
        alias: CUdeviceptr,
    }
    /// A flush of remote writes.
    struct CUstreamBatchMemOpParams_flushRemoteWrites [8] {
        operation: CUstreamBatchMemOpType, flags: c_uint,
    }
    /// A memory barrier.
    struct CUstreamBatchMemOpParams_memoryBarrier [8] {
        operation: CUstreamBatchMemOpType, flags: c_uint,
    }
    /// An atomic reduction.
    struct CUstreamBatchMemOpParams_atomicReduction [40] {
        operation: CUstreamBatchMemOpType, flags: c_uint, reductionOp: CUstreamAtomicReductionOpType,
        dataType: CUstreamAtomicReductionDataType, address: CUdeviceptr, value: u64, alias: CUdeviceptr,
    }
    /// Shape, stream and attributes of `cuLaunchKernelEx`.
    struct CUlaunchConfig [56] {
        gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint, blockDimY: c_uint,
        blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream, attrs: *mut CUlaunchAttribute,
        numAttrs: c_uint,
    }
    /// A launch of `cuLaunchCooperativeKernelMultiDevice`.
    struct CUDA_LAUNCH_PARAMS [56] {
        function: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
        blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, hStream: CUstream,
        kernelParams: *mut *mut c_void,
    }
    /// Graphics data shared with a stream.
    struct CUstreamCigParam [16] {
        streamSharedDataType: CUstreamCigDataType, streamSharedData: *mut c_void,
    }
    /// Value of a launch attribute, by its id.
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
    /// Cluster size, in blocks.
    struct CUlaunchAttributeValue_clusterDim [12] {
        x: c_uint, y: c_uint, z: c_uint,
    }
    /// Event recorded when all blocks have triggered.
    struct CUlaunchAttributeValue_programmaticEvent [16] {
        event: CUevent, flags: c_int, triggerAtBlockStart: c_int,
    }
    /// Event recorded when all blocks have begun.
    struct CUlaunchAttributeValue_launchCompletionEvent [16] {
        event: CUevent, flags: c_int,
    }
    /// Cluster size that is preferred, in blocks.
    struct CUlaunchAttributeValue_preferredClusterDim [12] {
        x: c_uint, y: c_uint, z: c_uint,
    }
    /// Makes a kernel node updatable by device code; `devNode` is an output.
    struct CUlaunchAttributeValue_deviceUpdatableKernelNode [16] {
        deviceUpdatable: c_int, devNode: CUgraphDeviceNode,
    }
    /// A launch attribute; `id` selects the member of `value`.
    struct CUlaunchAttribute [72] {
        id: CUlaunchAttributeID, pad: [c_char; 4], value: CUlaunchAttributeValue,
    }
    /// A range of memory and its L2 residency; `num_bytes` in bytes.
    struct CUaccessPolicyWindow [32] {
        base_ptr: *mut c_void, num_bytes: usize, hitRatio: f32, hitProp: CUaccessProperty,
        missProp: CUaccessProperty,
    }
    /// Mapping of logical memory synchronisation domains.
    struct CUlaunchMemSyncDomainMap [2] {
        default_: u8, remote: u8,
    }
}
