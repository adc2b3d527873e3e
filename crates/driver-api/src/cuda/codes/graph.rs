//! Graph codes.

codes! {
    /// Kind of a graph node.
    CUgraphNodeType "CU_GRAPH_NODE_TYPE_" {
        KERNEL = 0, MEMCPY = 1, MEMSET = 2, HOST = 3, GRAPH = 4, EMPTY = 5, WAIT_EVENT = 6,
        EVENT_RECORD = 7, EXT_SEMAS_SIGNAL = 8, EXT_SEMAS_WAIT = 9, MEM_ALLOC = 10, MEM_FREE = 11,
        BATCH_MEM_OP = 12, CONDITIONAL = 13, MEMCPY_BATCH = 14, RESERVED_16 = 16, EXTERNAL_ENGINE = 17,
        FABRIC_CPY_BATCH = 18,
    }
    /// Kind of an edge between graph nodes.
    CUgraphDependencyType "CU_GRAPH_DEPENDENCY_TYPE_" {
        DEFAULT = 0, PROGRAMMATIC = 1,
    }
    /// Outcome of an instantiation: success, or the reason of its failure.
    CUgraphInstantiateResult "CUDA_GRAPH_INSTANTIATE_" {
        SUCCESS = 0, ERROR = 1, INVALID_STRUCTURE = 2, NODE_OPERATION_NOT_SUPPORTED = 3,
        MULTIPLE_CTXS_NOT_SUPPORTED = 4, CONDITIONAL_HANDLE_UNUSED = 5,
    }
    /// Flags of `cuGraphInstantiateWithFlags`.
    CUgraphInstantiate_flags "CUDA_GRAPH_INSTANTIATE_FLAG_" {
        AUTO_FREE_ON_LAUNCH = 1, UPLOAD = 2, DEVICE_LAUNCH = 4, USE_NODE_PRIORITY = 8,
    }
    /// Outcome of `cuGraphExecUpdate`.
    CUgraphExecUpdateResult "CU_GRAPH_EXEC_UPDATE_" {
        SUCCESS = 0, ERROR = 1, ERROR_TOPOLOGY_CHANGED = 2, ERROR_NODE_TYPE_CHANGED = 3,
        ERROR_FUNCTION_CHANGED = 4, ERROR_PARAMETERS_CHANGED = 5, ERROR_NOT_SUPPORTED = 6,
        ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7, ERROR_ATTRIBUTES_CHANGED = 8,
    }
    /// Attributes of a device's graph memory.
    CUgraphMem_attribute "CU_GRAPH_MEM_ATTR_" {
        USED_MEM_CURRENT = 0, USED_MEM_HIGH = 1, RESERVED_MEM_CURRENT = 2, RESERVED_MEM_HIGH = 3,
    }
    /// Kind of a conditional node.
    CUgraphConditionalNodeType "CU_GRAPH_COND_TYPE_" {
        IF = 0, WHILE = 1, SWITCH = 2,
    }
    /// Whether a child graph is cloned or moved into its node.
    CUgraphChildGraphNodeOwnership "CU_GRAPH_CHILD_GRAPH_OWNERSHIP_" {
        CLONE = 0, MOVE = 1, INVALID = 0xffffffff,
    }
    /// Parts that `cuGraphDebugDotPrint` prints.
    CUgraphDebugDot_flags "CU_GRAPH_DEBUG_DOT_FLAGS_" {
        VERBOSE = 1, RUNTIME_TYPES = 2, KERNEL_NODE_PARAMS = 4, MEMCPY_NODE_PARAMS = 8,
        MEMSET_NODE_PARAMS = 16, HOST_NODE_PARAMS = 32, EVENT_NODE_PARAMS = 64,
        EXT_SEMAS_SIGNAL_NODE_PARAMS = 128, EXT_SEMAS_WAIT_NODE_PARAMS = 256, KERNEL_NODE_ATTRIBUTES = 512,
        HANDLES = 1024, MEM_ALLOC_NODE_PARAMS = 2048, MEM_FREE_NODE_PARAMS = 4096,
        BATCH_MEM_OP_NODE_PARAMS = 8192, EXTRA_TOPO_INFO = 16384, CONDITIONAL_NODE_PARAMS = 32768,
        MEMCPY_BATCH_NODE_PARAMS = 65536, FABRIC_CPY_BATCH_NODE_PARAMS = 131072,
    }
    /// Whether a recaptured node fits the executable graph.
    CUgraphRecaptureStatus "CU_GRAPH_RECAPTURE_" {
        ELIGIBLE_FOR_UPDATE = 0, INELIGIBLE_FOR_UPDATE = 1, ERROR = 2,
    }
}
