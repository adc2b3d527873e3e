//! Offsets of every named structure's fields, as a C compiler gives them for CUDA 13.5's header (x86-64).

use std::mem::offset_of;
use vcuda_driver_api::cuda::*;

macro_rules! offsets {
    ($($name:ident { $($field:ident $offset:literal),* $(,)? })*) => {$(
        $(assert_eq!(offset_of!($name, $field), $offset, concat!(stringify!($name), ".", stringify!($field)));)*
    )*};
}

#[test]
fn fields_lie_where_c_puts_them() {
    offsets! {
        CUuuid {
            bytes 0,
        }
        CUdevprop {
            maxThreadsPerBlock 0, maxThreadsDim 4, maxGridSize 16, sharedMemPerBlock 28,
            totalConstantMemory 32, SIMDWidth 36, memPitch 40, regsPerBlock 44, clockRate 48,
            textureAlign 52,
        }
        CUctxCreateParams {
            execAffinityParams 0, numExecAffinityParams 8, cigParams 16,
        }
        CUexecAffinityParam {
            r#type 0, smCount 4,
        }
        CUipcEventHandle {
            reserved 0,
        }
        CUipcMemHandle {
            reserved 0,
        }
        CUDA_MEMCPY2D {
            srcXInBytes 0, srcY 8, srcMemoryType 16, srcHost 24, srcDevice 32, srcArray 40, srcPitch 48,
            dstXInBytes 56, dstY 64, dstMemoryType 72, dstHost 80, dstDevice 88, dstArray 96,
            dstPitch 104, WidthInBytes 112, Height 120,
        }
        CUDA_MEMCPY3D {
            srcXInBytes 0, srcY 8, srcZ 16, srcLOD 24, srcMemoryType 32, srcHost 40, srcDevice 48,
            srcArray 56, reserved0 64, srcPitch 72, srcHeight 80, dstXInBytes 88, dstY 96, dstZ 104,
            dstLOD 112, dstMemoryType 120, dstHost 128, dstDevice 136, dstArray 144, reserved1 152,
            dstPitch 160, dstHeight 168, WidthInBytes 176, Height 184, Depth 192,
        }
        CUDA_MEMCPY3D_PEER {
            srcXInBytes 0, srcY 8, srcZ 16, srcLOD 24, srcMemoryType 32, srcHost 40, srcDevice 48,
            srcArray 56, srcContext 64, srcPitch 72, srcHeight 80, dstXInBytes 88, dstY 96, dstZ 104,
            dstLOD 112, dstMemoryType 120, dstHost 128, dstDevice 136, dstArray 144, dstContext 152,
            dstPitch 160, dstHeight 168, WidthInBytes 176, Height 184, Depth 192,
        }
        CUmemcpyAttributes {
            srcAccessOrder 0, srcLocHint 4, dstLocHint 12, flags 20,
        }
        CUDA_MEMCPY3D_BATCH_OP {
            src 0, dst 40, extent 80, srcAccessOrder 104, flags 108,
        }
        CUDA_ARRAY_DESCRIPTOR {
            Width 0, Height 8, Format 16, NumChannels 20,
        }
        CUDA_ARRAY_SPARSE_PROPERTIES {
            tileExtent 0, miptailFirstLevel 12, miptailSize 16, flags 24, reserved 28,
        }
        CUDA_ARRAY_MEMORY_REQUIREMENTS {
            size 0, alignment 8, reserved 16,
        }
        CUDA_ARRAY3D_DESCRIPTOR {
            Width 0, Height 8, Depth 16, Format 24, NumChannels 28, Flags 32,
        }
        CUmemDecompressParams {
            srcNumBytes 0, dstNumBytes 8, dstActBytes 16, src 24, dst 32, algo 40, padding 44,
        }
        CUmemAllocationProp {
            r#type 0, requestedHandleTypes 4, location 8, win32HandleMetaData 16, allocFlags 24,
        }
        CUarrayMapInfo {
            resourceType 0, resource 8, subresourceType 16, subresource 24, memOperationType 56,
            memHandleType 60, memHandle 64, offset 72, deviceBitMask 80, flags 84, reserved 88,
        }
        CUmemAccessDesc {
            location 0, flags 8,
        }
        CUmemLocation {
            r#type 0,
        }
        CUmemPoolProps {
            allocType 0, handleTypes 4, location 8, win32SecurityAttributes 16, maxSize 24, usage 32,
            gpuDirectRDMACapable 34, reserved 35,
        }
        CUmemPoolPtrExportData {
            reserved 0,
        }
        CUmulticastObjectProp {
            numDevices 0, size 8, handleTypes 16, flags 24,
        }
        CUDA_FABRIC_COPY_BATCH_OP {
            src 0, dst 24, size 48, flags 56,
        }
        CUstreamCigCaptureParams {
            streamCigParams 0,
        }
        CUgraphEdgeData {
            from_port 0, to_port 1, r#type 2, reserved 3,
        }
        CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            r#type 0, handle 8, size 24, flags 32, reserved 36,
        }
        CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
            offset 0, size 8, flags 16, reserved 20,
        }
        CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC {
            offset 0, arrayDesc 8, numLevels 48, reserved 52,
        }
        CUlaunchConfig {
            gridDimX 0, gridDimY 4, gridDimZ 8, blockDimX 12, blockDimY 16, blockDimZ 20,
            sharedMemBytes 24, hStream 32, attrs 40, numAttrs 48,
        }
        CUDA_LAUNCH_PARAMS {
            function 0, gridDimX 8, gridDimY 12, gridDimZ 16, blockDimX 20, blockDimY 24, blockDimZ 28,
            sharedMemBytes 32, hStream 40, kernelParams 48,
        }
        CUDA_KERNEL_NODE_PARAMS {
            func 0, gridDimX 8, gridDimY 12, gridDimZ 16, blockDimX 20, blockDimY 24, blockDimZ 28,
            sharedMemBytes 32, kernelParams 40, extra 48, kern 56, ctx 64,
        }
        CUDA_MEMSET_NODE_PARAMS {
            dst 0, pitch 8, value 16, elementSize 20, width 24, height 32,
        }
        CUDA_HOST_NODE_PARAMS {
            r#fn 0, userData 8,
        }
        CUDA_MEM_ALLOC_NODE_PARAMS {
            poolProps 0, accessDescs 88, accessDescCount 96, bytesize 104, dptr 112,
        }
        CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags 0, hUploadStream 8, hErrNode_out 16, result_out 24,
        }
        CUgraphExecUpdateResultInfo {
            result 0, errorNode 8, errorFromNode 16,
        }
        CUgraphNodeParams {
            r#type 0, reserved0 4, reserved2 248,
        }
        CUdevResource {
            r#type 0, _internal_padding 4, nextResource 136,
        }
        CUDA_MEMCPY2D_v1 {
            srcXInBytes 0, srcY 4, srcMemoryType 8, srcHost 16, srcDevice 24, srcArray 32, srcPitch 40,
            dstXInBytes 44, dstY 48, dstMemoryType 52, dstHost 56, dstDevice 64, dstArray 72,
            dstPitch 80, WidthInBytes 84, Height 88,
        }
        CUDA_MEMCPY3D_v1 {
            srcXInBytes 0, srcY 4, srcZ 8, srcLOD 12, srcMemoryType 16, srcHost 24, srcDevice 32,
            srcArray 40, reserved0 48, srcPitch 56, srcHeight 60, dstXInBytes 64, dstY 68, dstZ 72,
            dstLOD 76, dstMemoryType 80, dstHost 88, dstDevice 96, dstArray 104, reserved1 112,
            dstPitch 120, dstHeight 124, WidthInBytes 128, Height 132, Depth 136,
        }
        CUDA_ARRAY_DESCRIPTOR_v1 {
            Width 0, Height 4, Format 8, NumChannels 12,
        }
        CUDA_ARRAY3D_DESCRIPTOR_v1 {
            Width 0, Height 4, Depth 8, Format 12, NumChannels 16, Flags 20,
        }
        CUDA_KERNEL_NODE_PARAMS_v1 {
            func 0, gridDimX 8, gridDimY 12, gridDimZ 16, blockDimX 20, blockDimY 24, blockDimZ 28,
            sharedMemBytes 32, kernelParams 40, extra 48,
        }
        CUcheckpointLockArgs {
            timeoutMs 0, reserved0 4, reserved1 8,
        }
        CUcheckpointCheckpointArgs {
            customStorageInfo_out 0, reserved 8,
        }
        CUcheckpointRestoreArgs {
            gpuPairs 0, gpuPairsCount 8, padding0 12, customStorageInfo_out 16, reserved 24,
        }
        CUcheckpointUnlockArgs {
            reserved 0,
        }
        CUctxCigParam {
            sharedDataType 0, sharedData 8,
        }
        CUexecAffinitySmCount {
            val 0,
        }
        CUmemcpy3DOperand {
            r#type 0, op 8,
        }
        CUextent3D {
            width 0, height 8, depth 16,
        }
        CUfabricCpyOperand {
            r#type 0, op 8,
        }
        CUstreamCigParam {
            streamSharedDataType 0, streamSharedData 8,
        }
        CUlaunchAttribute {
            id 0, pad 4, value 8,
        }
        CUDA_MEMCPY_NODE_PARAMS {
            flags 0, reserved 4, copyCtx 8, copyParams 16,
        }
        CUDA_MEMSET_NODE_PARAMS_v2 {
            dst 0, pitch 8, value 16, elementSize 20, width 24, height 32, ctx 40,
        }
        CUDA_HOST_NODE_PARAMS_v2 {
            r#fn 0, userData 8, syncMode 16,
        }
        CUDA_CHILD_GRAPH_NODE_PARAMS {
            graph 0, ownership 8,
        }
        CUDA_EVENT_WAIT_NODE_PARAMS {
            event 0,
        }
        CUDA_EVENT_RECORD_NODE_PARAMS {
            event 0,
        }
        CUDA_MEM_FREE_NODE_PARAMS {
            dptr 0,
        }
        CUDA_CONDITIONAL_NODE_PARAMS {
            handle 0, r#type 8, size 12, phGraph_out 16, ctx 24,
        }
        CUDA_MEMCPY_BATCH_NODE_PARAMS {
            count 0, dsts 8, srcs 16, sizes 24, attrs 32, attrsIdxs 40, numAttrs 48,
        }
        CUDA_FABRIC_CPY_BATCH_NODE_PARAMS {
            numOps 0, opList 8, flags 16,
        }
        CUdevSmResource {
            smCount 0, minSmPartitionSize 4, smCoscheduledAlignment 8, flags 12, localityDomainId 16,
        }
        CU_DEV_SM_RESOURCE_GROUP_PARAMS {
            smCount 0, coscheduledSmCount 4, preferredCoscheduledSmCount 8, flags 12, localityDomainId 16,
            reserved 20,
        }
        CUdevWorkqueueConfigResource {
            device 0, wqConcurrencyLimit 4, sharingScope 8,
        }
        CUdevWorkqueueResource {
            reserved 0,
        }
        CUcheckpointCustomStorageInfo {
            handle 0, perDeviceData 8, deviceCount 16,
        }
        CUcheckpointGpuPair {
            oldUuid 0, newUuid 16,
        }
        CUoffset3D {
            x 0, y 8, z 16,
        }
        CUaccessPolicyWindow {
            base_ptr 0, num_bytes 8, hitRatio 16, hitProp 20, missProp 24,
        }
        CUlaunchMemSyncDomainMap {
            remote 1,
        }
        CUcheckpointCustomStoragePerDeviceData {
            devPtr 0, size 8, stream 16,
        }
    }
}
