//! Module, function, launch, stream and event codes.

codes! {
    /// Attributes of `cuFuncGetAttribute`.
    CUfunction_attribute "CU_FUNC_ATTRIBUTE_" {
        MAX_THREADS_PER_BLOCK = 0, SHARED_SIZE_BYTES = 1, CONST_SIZE_BYTES = 2, LOCAL_SIZE_BYTES = 3,
        NUM_REGS = 4, PTX_VERSION = 5, BINARY_VERSION = 6, CACHE_MODE_CA = 7,
        MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
        CLUSTER_SIZE_MUST_BE_SET = 10, REQUIRED_CLUSTER_WIDTH = 11, REQUIRED_CLUSTER_HEIGHT = 12,
        REQUIRED_CLUSTER_DEPTH = 13, NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
        CLUSTER_SCHEDULING_POLICY_PREFERENCE = 15, DEVICE_NODE_UPDATE_SUPPORTED = 16,
        SHARED_MEMORY_MODE = 17,
    }
    /// Preference between L1 cache and shared memory.
    CUfunc_cache "CU_FUNC_CACHE_PREFER_" {
        NONE = 0, SHARED = 1, L1 = 2, EQUAL = 3,
    }
    /// Width of a shared memory bank.
    CUsharedconfig "CU_SHARED_MEM_CONFIG_" {
        DEFAULT_BANK_SIZE = 0, FOUR_BYTE_BANK_SIZE = 1, EIGHT_BYTE_BANK_SIZE = 2,
    }
    /// Preferred shared memory share, in percent or one of these.
    CUshared_carveout "CU_SHAREDMEM_CARVEOUT_" {
        DEFAULT = 0xffffffff, MAX_SHARED = 100, MAX_L1 = 0,
    }
    /// Options of the JIT compiler and linker.
    CUjit_option "CU_JIT_" {
        MAX_REGISTERS = 0, THREADS_PER_BLOCK = 1, WALL_TIME = 2, INFO_LOG_BUFFER = 3,
        INFO_LOG_BUFFER_SIZE_BYTES = 4, ERROR_LOG_BUFFER = 5, ERROR_LOG_BUFFER_SIZE_BYTES = 6,
        OPTIMIZATION_LEVEL = 7, TARGET_FROM_CUCONTEXT = 8, TARGET = 9, FALLBACK_STRATEGY = 10,
        GENERATE_DEBUG_INFO = 11, LOG_VERBOSE = 12, GENERATE_LINE_INFO = 13, CACHE_MODE = 14,
        NEW_SM3X_OPT = 15, FAST_COMPILE = 16, GLOBAL_SYMBOL_NAMES = 17, GLOBAL_SYMBOL_ADDRESSES = 18,
        GLOBAL_SYMBOL_COUNT = 19, LTO = 20, FTZ = 21, PREC_DIV = 22, PREC_SQRT = 23, FMA = 24,
        REFERENCED_KERNEL_NAMES = 25, REFERENCED_KERNEL_COUNT = 26, REFERENCED_VARIABLE_NAMES = 27,
        REFERENCED_VARIABLE_COUNT = 28, OPTIMIZE_UNUSED_DEVICE_VARIABLES = 29,
        POSITION_INDEPENDENT_CODE = 30, MIN_CTA_PER_SM = 31, MAX_THREADS_PER_BLOCK = 32,
        OVERRIDE_DIRECTIVE_VALUES = 33, SPLIT_COMPILE = 34, BINARY_LOADER_THREAD_COUNT = 35,
        NUM_OPTIONS = 36,
    }
    /// Preference of the JIT if the exact binary is absent.
    CUjit_fallback "CU_PREFER_" {
        PTX = 0, BINARY = 1,
    }
    /// Caching of global loads that the JIT chooses.
    CUjit_cacheMode "CU_JIT_CACHE_OPTION_" {
        NONE = 0, CG = 1, CA = 2,
    }
    /// Kind of a linker input.
    CUjitInputType "CU_JIT_" {
        INPUT_CUBIN = 0, INPUT_PTX = 1, INPUT_FATBINARY = 2, INPUT_OBJECT = 3, INPUT_LIBRARY = 4,
        INPUT_NVVM = 5, NUM_INPUT_TYPES = 6,
    }
    /// Options of `cuLibraryLoadData`.
    CUlibraryOption "CU_LIBRARY_" {
        HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE = 0, BINARY_IS_PRESERVED = 1, NUM_OPTIONS = 2,
    }
    /// Whether modules load lazily.
    CUmoduleLoadingMode "CU_MODULE_" {
        EAGER_LOADING = 1, LAZY_LOADING = 2,
    }
    /// Whether a function is loaded.
    CUfunctionLoadingState "CU_FUNCTION_LOADING_STATE_" {
        UNLOADED = 0, LOADED = 1,
    }
    /// Flags of the occupancy calculator.
    CUoccupancy_flags "CU_OCCUPANCY_" {
        DEFAULT = 0, DISABLE_CACHING_OVERRIDE = 1,
    }
    /// Way in which a thread waits for a stream.
    CUsynchronizationPolicy "CU_SYNC_POLICY_" {
        AUTO = 1, SPIN = 2, YIELD = 3, BLOCKING_SYNC = 4,
    }
    /// Placement of the blocks of a cluster.
    CUclusterSchedulingPolicy "CU_CLUSTER_SCHEDULING_POLICY_" {
        DEFAULT = 0, SPREAD = 1, LOAD_BALANCING = 2, RUBIN_DSMEM_LOCALITY = 3,
    }
    /// Memory synchronisation domain of a launch.
    CUlaunchMemSyncDomain "CU_LAUNCH_MEM_SYNC_DOMAIN_" {
        DEFAULT = 0, REMOTE = 1,
    }
    /// Whether a launch may ask for clusters that not every device holds.
    CUlaunchAttributePortableClusterMode "CU_LAUNCH_PORTABLE_CLUSTER_MODE_" {
        DEFAULT = 0, REQUIRE_PORTABLE = 1, ALLOW_NON_PORTABLE = 2,
    }
    /// Whether a launch may ask for shared memory that not every device has.
    CUsharedMemoryMode "CU_SHARED_MEMORY_MODE_" {
        DEFAULT = 0, REQUIRE_PORTABLE = 1, ALLOW_NON_PORTABLE = 2, ALLOW_OVERSIZED_SHARED_MEMORY = 3,
        PREFER_OVERSIZED_SHARED_MEMORY = 4,
    }
    /// Id of a launch attribute, which selects the member of `CUlaunchAttributeValue`.
    CUlaunchAttributeID "CU_LAUNCH_ATTRIBUTE_" {
        IGNORE = 0, ACCESS_POLICY_WINDOW = 1, COOPERATIVE = 2, SYNCHRONIZATION_POLICY = 3,
        CLUSTER_DIMENSION = 4, CLUSTER_SCHEDULING_POLICY_PREFERENCE = 5,
        PROGRAMMATIC_STREAM_SERIALIZATION = 6, PROGRAMMATIC_EVENT = 7, PRIORITY = 8,
        MEM_SYNC_DOMAIN_MAP = 9, MEM_SYNC_DOMAIN = 10, PREFERRED_CLUSTER_DIMENSION = 11,
        LAUNCH_COMPLETION_EVENT = 12, DEVICE_UPDATABLE_KERNEL_NODE = 13,
        PREFERRED_SHARED_MEMORY_CARVEOUT = 14, NVLINK_UTIL_CENTRIC_SCHEDULING = 16,
        PORTABLE_CLUSTER_SIZE_MODE = 17, SHARED_MEMORY_MODE = 18,
    }
    /// Flags of `cuStreamCreate`.
    CUstream_flags "CU_STREAM_" {
        DEFAULT = 0, NON_BLOCKING = 1,
    }
    /// Flags of `cuEventCreate`.
    CUevent_flags "CU_EVENT_" {
        DEFAULT = 0, BLOCKING_SYNC = 1, DISABLE_TIMING = 2, INTERPROCESS = 4,
    }
    /// Flags of `cuEventRecordWithFlags`.
    CUevent_record_flags "CU_EVENT_RECORD_" {
        DEFAULT = 0, EXTERNAL = 1,
    }
    /// Flags of `cuStreamWaitEvent`.
    CUevent_wait_flags "CU_EVENT_WAIT_" {
        DEFAULT = 0, EXTERNAL = 1,
    }
    /// The comparison that `cuStreamWaitValue32` waits for.
    CUstreamWaitValue_flags "CU_STREAM_WAIT_VALUE_" {
        GEQ = 0, EQ = 1, AND = 2, NOR = 3, FLUSH = 1073741824,
    }
    /// Flags of `cuStreamWriteValue32`.
    CUstreamWriteValue_flags "CU_STREAM_WRITE_VALUE_" {
        DEFAULT = 0, NO_MEMORY_BARRIER = 1,
    }
    /// Kind of one entry of `cuStreamBatchMemOp`.
    CUstreamBatchMemOpType "CU_STREAM_MEM_OP_" {
        WAIT_VALUE_32 = 1, WRITE_VALUE_32 = 2, WAIT_VALUE_64 = 4, WRITE_VALUE_64 = 5, BARRIER = 6,
        ATOMIC_REDUCTION = 8, FLUSH_REMOTE_WRITES = 3,
    }
    /// Scope of a memory barrier in a batch.
    CUstreamMemoryBarrier_flags "CU_STREAM_MEMORY_BARRIER_TYPE_" {
        SYS = 0, GPU = 1,
    }
    /// Operation of an atomic reduction in a batch.
    CUstreamAtomicReductionOpType "CU_STREAM_ATOMIC_REDUCTION_OP_" {
        OR = 6, AND = 5, ADD = 0,
    }
    /// Operand type of an atomic reduction in a batch.
    CUstreamAtomicReductionDataType "CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_" {
        _32 = 14, _64 = 22,
    }
    /// Whether a stream is capturing.
    CUstreamCaptureStatus "CU_STREAM_CAPTURE_STATUS_" {
        NONE = 0, ACTIVE = 1, INVALIDATED = 2,
    }
    /// Mode of a capture: the calls that it forbids, and the threads that may not make them.
    CUstreamCaptureMode "CU_STREAM_CAPTURE_MODE_" {
        GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2,
    }
    /// Whether the given dependencies are added or replace the present ones.
    CUstreamUpdateCaptureDependencies_flags "CU_STREAM_" {
        ADD_CAPTURE_DEPENDENCIES = 0, SET_CAPTURE_DEPENDENCIES = 1,
    }
    /// Kind of graphics data shared with a stream.
    CUstreamCigDataType "STREAM_CIG_DATA_TYPE_" {
        D3D12_COMMAND_LIST = 1, VULKAN_COMMAND_BUFFER_HANDLE_NV = 2,
    }
    /// L2 residency of an access window.
    CUaccessProperty "CU_ACCESS_PROPERTY_" {
        NORMAL = 0, STREAMING = 1, PERSISTING = 2,
    }
}
