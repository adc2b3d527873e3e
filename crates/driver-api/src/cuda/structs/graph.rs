//! Graph structures.

use super::super::*;
use std::ffi::{c_char, c_int, c_uint, c_void};

structs! {
    /// Kind and ports of an edge.
    struct CUgraphEdgeData [8] {
        from_port: u8, to_port: u8, r#type: u8, reserved: [u8; 5],
    }
    /// A kernel node, with kernel and context (12.0; also the layout that [`CUgraphNodeParams`] has).
    struct CUDA_KERNEL_NODE_PARAMS [72] {
        func: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
        blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void, kern: CUkernel, ctx: CUcontext,
    }
    /// A set node; `width` in elements, `elementSize` and `pitch` in bytes.
    struct CUDA_MEMSET_NODE_PARAMS [40] {
        dst: CUdeviceptr, pitch: usize, value: c_uint, elementSize: c_uint, width: usize, height: usize,
    }
    /// A host function node.
    struct CUDA_HOST_NODE_PARAMS [16] {
        r#fn: CUhostFn, userData: *mut c_void,
    }
    /// An allocation node; `bytesize` in bytes, `dptr` is an output.
    struct CUDA_MEM_ALLOC_NODE_PARAMS [120] {
        poolProps: CUmemPoolProps, accessDescs: *const CUmemAccessDesc, accessDescCount: usize,
        bytesize: usize, dptr: CUdeviceptr,
    }
    /// Parameters and result of `cuGraphInstantiateWithParams`.
    struct CUDA_GRAPH_INSTANTIATE_PARAMS [32] {
        flags: u64, hUploadStream: CUstream, hErrNode_out: CUgraphNode,
        result_out: CUgraphInstantiateResult,
    }
    /// Outcome of `cuGraphExecUpdate_v2`.
    struct CUgraphExecUpdateResultInfo [24] {
        result: CUgraphExecUpdateResult, errorNode: CUgraphNode, errorFromNode: CUgraphNode,
    }
    /// A node of any type; `type` selects the member of `value`.
    struct CUgraphNodeParams [256] {
        r#type: CUgraphNodeType, reserved0: [c_int; 3], value: CUgraphNodeParams_value, reserved2: i64,
    }
    /// The parameters of a node, by its type.
    union CUgraphNodeParams_value [232] {
        reserved1: [i64; 29], kernel: CUDA_KERNEL_NODE_PARAMS, memcpy: CUDA_MEMCPY_NODE_PARAMS,
        memset: CUDA_MEMSET_NODE_PARAMS_v2, host: CUDA_HOST_NODE_PARAMS_v2,
        graph: CUDA_CHILD_GRAPH_NODE_PARAMS, eventWait: CUDA_EVENT_WAIT_NODE_PARAMS,
        eventRecord: CUDA_EVENT_RECORD_NODE_PARAMS, alloc: CUDA_MEM_ALLOC_NODE_PARAMS,
        free: CUDA_MEM_FREE_NODE_PARAMS, conditional: CUDA_CONDITIONAL_NODE_PARAMS,
        memcpyBatch: CUDA_MEMCPY_BATCH_NODE_PARAMS, fabricCpyBatch: CUDA_FABRIC_CPY_BATCH_NODE_PARAMS,
        asBytes: [c_char; 232],
    }
    /// A kernel node before CUDA 12.0.
    struct CUDA_KERNEL_NODE_PARAMS_v1 [56] {
        func: CUfunction, gridDimX: c_uint, gridDimY: c_uint, gridDimZ: c_uint, blockDimX: c_uint,
        blockDimY: c_uint, blockDimZ: c_uint, sharedMemBytes: c_uint, kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
    }
    /// A copy node of [`CUgraphNodeParams`].
    struct CUDA_MEMCPY_NODE_PARAMS [216] {
        flags: c_int, reserved: c_int, copyCtx: CUcontext, copyParams: CUDA_MEMCPY3D,
    }
    /// A set node of [`CUgraphNodeParams`].
    struct CUDA_MEMSET_NODE_PARAMS_v2 [48] {
        dst: CUdeviceptr, pitch: usize, value: c_uint, elementSize: c_uint, width: usize, height: usize,
        ctx: CUcontext,
    }
    /// A host function node of [`CUgraphNodeParams`]; `ctx` may also hold a green context.
    struct CUDA_HOST_NODE_PARAMS_v2 [32] {
        r#fn: CUhostFn, userData: *mut c_void, syncMode: c_uint, ctx: CUcontext,
    }
    /// A child graph node of [`CUgraphNodeParams`].
    struct CUDA_CHILD_GRAPH_NODE_PARAMS [16] {
        graph: CUgraph, ownership: CUgraphChildGraphNodeOwnership,
    }
    /// An event wait node of [`CUgraphNodeParams`].
    struct CUDA_EVENT_WAIT_NODE_PARAMS [8] {
        event: CUevent,
    }
    /// An event record node of [`CUgraphNodeParams`]; `ctx` may also hold a green context.
    struct CUDA_EVENT_RECORD_NODE_PARAMS [16] {
        event: CUevent, ctx: CUcontext,
    }
    /// A free node of [`CUgraphNodeParams`].
    struct CUDA_MEM_FREE_NODE_PARAMS [8] {
        dptr: CUdeviceptr,
    }
    /// A conditional node of [`CUgraphNodeParams`]; `phGraph_out`, an output, holds its bodies.
    struct CUDA_CONDITIONAL_NODE_PARAMS [32] {
        handle: CUgraphConditionalHandle, r#type: CUgraphConditionalNodeType, size: c_uint,
        phGraph_out: *mut CUgraph, ctx: CUcontext,
    }
    /// A batch of copies as a node; `ctx` may also hold a green context.
    struct CUDA_MEMCPY_BATCH_NODE_PARAMS [64] {
        count: usize, dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize,
        attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, ctx: CUcontext,
    }
    /// A batch of fabric copies as a node; `ctx` may also hold a green context.
    struct CUDA_FABRIC_CPY_BATCH_NODE_PARAMS [32] {
        numOps: usize, opList: *mut CUDA_FABRIC_COPY_BATCH_OP, flags: u64, ctx: CUcontext,
    }
}
