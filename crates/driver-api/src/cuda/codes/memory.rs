//! Memory, pool, mapping and copy codes.

codes! {
    /// Flags of `cuIpcOpenMemHandle`.
    CUipcMem_flags "CU_IPC_MEM_" {
        LAZY_ENABLE_PEER_ACCESS = 1,
    }
    /// Streams that may access managed memory.
    CUmemAttach_flags "CU_MEM_ATTACH_" {
        GLOBAL = 1, HOST = 2, SINGLE = 4,
    }
    /// Format of one array element's channel.
    CUarray_format "CU_AD_FORMAT_" {
        UNSIGNED_INT8 = 1, UNSIGNED_INT16 = 2, UNSIGNED_INT32 = 3, SIGNED_INT8 = 8, SIGNED_INT16 = 9,
        SIGNED_INT32 = 10, HALF = 16, FLOAT = 32, NV12 = 176, UNORM_INT8X1 = 192, UNORM_INT8X2 = 193,
        UNORM_INT8X4 = 194, UNORM_INT16X1 = 195, UNORM_INT16X2 = 196, UNORM_INT16X4 = 197,
        SNORM_INT8X1 = 198, SNORM_INT8X2 = 199, SNORM_INT8X4 = 200, SNORM_INT16X1 = 201,
        SNORM_INT16X2 = 202, SNORM_INT16X4 = 203, BC1_UNORM = 145, BC1_UNORM_SRGB = 146, BC2_UNORM = 147,
        BC2_UNORM_SRGB = 148, BC3_UNORM = 149, BC3_UNORM_SRGB = 150, BC4_UNORM = 151, BC4_SNORM = 152,
        BC5_UNORM = 153, BC5_SNORM = 154, BC6H_UF16 = 155, BC6H_SF16 = 156, BC7_UNORM = 157,
        BC7_UNORM_SRGB = 158, P010 = 159, P016 = 161, NV16 = 162, P210 = 163, P216 = 164, YUY2 = 165,
        Y210 = 166, Y216 = 167, AYUV = 168, Y410 = 169, Y416 = 177, Y444_PLANAR8 = 178,
        Y444_PLANAR10 = 179, YUV444_8BIT_SEMI_PLANAR = 180, YUV444_16BIT_SEMI_PLANAR = 181,
        UNORM_INT_101010_2 = 80, UINT8_PACKED_422 = 81, UINT8_PACKED_444 = 82, UINT8_SEMIPLANAR_420 = 83,
        UINT16_SEMIPLANAR_420 = 84, UINT8_SEMIPLANAR_422 = 85, UINT16_SEMIPLANAR_422 = 86,
        UINT8_SEMIPLANAR_444 = 87, UINT16_SEMIPLANAR_444 = 88, UINT8_PLANAR_420 = 89,
        UINT16_PLANAR_420 = 90, UINT8_PLANAR_422 = 91, UINT16_PLANAR_422 = 92, UINT8_PLANAR_444 = 93,
        UINT16_PLANAR_444 = 94,
    }
    /// Attributes of `cuPointerGetAttribute`.
    CUpointer_attribute "CU_POINTER_ATTRIBUTE_" {
        CONTEXT = 1, MEMORY_TYPE = 2, DEVICE_POINTER = 3, HOST_POINTER = 4, P2P_TOKENS = 5,
        SYNC_MEMOPS = 6, BUFFER_ID = 7, IS_MANAGED = 8, DEVICE_ORDINAL = 9,
        IS_LEGACY_CUDA_IPC_CAPABLE = 10, RANGE_START_ADDR = 11, RANGE_SIZE = 12, MAPPED = 13,
        ALLOWED_HANDLE_TYPES = 14, IS_GPU_DIRECT_RDMA_CAPABLE = 15, ACCESS_FLAGS = 16, MEMPOOL_HANDLE = 17,
        MAPPING_SIZE = 18, MAPPING_BASE_ADDR = 19, MEMORY_BLOCK_ID = 20, IS_HW_DECOMPRESS_CAPABLE = 21,
        LOCALITY_DOMAIN_ORDINAL = 22,
    }
    /// Kind of memory of one side of a copy.
    CUmemorytype "CU_MEMORYTYPE_" {
        HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4,
    }
    /// Advice about managed memory.
    CUmem_advise "CU_MEM_ADVISE_" {
        SET_READ_MOSTLY = 1, UNSET_READ_MOSTLY = 2, SET_PREFERRED_LOCATION = 3,
        UNSET_PREFERRED_LOCATION = 4, SET_ACCESSED_BY = 5, UNSET_ACCESSED_BY = 6,
    }
    /// Attributes of `cuMemRangeGetAttribute`.
    CUmem_range_attribute "CU_MEM_RANGE_ATTRIBUTE_" {
        READ_MOSTLY = 1, PREFERRED_LOCATION = 2, ACCESSED_BY = 3, LAST_PREFETCH_LOCATION = 4,
        PREFERRED_LOCATION_TYPE = 5, PREFERRED_LOCATION_ID = 6, LAST_PREFETCH_LOCATION_TYPE = 7,
        LAST_PREFETCH_LOCATION_ID = 8,
    }
    /// Kind of the resource of a sparse mapping.
    CUresourcetype "CU_RESOURCE_TYPE_" {
        ARRAY = 0, MIPMAPPED_ARRAY = 1, LINEAR = 2, PITCH2D = 3,
    }
    /// Kind of an imported external memory handle.
    CUexternalMemoryHandleType "CU_EXTERNAL_MEMORY_HANDLE_TYPE_" {
        OPAQUE_FD = 1, OPAQUE_WIN32 = 2, OPAQUE_WIN32_KMT = 3, D3D12_HEAP = 4, D3D12_RESOURCE = 5,
        D3D11_RESOURCE = 6, D3D11_RESOURCE_KMT = 7, NVSCIBUF = 8, DMABUF_FD = 9,
    }
    /// Kinds of shareable handle; bits.
    CUmemAllocationHandleType "CU_MEM_HANDLE_TYPE_" {
        NONE = 0, POSIX_FILE_DESCRIPTOR = 1, WIN32 = 2, WIN32_KMT = 4, FABRIC = 8,
    }
    /// Access rights of a mapping.
    CUmemAccess_flags "CU_MEM_ACCESS_FLAGS_PROT_" {
        NONE = 0, READ = 1, READWRITE = 3,
    }
    /// Kind of a memory location.
    CUmemLocationType "CU_MEM_LOCATION_TYPE_" {
        INVALID = 0, NONE = 0, DEVICE = 1, HOST = 2, HOST_NUMA = 3, HOST_NUMA_CURRENT = 4, INVISIBLE = 5,
        DEVICE_LOCALITY_DOMAIN = 6,
    }
    /// Kind of an allocation.
    CUmemAllocationType "CU_MEM_ALLOCATION_TYPE_" {
        INVALID = 0, PINNED = 1, MANAGED = 2,
    }
    /// The granularity to query: the minimum, or the recommended one.
    CUmemAllocationGranularity_flags "CU_MEM_ALLOC_GRANULARITY_" {
        MINIMUM = 0, RECOMMENDED = 1,
    }
    /// Kind of handle for an address range.
    CUmemRangeHandleType "CU_MEM_RANGE_HANDLE_TYPE_" {
        DMA_BUF_FD = 1,
    }
    /// Part of a sparse array.
    CUarraySparseSubresourceType "CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_" {
        SPARSE_LEVEL = 0, MIPTAIL = 1,
    }
    /// Whether a sparse mapping is made or undone.
    CUmemOperationType "CU_MEM_OPERATION_TYPE_" {
        MAP = 1, UNMAP = 2,
    }
    /// Kind of the handle of a sparse mapping.
    CUmemHandleType "CU_MEM_HANDLE_TYPE_" {
        GENERIC = 0,
    }
    /// Compression of an allocation.
    CUmemAllocationCompType "CU_MEM_ALLOCATION_COMP_" {
        NONE = 0, GENERIC = 1,
    }
    /// The granularity of a multicast object to query: the minimum, or the recommended one.
    CUmulticastGranularity_flags "CU_MULTICAST_GRANULARITY_" {
        MINIMUM = 0, RECOMMENDED = 1,
    }
    /// Attributes of a memory pool.
    CUmemPool_attribute "CU_MEMPOOL_ATTR_" {
        REUSE_FOLLOW_EVENT_DEPENDENCIES = 1, REUSE_ALLOW_OPPORTUNISTIC = 2,
        REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3, RELEASE_THRESHOLD = 4, RESERVED_MEM_CURRENT = 5,
        RESERVED_MEM_HIGH = 6, USED_MEM_CURRENT = 7, USED_MEM_HIGH = 8, ALLOCATION_TYPE = 9,
        EXPORT_HANDLE_TYPES = 10, LOCATION_ID = 11, LOCATION_TYPE = 12, MAX_POOL_SIZE = 13,
        HW_DECOMPRESS_ENABLED = 14, LOCALITY_DOMAIN_ID = 15,
    }
    /// Flags of a batched copy.
    CUmemcpyFlags "CU_MEMCPY_FLAG_" {
        DEFAULT = 0, PREFER_OVERLAP_WITH_COMPUTE = 1,
    }
    /// When the source of a copy may be read.
    CUmemcpySrcAccessOrder "CU_MEMCPY_SRC_ACCESS_ORDER_" {
        INVALID = 0, STREAM = 1, DURING_API_CALL = 2, ANY = 3,
    }
    /// Kind of one side of a batched 3D copy.
    CUmemcpy3DOperandType "CU_MEMCPY_OPERAND_TYPE_" {
        POINTER = 1, ARRAY = 2,
    }
    /// Algorithms of the decompression engine; bits.
    CUmemDecompressAlgorithm "CU_MEM_DECOMPRESS_" {
        UNSUPPORTED = 0, ALGORITHM_DEFLATE = 1, ALGORITHM_SNAPPY = 2, ALGORITHM_LZ4 = 4,
    }
    /// Kind of one side of a fabric copy.
    CUfabricCpyOperandType "CU_FABRIC_COPY_OPERAND_TYPE_" {
        POINTER = 1, LOGICAL_ENDPOINT = 2,
    }
}
