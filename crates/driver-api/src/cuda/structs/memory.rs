//! Memory, pool, mapping, array and copy structures.

use super::super::*;
use std::ffi::{c_int, c_uint, c_void};

structs! {
    /// A 2D copy; the memory types select one of the three sources and one of the three targets.
    struct CUDA_MEMCPY2D [128] {
        srcXInBytes: usize, srcY: usize, srcMemoryType: CUmemorytype, srcHost: *const c_void,
        srcDevice: CUdeviceptr, srcArray: CUarray, srcPitch: usize, dstXInBytes: usize, dstY: usize,
        dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: CUdeviceptr, dstArray: CUarray,
        dstPitch: usize, WidthInBytes: usize, Height: usize,
    }
    /// A 3D copy; the memory types select one of the three sources and one of the three targets.
    struct CUDA_MEMCPY3D [200] {
        srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize, srcMemoryType: CUmemorytype,
        srcHost: *const c_void, srcDevice: CUdeviceptr, srcArray: CUarray, reserved0: *mut c_void,
        srcPitch: usize, srcHeight: usize, dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize,
        dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: CUdeviceptr, dstArray: CUarray,
        reserved1: *mut c_void, dstPitch: usize, dstHeight: usize, WidthInBytes: usize, Height: usize,
        Depth: usize,
    }
    /// A 3D copy between contexts.
    struct CUDA_MEMCPY3D_PEER [200] {
        srcXInBytes: usize, srcY: usize, srcZ: usize, srcLOD: usize, srcMemoryType: CUmemorytype,
        srcHost: *const c_void, srcDevice: CUdeviceptr, srcArray: CUarray, srcContext: CUcontext,
        srcPitch: usize, srcHeight: usize, dstXInBytes: usize, dstY: usize, dstZ: usize, dstLOD: usize,
        dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: CUdeviceptr, dstArray: CUarray,
        dstContext: CUcontext, dstPitch: usize, dstHeight: usize, WidthInBytes: usize, Height: usize,
        Depth: usize,
    }
    /// Attributes of batched copies.
    struct CUmemcpyAttributes [24] {
        srcAccessOrder: CUmemcpySrcAccessOrder, srcLocHint: CUmemLocation, dstLocHint: CUmemLocation,
        flags: c_uint,
    }
    /// A copy of a 3D batch.
    struct CUDA_MEMCPY3D_BATCH_OP [112] {
        src: CUmemcpy3DOperand, dst: CUmemcpy3DOperand, extent: CUextent3D,
        srcAccessOrder: CUmemcpySrcAccessOrder, flags: c_uint,
    }
    /// Shape of a 1D or 2D array, in elements.
    struct CUDA_ARRAY_DESCRIPTOR [24] {
        Width: usize, Height: usize, Format: CUarray_format, NumChannels: c_uint,
    }
    /// Layout of a sparse array: tile in elements, tail in bytes.
    struct CUDA_ARRAY_SPARSE_PROPERTIES [48] {
        tileExtent: CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent, miptailFirstLevel: c_uint, miptailSize: u64,
        flags: c_uint, reserved: [c_uint; 4],
    }
    /// A tile of a sparse array, in elements.
    struct CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent [12] {
        width: c_uint, height: c_uint, depth: c_uint,
    }
    /// Memory that a deferred array needs, in bytes.
    struct CUDA_ARRAY_MEMORY_REQUIREMENTS [32] {
        size: usize, alignment: usize, reserved: [c_uint; 4],
    }
    /// Shape of an array, in elements; `Flags` are the `CUDA_ARRAY3D_` bits.
    struct CUDA_ARRAY3D_DESCRIPTOR [40] {
        Width: usize, Height: usize, Depth: usize, Format: CUarray_format, NumChannels: c_uint,
        Flags: c_uint,
    }
    /// A buffer for the decompression engine, sizes in bytes.
    struct CUmemDecompressParams [64] {
        srcNumBytes: usize, dstNumBytes: usize, dstActBytes: *mut u32, src: *const c_void,
        dst: *mut c_void, algo: CUmemDecompressAlgorithm, padding: [u8; 20],
    }
    /// Properties of an allocation by `cuMemCreate`.
    struct CUmemAllocationProp [32] {
        r#type: CUmemAllocationType, requestedHandleTypes: CUmemAllocationHandleType,
        location: CUmemLocation, win32HandleMetaData: *mut c_void,
        allocFlags: CUmemAllocationProp_allocFlags,
    }
    /// Flags of a physical allocation.
    struct CUmemAllocationProp_allocFlags [8] {
        compressionType: u8, gpuDirectRDMACapable: u8, usage: u16, reserved: [u8; 4],
    }
    /// A mapping of a sparse array; `resource` is an array or, by `resourceType`, a mipmapped array.
    struct CUarrayMapInfo [96] {
        resourceType: CUresourcetype, resource: CUarray, subresourceType: CUarraySparseSubresourceType,
        subresource: CUarrayMapInfo_subresource, memOperationType: CUmemOperationType,
        memHandleType: CUmemHandleType, memHandle: CUmemGenericAllocationHandle, offset: u64,
        deviceBitMask: c_uint, flags: c_uint, reserved: [c_uint; 2],
    }
    /// The part of a sparse array that is mapped, by `subresourceType`.
    union CUarrayMapInfo_subresource [32] {
        sparseLevel: CUarrayMapInfo_subresource_sparseLevel, miptail: CUarrayMapInfo_subresource_miptail,
    }
    /// A box within a level of a sparse array, in elements.
    struct CUarrayMapInfo_subresource_sparseLevel [32] {
        level: c_uint, layer: c_uint, offsetX: c_uint, offsetY: c_uint, offsetZ: c_uint,
        extentWidth: c_uint, extentHeight: c_uint, extentDepth: c_uint,
    }
    /// A range of a sparse array's tail, in bytes.
    struct CUarrayMapInfo_subresource_miptail [24] {
        layer: c_uint, offset: u64, size: u64,
    }
    /// Access rights of a location to a mapping.
    struct CUmemAccessDesc [12] {
        location: CUmemLocation, flags: CUmemAccess_flags,
    }
    /// A place of memory; `id` is a device ordinal or a NUMA node, by `type`.
    struct CUmemLocation [8] {
        r#type: CUmemLocationType, id: c_int,
    }
    /// Properties of a pool of `cuMemPoolCreate`; `maxSize` in bytes, 0 for the driver's choice.
    struct CUmemPoolProps [88] {
        allocType: CUmemAllocationType, handleTypes: CUmemAllocationHandleType, location: CUmemLocation,
        win32SecurityAttributes: *mut c_void, maxSize: usize, usage: u16, gpuDirectRDMACapable: u8,
        reserved: [u8; 53],
    }
    /// Data by which other processes import a pool's allocation.
    struct CUmemPoolPtrExportData [64] {
        reserved: [u8; 64],
    }
    /// Properties of an object of `cuMulticastCreate`; `size` in bytes.
    struct CUmulticastObjectProp [32] {
        numDevices: c_uint, size: usize, handleTypes: u64, flags: u64,
    }
    /// A copy over the fabric; `size` in bytes.
    struct CUDA_FABRIC_COPY_BATCH_OP [64] {
        src: CUfabricCpyOperand, dst: CUfabricCpyOperand, size: usize, flags: c_uint,
    }
    /// A memory object of another interface; `size` in bytes.
    struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC [104] {
        r#type: CUexternalMemoryHandleType, handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle, size: u64,
        flags: c_uint, reserved: [c_uint; 16],
    }
    /// The handle of the other interface, by `type`.
    union CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle [16] {
        fd: c_int, win32: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle_win32, nvSciBufObject: *const c_void,
    }
    /// A handle of another interface on Windows.
    struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle_win32 [16] {
        handle: *mut c_void, name: *const c_void,
    }
    /// A range of imported memory, in bytes.
    struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC [88] {
        offset: u64, size: u64, flags: c_uint, reserved: [c_uint; 16],
    }
    /// A mipmapped array within imported memory; `offset` in bytes.
    struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC [120] {
        offset: u64, arrayDesc: CUDA_ARRAY3D_DESCRIPTOR, numLevels: c_uint, reserved: [c_uint; 16],
    }
    /// [`CUDA_MEMCPY2D`] before CUDA 3.2.
    struct CUDA_MEMCPY2D_v1 [96] {
        srcXInBytes: c_uint, srcY: c_uint, srcMemoryType: CUmemorytype, srcHost: *const c_void,
        srcDevice: CUdeviceptr_v1, srcArray: CUarray, srcPitch: c_uint, dstXInBytes: c_uint,
        dstY: c_uint, dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: CUdeviceptr_v1,
        dstArray: CUarray, dstPitch: c_uint, WidthInBytes: c_uint, Height: c_uint,
    }
    /// [`CUDA_MEMCPY3D`] before CUDA 3.2.
    struct CUDA_MEMCPY3D_v1 [144] {
        srcXInBytes: c_uint, srcY: c_uint, srcZ: c_uint, srcLOD: c_uint, srcMemoryType: CUmemorytype,
        srcHost: *const c_void, srcDevice: CUdeviceptr_v1, srcArray: CUarray, reserved0: *mut c_void,
        srcPitch: c_uint, srcHeight: c_uint, dstXInBytes: c_uint, dstY: c_uint, dstZ: c_uint,
        dstLOD: c_uint, dstMemoryType: CUmemorytype, dstHost: *mut c_void, dstDevice: CUdeviceptr_v1,
        dstArray: CUarray, reserved1: *mut c_void, dstPitch: c_uint, dstHeight: c_uint,
        WidthInBytes: c_uint, Height: c_uint, Depth: c_uint,
    }
    /// [`CUDA_ARRAY_DESCRIPTOR`] before CUDA 3.2.
    struct CUDA_ARRAY_DESCRIPTOR_v1 [16] {
        Width: c_uint, Height: c_uint, Format: CUarray_format, NumChannels: c_uint,
    }
    /// [`CUDA_ARRAY3D_DESCRIPTOR`] before CUDA 3.2.
    struct CUDA_ARRAY3D_DESCRIPTOR_v1 [24] {
        Width: c_uint, Height: c_uint, Depth: c_uint, Format: CUarray_format, NumChannels: c_uint,
        Flags: c_uint,
    }
    /// A side of a batched 3D copy; `type` selects the member.
    struct CUmemcpy3DOperand [40] {
        r#type: CUmemcpy3DOperandType, op: CUmemcpy3DOperand_op,
    }
    /// Memory or an array.
    union CUmemcpy3DOperand_op [32] {
        ptr: CUmemcpy3DOperand_op_ptr, array: CUmemcpy3DOperand_op_array,
    }
    /// Memory as one side of a copy; lengths in elements.
    struct CUmemcpy3DOperand_op_ptr [32] {
        ptr: CUdeviceptr, rowLength: usize, layerHeight: usize, locHint: CUmemLocation,
    }
    /// An array as one side of a copy.
    struct CUmemcpy3DOperand_op_array [32] {
        array: CUarray, offset: CUoffset3D,
    }
    /// A box: width, height, depth.
    struct CUextent3D [24] {
        width: usize, height: usize, depth: usize,
    }
    /// A side of a fabric copy; `type` selects the member.
    struct CUfabricCpyOperand [24] {
        r#type: CUfabricCpyOperandType, op: CUfabricCpyOperand_op,
    }
    /// Memory or a logical endpoint.
    union CUfabricCpyOperand_op [16] {
        ptr: CUfabricCpyOperand_op_ptr, le: CUfabricCpyOperand_op_le,
    }
    /// Memory as one side of a fabric copy.
    struct CUfabricCpyOperand_op_ptr [16] {
        ptr: CUdeviceptr, locHint: CUmemLocation,
    }
    /// A logical endpoint as one side of a fabric copy; `offset` in bytes.
    struct CUfabricCpyOperand_op_le [16] {
        id: CUlogicalEndpointId, offset: u64,
    }
    /// A position: x, y, z.
    struct CUoffset3D [24] {
        x: usize, y: usize, z: usize,
    }
}
