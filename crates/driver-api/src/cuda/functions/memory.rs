//! Memory: allocation, pools, mapping, arrays, copies, sets, pointers.

list! { memory_list $
    cuDeviceSetMemPool: (dev: CUdevice, pool: CUmemoryPool);
    cuDeviceGetMemPool: (pool: *mut CUmemoryPool, dev: CUdevice);
    cuDeviceGetDefaultMemPool: (pool_out: *mut CUmemoryPool, dev: CUdevice);
    cuMemGetInfo: (free: *mut c_uint, total: *mut c_uint);
    cuMemGetInfo_v2: (free: *mut usize, total: *mut usize);
    cuMemAlloc: (dptr: *mut CUdeviceptr_v1, bytesize: c_uint);
    cuMemAlloc_v2: (dptr: *mut CUdeviceptr, bytesize: usize);
    cuMemAllocPitch: (dptr: *mut CUdeviceptr_v1, pitch: *mut c_uint, width_in_bytes: c_uint,
        height: c_uint, element_size_bytes: c_uint);
    cuMemAllocPitch_v2: (dptr: *mut CUdeviceptr, pitch: *mut usize, width_in_bytes: usize, height: usize,
        element_size_bytes: c_uint);
    cuMemFree: (dptr: CUdeviceptr_v1);
    cuMemFree_v2: (dptr: CUdeviceptr);
    cuMemGetAddressRange: (pbase: *mut CUdeviceptr_v1, psize: *mut c_uint, dptr: CUdeviceptr_v1);
    cuMemGetAddressRange_v2: (pbase: *mut CUdeviceptr, psize: *mut usize, dptr: CUdeviceptr);
    cuMemAllocHost: (pp: *mut *mut c_void, bytesize: c_uint);
    cuMemAllocHost_v2: (pp: *mut *mut c_void, bytesize: usize);
    cuMemFreeHost: (p: *mut c_void);
    cuMemHostAlloc: (pp: *mut *mut c_void, bytesize: usize, flags: c_uint);
    cuMemHostGetDevicePointer: (pdptr: *mut CUdeviceptr_v1, p: *mut c_void, flags: c_uint);
    cuMemHostGetDevicePointer_v2: (pdptr: *mut CUdeviceptr, p: *mut c_void, flags: c_uint);
    cuMemHostGetFlags: (flags: *mut c_uint, p: *mut c_void);
    cuMemAllocManaged: (dptr: *mut CUdeviceptr, bytesize: usize, flags: c_uint);
    cuIpcGetEventHandle: (handle: *mut CUipcEventHandle, event: CUevent);
    cuIpcOpenEventHandle: (event: *mut CUevent, handle: CUipcEventHandle);
    cuIpcGetMemHandle: (handle: *mut CUipcMemHandle, dptr: CUdeviceptr);
    cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2: (pdptr: *mut CUdeviceptr, handle: CUipcMemHandle,
        flags: c_uint);
    cuIpcCloseMemHandle: (dptr: CUdeviceptr);
    cuMemHostRegister, cuMemHostRegister_v2: (p: *mut c_void, bytesize: usize, flags: c_uint);
    cuMemHostUnregister: (p: *mut c_void);
    cuMemcpy, cuMemcpy_ptds: (dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize);
    cuMemcpyPeer, cuMemcpyPeer_ptds: (dst_device: CUdeviceptr, dst_context: CUcontext,
        src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize);
    cuMemcpyHtoD: (dst_device: CUdeviceptr_v1, src_host: *const c_void, byte_count: c_uint);
    cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds: (dst_device: CUdeviceptr, src_host: *const c_void,
        byte_count: usize);
    cuMemcpyDtoH: (dst_host: *mut c_void, src_device: CUdeviceptr_v1, byte_count: c_uint);
    cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds: (dst_host: *mut c_void, src_device: CUdeviceptr,
        byte_count: usize);
    cuMemcpyDtoD: (dst_device: CUdeviceptr_v1, src_device: CUdeviceptr_v1, byte_count: c_uint);
    cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds: (dst_device: CUdeviceptr, src_device: CUdeviceptr,
        byte_count: usize);
    cuMemcpyDtoA: (dst_array: CUarray, dst_offset: c_uint, src_device: CUdeviceptr_v1, byte_count: c_uint);
    cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds: (dst_array: CUarray, dst_offset: usize,
        src_device: CUdeviceptr, byte_count: usize);
    cuMemcpyAtoD: (dst_device: CUdeviceptr_v1, src_array: CUarray, src_offset: c_uint, byte_count: c_uint);
    cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds: (dst_device: CUdeviceptr, src_array: CUarray,
        src_offset: usize, byte_count: usize);
    cuMemcpyHtoA: (dst_array: CUarray, dst_offset: c_uint, src_host: *const c_void, byte_count: c_uint);
    cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds: (dst_array: CUarray, dst_offset: usize,
        src_host: *const c_void, byte_count: usize);
    cuMemcpyAtoH: (dst_host: *mut c_void, src_array: CUarray, src_offset: c_uint, byte_count: c_uint);
    cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds: (dst_host: *mut c_void, src_array: CUarray, src_offset: usize,
        byte_count: usize);
    cuMemcpyAtoA: (dst_array: CUarray, dst_offset: c_uint, src_array: CUarray, src_offset: c_uint,
        byte_count: c_uint);
    cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds: (dst_array: CUarray, dst_offset: usize, src_array: CUarray,
        src_offset: usize, byte_count: usize);
    cuMemcpy2D: (copy: *const CUDA_MEMCPY2D_v1);
    cuMemcpy2D_v2, cuMemcpy2D_v2_ptds: (copy: *const CUDA_MEMCPY2D);
    cuMemcpy2DUnaligned: (copy: *const CUDA_MEMCPY2D_v1);
    cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds: (copy: *const CUDA_MEMCPY2D);
    cuMemcpy3D: (copy: *const CUDA_MEMCPY3D_v1);
    cuMemcpy3D_v2, cuMemcpy3D_v2_ptds: (copy: *const CUDA_MEMCPY3D);
    cuMemcpy3DPeer, cuMemcpy3DPeer_ptds: (copy: *const CUDA_MEMCPY3D_PEER);
    cuMemcpyAsync, cuMemcpyAsync_ptsz: (dst: CUdeviceptr, src: CUdeviceptr, byte_count: usize,
        stream: CUstream);
    cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz: (dst_device: CUdeviceptr, dst_context: CUcontext,
        src_device: CUdeviceptr, src_context: CUcontext, byte_count: usize, stream: CUstream);
    cuMemcpyHtoDAsync: (dst_device: CUdeviceptr_v1, src_host: *const c_void, byte_count: c_uint,
        stream: CUstream);
    cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz: (dst_device: CUdeviceptr, src_host: *const c_void,
        byte_count: usize, stream: CUstream);
    cuMemcpyDtoHAsync: (dst_host: *mut c_void, src_device: CUdeviceptr_v1, byte_count: c_uint,
        stream: CUstream);
    cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz: (dst_host: *mut c_void, src_device: CUdeviceptr,
        byte_count: usize, stream: CUstream);
    cuMemcpyDtoDAsync: (dst_device: CUdeviceptr_v1, src_device: CUdeviceptr_v1, byte_count: c_uint,
        stream: CUstream);
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz: (dst_device: CUdeviceptr, src_device: CUdeviceptr,
        byte_count: usize, stream: CUstream);
    cuMemcpyHtoAAsync: (dst_array: CUarray, dst_offset: c_uint, src_host: *const c_void,
        byte_count: c_uint, stream: CUstream);
    cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz: (dst_array: CUarray, dst_offset: usize,
        src_host: *const c_void, byte_count: usize, stream: CUstream);
    cuMemcpyAtoHAsync: (dst_host: *mut c_void, src_array: CUarray, src_offset: c_uint,
        byte_count: c_uint, stream: CUstream);
    cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz: (dst_host: *mut c_void, src_array: CUarray,
        src_offset: usize, byte_count: usize, stream: CUstream);
    cuMemcpy2DAsync: (copy: *const CUDA_MEMCPY2D_v1, stream: CUstream);
    cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz: (copy: *const CUDA_MEMCPY2D, stream: CUstream);
    cuMemcpy3DAsync: (copy: *const CUDA_MEMCPY3D_v1, stream: CUstream);
    cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz: (copy: *const CUDA_MEMCPY3D, stream: CUstream);
    cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz: (copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream);
    cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz: (dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr,
        sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize,
        num_attrs: usize, fail_idx: *mut usize, stream: CUstream);
    cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz: (dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr,
        sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrs_idxs: *mut usize,
        num_attrs: usize, stream: CUstream);
    cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz: (num_ops: usize,
        op_list: *mut CUDA_MEMCPY3D_BATCH_OP, fail_idx: *mut usize, flags: u64, stream: CUstream);
    cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz: (num_ops: usize,
        op_list: *mut CUDA_MEMCPY3D_BATCH_OP, flags: u64, stream: CUstream);
    cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz: (dst: CUdeviceptr, src: CUdeviceptr,
        size: usize, attr: *mut CUmemcpyAttributes, stream: CUstream);
    cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz: (op: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: u64, stream: CUstream);
    cuMemsetD8: (dst_device: CUdeviceptr_v1, uc: u8, n: c_uint);
    cuMemsetD8_v2, cuMemsetD8_v2_ptds: (dst_device: CUdeviceptr, uc: u8, n: usize);
    cuMemsetD16: (dst_device: CUdeviceptr_v1, us: u16, n: c_uint);
    cuMemsetD16_v2, cuMemsetD16_v2_ptds: (dst_device: CUdeviceptr, us: u16, n: usize);
    cuMemsetD32: (dst_device: CUdeviceptr_v1, ui: c_uint, n: c_uint);
    cuMemsetD32_v2, cuMemsetD32_v2_ptds: (dst_device: CUdeviceptr, ui: c_uint, n: usize);
    cuMemsetD2D8: (dst_device: CUdeviceptr_v1, dst_pitch: c_uint, uc: u8, width: c_uint, height: c_uint);
    cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds: (dst_device: CUdeviceptr, dst_pitch: usize, uc: u8,
        width: usize, height: usize);
    cuMemsetD2D16: (dst_device: CUdeviceptr_v1, dst_pitch: c_uint, us: u16, width: c_uint, height: c_uint);
    cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds: (dst_device: CUdeviceptr, dst_pitch: usize, us: u16,
        width: usize, height: usize);
    cuMemsetD2D32: (dst_device: CUdeviceptr_v1, dst_pitch: c_uint, ui: c_uint, width: c_uint,
        height: c_uint);
    cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds: (dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint,
        width: usize, height: usize);
    cuMemsetD8Async, cuMemsetD8Async_ptsz: (dst_device: CUdeviceptr, uc: u8, n: usize, stream: CUstream);
    cuMemsetD16Async, cuMemsetD16Async_ptsz: (dst_device: CUdeviceptr, us: u16, n: usize, stream: CUstream);
    cuMemsetD32Async, cuMemsetD32Async_ptsz: (dst_device: CUdeviceptr, ui: c_uint, n: usize,
        stream: CUstream);
    cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz: (dst_device: CUdeviceptr, dst_pitch: usize, uc: u8,
        width: usize, height: usize, stream: CUstream);
    cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz: (dst_device: CUdeviceptr, dst_pitch: usize, us: u16,
        width: usize, height: usize, stream: CUstream);
    cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz: (dst_device: CUdeviceptr, dst_pitch: usize, ui: c_uint,
        width: usize, height: usize, stream: CUstream);
    cuArrayCreate: (handle: *mut CUarray, allocate_array: *const CUDA_ARRAY_DESCRIPTOR_v1);
    cuArrayCreate_v2: (handle: *mut CUarray, allocate_array: *const CUDA_ARRAY_DESCRIPTOR);
    cuArrayGetDescriptor: (array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR_v1, array: CUarray);
    cuArrayGetDescriptor_v2: (array_descriptor: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray);
    cuArrayGetSparseProperties: (sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray);
    cuMipmappedArrayGetSparseProperties: (sparse_properties: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
        mipmap: CUmipmappedArray);
    cuArrayGetMemoryRequirements: (memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        array: CUarray, device: CUdevice);
    cuMipmappedArrayGetMemoryRequirements: (memory_requirements: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
        mipmap: CUmipmappedArray, device: CUdevice);
    cuArrayGetPlane: (plane_array: *mut CUarray, array: CUarray, plane_idx: c_uint);
    cuArrayDestroy: (array: CUarray);
    cuArray3DCreate: (handle: *mut CUarray, allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR_v1);
    cuArray3DCreate_v2: (handle: *mut CUarray, allocate_array: *const CUDA_ARRAY3D_DESCRIPTOR);
    cuArray3DGetDescriptor: (array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR_v1, array: CUarray);
    cuArray3DGetDescriptor_v2: (array_descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray);
    cuMipmappedArrayCreate: (handle: *mut CUmipmappedArray,
        mipmapped_array_desc: *const CUDA_ARRAY3D_DESCRIPTOR, num_mipmap_levels: c_uint);
    cuMipmappedArrayGetLevel: (level_array: *mut CUarray, mipmapped_array: CUmipmappedArray, level: c_uint);
    cuMipmappedArrayDestroy: (mipmapped_array: CUmipmappedArray);
    cuMemGetHandleForAddressRange: (handle: *mut c_void, dptr: CUdeviceptr, size: usize,
        handle_type: CUmemRangeHandleType, flags: u64);
    cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz: (params_array: *mut CUmemDecompressParams,
        count: usize, flags: c_uint, error_index: *mut usize, stream: CUstream);
    cuMemAddressReserve: (ptr: *mut CUdeviceptr, size: usize, alignment: usize, addr: CUdeviceptr,
        flags: u64);
    cuMemAddressFree: (ptr: CUdeviceptr, size: usize);
    cuMemCreate: (handle: *mut CUmemGenericAllocationHandle, size: usize,
        prop: *const CUmemAllocationProp, flags: u64);
    cuMemRelease: (handle: CUmemGenericAllocationHandle);
    cuMemMap: (ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle,
        flags: u64);
    cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz: (map_info_list: *mut CUarrayMapInfo, count: c_uint,
        stream: CUstream);
    cuMemUnmap: (ptr: CUdeviceptr, size: usize);
    cuMemSetAccess: (ptr: CUdeviceptr, size: usize, desc: *const CUmemAccessDesc, count: usize);
    cuMemGetAccess: (flags: *mut u64, location: *const CUmemLocation, ptr: CUdeviceptr);
    cuMemExportToShareableHandle: (shareable_handle: *mut c_void, handle: CUmemGenericAllocationHandle,
        handle_type: CUmemAllocationHandleType, flags: u64);
    cuMemImportFromShareableHandle: (handle: *mut CUmemGenericAllocationHandle, os_handle: *mut c_void,
        sh_handle_type: CUmemAllocationHandleType);
    cuMemGetAllocationGranularity: (granularity: *mut usize, prop: *const CUmemAllocationProp,
        option: CUmemAllocationGranularity_flags);
    cuMemGetAllocationPropertiesFromHandle: (prop: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle);
    cuMemRetainAllocationHandle: (handle: *mut CUmemGenericAllocationHandle, addr: *mut c_void);
    cuMemFreeAsync, cuMemFreeAsync_ptsz: (dptr: CUdeviceptr, stream: CUstream);
    cuMemAllocAsync, cuMemAllocAsync_ptsz: (dptr: *mut CUdeviceptr, bytesize: usize, stream: CUstream);
    cuMemPoolTrimTo: (pool: CUmemoryPool, min_bytes_to_keep: usize);
    cuMemPoolSetAttribute: (pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolGetAttribute: (pool: CUmemoryPool, attr: CUmemPool_attribute, value: *mut c_void);
    cuMemPoolSetAccess: (pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize);
    cuMemPoolGetAccess: (flags: *mut CUmemAccess_flags, mem_pool: CUmemoryPool,
        location: *mut CUmemLocation);
    cuMemPoolCreate: (pool: *mut CUmemoryPool, pool_props: *const CUmemPoolProps);
    cuMemPoolDestroy: (pool: CUmemoryPool);
    cuMemGetDefaultMemPool: (pool_out: *mut CUmemoryPool, location: *mut CUmemLocation,
        kind: CUmemAllocationType);
    cuMemGetMemPool: (pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType);
    cuMemSetMemPool: (location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool);
    cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz: (dptr: *mut CUdeviceptr, bytesize: usize,
        pool: CUmemoryPool, stream: CUstream);
    cuMemPoolExportToShareableHandle: (handle_out: *mut c_void, pool: CUmemoryPool,
        handle_type: CUmemAllocationHandleType, flags: u64);
    cuMemPoolImportFromShareableHandle: (pool_out: *mut CUmemoryPool, handle: *mut c_void,
        handle_type: CUmemAllocationHandleType, flags: u64);
    cuMemPoolExportPointer: (share_data_out: *mut CUmemPoolPtrExportData, ptr: CUdeviceptr);
    cuMemPoolImportPointer: (ptr_out: *mut CUdeviceptr, pool: CUmemoryPool,
        share_data: *mut CUmemPoolPtrExportData);
    cuMulticastCreate: (mc_handle: *mut CUmemGenericAllocationHandle, prop: *const CUmulticastObjectProp);
    cuMulticastAddDevice: (mc_handle: CUmemGenericAllocationHandle, dev: CUdevice);
    cuMulticastBindMem: (mc_handle: CUmemGenericAllocationHandle, mc_offset: usize,
        mem_handle: CUmemGenericAllocationHandle, mem_offset: usize, size: usize, flags: u64);
    cuMulticastBindMem_v2: (mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize,
        mem_handle: CUmemGenericAllocationHandle, mem_offset: usize, size: usize, flags: u64);
    cuMulticastBindAddr: (mc_handle: CUmemGenericAllocationHandle, mc_offset: usize, memptr: CUdeviceptr,
        size: usize, flags: u64);
    cuMulticastBindAddr_v2: (mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize,
        memptr: CUdeviceptr, size: usize, flags: u64);
    cuMulticastUnbind: (mc_handle: CUmemGenericAllocationHandle, dev: CUdevice, mc_offset: usize,
        size: usize);
    cuMulticastGetGranularity: (granularity: *mut usize, prop: *const CUmulticastObjectProp,
        option: CUmulticastGranularity_flags);
    cuLogicalEndpointBindAddr: (le_id: CUlogicalEndpointId, dev: CUdevice, offset: u64, ptr: *mut c_void,
        size: u64, flags: u64);
    cuLogicalEndpointBindMem: (le_id: CUlogicalEndpointId, dev: CUdevice, offset: u64,
        mem_handle: CUmemGenericAllocationHandle, mem_offset: u64, size: u64, flags: u64);
    cuFabricCpyBatchAsync, cuFabricCpyBatchAsync_ptsz: (num_ops: usize,
        op_list: *mut CUDA_FABRIC_COPY_BATCH_OP, flags: u64, stream: CUstream);
    cuPointerGetAttribute: (data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr);
    cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz: (dev_ptr: CUdeviceptr, count: usize,
        dst_device: CUdevice, stream: CUstream);
    cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz: (dev_ptr: CUdeviceptr, count: usize,
        location: CUmemLocation, flags: c_uint, stream: CUstream);
    cuMemAdvise: (dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, device: CUdevice);
    cuMemAdvise_v2: (dev_ptr: CUdeviceptr, count: usize, advice: CUmem_advise, location: CUmemLocation);
    cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz: (dptrs: *mut CUdeviceptr, sizes: *mut usize,
        count: usize, prefetch_locs: *mut CUmemLocation, prefetch_loc_idxs: *mut usize,
        num_prefetch_locs: usize, flags: u64, stream: CUstream);
    cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz: (dptrs: *mut CUdeviceptr, sizes: *mut usize,
        count: usize, flags: u64, stream: CUstream);
    cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz: (dptrs: *mut CUdeviceptr,
        sizes: *mut usize, count: usize, prefetch_locs: *mut CUmemLocation,
        prefetch_loc_idxs: *mut usize, num_prefetch_locs: usize, flags: u64, stream: CUstream);
    cuMemGetLocationInfo: (ptr: CUdeviceptr, size: usize, summary_granularity: usize,
        sampling_granularity: usize, location_out: *mut CUmemLocation);
    cuMemRangeGetAttribute: (data: *mut c_void, data_size: usize, attribute: CUmem_range_attribute,
        dev_ptr: CUdeviceptr, count: usize);
    cuMemRangeGetAttributes: (data: *mut *mut c_void, data_sizes: *mut usize,
        attributes: *mut CUmem_range_attribute, num_attributes: usize, dev_ptr: CUdeviceptr, count: usize);
    cuPointerSetAttribute: (value: *const c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr);
    cuPointerGetAttributes: (num_attributes: c_uint, attributes: *mut CUpointer_attribute,
        data: *mut *mut c_void, ptr: CUdeviceptr);
    cuImportExternalMemory: (ext_mem_out: *mut CUexternalMemory,
        mem_handle_desc: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC);
    cuExternalMemoryGetMappedBuffer: (dev_ptr: *mut CUdeviceptr, ext_mem: CUexternalMemory,
        buffer_desc: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
    cuExternalMemoryGetMappedMipmappedArray: (mipmap: *mut CUmipmappedArray, ext_mem: CUexternalMemory,
        mipmap_desc: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC);
    cuDestroyExternalMemory: (ext_mem: CUexternalMemory);
}
