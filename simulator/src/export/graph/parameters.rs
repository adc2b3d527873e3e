//! Conversion between the API's structures of node parameters and operations.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{get, get_array, put};
use crate::object::arguments::Given;
use crate::object::current::current;
use crate::object::fill::Fill;
use crate::object::graph::node::{Allocation, Operation};
use crate::object::graph_memory::GraphBlock;
use crate::object::host_function::HostFunction;
use crate::object::kernel::{Kernel, Shape};
use crate::object::transfer::Transfer;
use crate::semantics::graph::give_away;

/// Kernel parameters of CUDA before 12 as the newer structure.
pub(crate) fn widened(old: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: old.func,
        gridDimX: old.gridDimX,
        gridDimY: old.gridDimY,
        gridDimZ: old.gridDimZ,
        blockDimX: old.blockDimX,
        blockDimY: old.blockDimY,
        blockDimZ: old.blockDimZ,
        sharedMemBytes: old.sharedMemBytes,
        kernelParams: old.kernelParams,
        extra: old.extra,
        kern: CUkernel::NULL,
        ctx: CUcontext::NULL,
    }
}

/// A kernel node. Either `func` or `kern` names what runs; a kernel is one of `ctx`, or of the current context. Errors:
/// `INVALID_VALUE` for sizes, arguments or a function that is none; `INVALID_CONTEXT`.
pub(crate) fn kernel(params: &CUDA_KERNEL_NODE_PARAMS) -> Result<Operation, CUerror> {
    let named = if params.func.0 == 0 { params.kern.0 } else { params.func.0 };
    let function = if params.ctx.is_null() || crate::object::module::FUNCTIONS.get(named).is_some() {
        crate::object::library::function(CUfunction(named))
    } else {
        let context = crate::object::context::context(params.ctx.0)?;
        crate::object::library::kernel(CUkernel(named))?.function(&context)
    };
    let function = function.map_err(|_| CUerror::INVALID_VALUE)?;
    let shape = Shape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared: params.sharedMemBytes,
    };
    let given = Given::read(params.kernelParams, params.extra)?;
    Kernel::new(function, named, shape, given, false).map(Operation::Kernel)
}

/// Kernel parameters for `cuGraphKernelNodeGetParams`; the node owns the arrays.
pub(crate) fn of_kernel(kernel: &Kernel) -> CUDA_KERNEL_NODE_PARAMS {
    let (parameters, extra) = kernel.arguments.lists();
    let is_kernel = crate::object::library::KERNELS.get(kernel.named).is_some();
    let [grid_x, grid_y, grid_z] = kernel.shape.grid;
    let [block_x, block_y, block_z] = kernel.shape.block;
    CUDA_KERNEL_NODE_PARAMS {
        func: CUfunction(if is_kernel { 0 } else { kernel.named }),
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: kernel.shape.shared,
        kernelParams: parameters,
        extra,
        kern: CUkernel(if is_kernel { kernel.named } else { 0 }),
        ctx: CUcontext::NULL,
    }
}

/// Handle of the context for a copy or memset: the given one, else the current one.
fn context_or_current(context: CUcontext) -> Result<usize, CUerror> {
    if context.is_null() {
        return Ok(current()?.handle);
    }
    Ok(crate::object::context::context(context.0)?.handle)
}

pub(crate) fn copy(params: *const CUDA_MEMCPY3D, context: CUcontext) -> Result<Operation, CUerror> {
    let context = context_or_current(context)?;
    let transfer = Transfer::new(&get(params)?)?;
    if transfer.bytes() == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Operation::Copy(transfer, context))
}

pub(crate) fn set(params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Result<Operation, CUerror> {
    let context = context_or_current(context)?;
    let fill = Fill::new(&get(params)?)?;
    if fill.bytes() == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Operation::Set(fill, context))
}

/// A host node. Error: `INVALID_VALUE` without a function.
pub(crate) fn host(params: *const CUDA_HOST_NODE_PARAMS) -> Result<Operation, CUerror> {
    let params = get(params)?;
    let function = params.r#fn.ok_or(CUerror::INVALID_VALUE)?;
    Ok(Operation::Host(HostFunction { function, data: params.userData }))
}

/// An allocation node; writes its address to `params`. Errors: `INVALID_VALUE` for no bytes or memory that is not
/// pinned on a device; `NOT_SUPPORTED` for memory that is to be exported; `INVALID_DEVICE`; `OUT_OF_MEMORY` without
/// address space.
pub(crate) fn allocation(params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Result<Operation, CUerror> {
    let mut asked = get(params.cast_const())?;
    let properties = &asked.poolProps;
    if properties.allocType != CUmemAllocationType::PINNED
        || properties.location.r#type != CUmemLocationType::DEVICE
    {
        return Err(CUerror::INVALID_VALUE);
    }
    if properties.handleTypes != CUmemAllocationHandleType::NONE {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let device = crate::object::process::device(properties.location.id)?;
    let access = get_array(asked.accessDescs, asked.accessDescCount)?;
    let block = GraphBlock::reserve(device, asked.bytesize as u64)?;
    asked.dptr = block.address();
    put(params, asked)?;
    Ok(Operation::Alloc(Allocation { block, access: Arc::from(access) }))
}

/// Parameters for `cuGraphMemAllocNodeGetParams`.
pub(crate) fn of_allocation(allocation: &Allocation) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: integers, handles and raw pointers only, for which zero is a value.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { core::mem::zeroed() };
    params.poolProps.allocType = CUmemAllocationType::PINNED;
    params.poolProps.location.r#type = CUmemLocationType::DEVICE;
    params.poolProps.location.id = allocation.block.device().ordinal;
    if !allocation.access.is_empty() {
        params.accessDescs = allocation.access.as_ptr();
        params.accessDescCount = allocation.access.len();
    }
    params.bytesize = usize::try_from(allocation.block.bytes()).unwrap_or(usize::MAX);
    params.dptr = allocation.block.address();
    params
}

/// An operation from the tagged union of `cuGraphAddNode` and its relatives. An allocation node's address is written
/// into it. Errors: those of the kind of node; `NOT_SUPPORTED` for semaphores, conditional and other newer nodes.
pub(crate) fn tagged(params: *mut CUgraphNodeParams) -> Result<Operation, CUerror> {
    let kind = get(params.cast_const())?.r#type;
    let value = value_of(params);
    match kind {
        CUgraphNodeType::KERNEL => kernel(&get(value.cast::<CUDA_KERNEL_NODE_PARAMS>())?),
        CUgraphNodeType::MEMCPY => {
            let node = get(value.cast::<CUDA_MEMCPY_NODE_PARAMS>())?;
            copy(&raw const node.copyParams, node.copyCtx)
        }
        CUgraphNodeType::MEMSET => {
            let context = get(value.cast::<CUDA_MEMSET_NODE_PARAMS_v2>())?.ctx;
            // The older structure is the beginning of the newer one.
            set(value.cast(), context)
        }
        CUgraphNodeType::HOST => host(value.cast()),
        CUgraphNodeType::GRAPH => {
            let node = get(value.cast::<CUDA_CHILD_GRAPH_NODE_PARAMS>())?;
            let graph = crate::object::graph::graph(node.graph)?;
            match node.ownership {
                CUgraphChildGraphNodeOwnership::CLONE => graph.copy().map(Operation::Child),
                CUgraphChildGraphNodeOwnership::MOVE => give_away(graph).map(Operation::Child),
                _ => Err(CUerror::INVALID_VALUE),
            }
        }
        CUgraphNodeType::EMPTY => Ok(Operation::Empty),
        CUgraphNodeType::WAIT_EVENT => {
            let node = get(value.cast::<CUDA_EVENT_WAIT_NODE_PARAMS>())?;
            event(node.event).map(Operation::EventWait)
        }
        CUgraphNodeType::EVENT_RECORD => {
            let node = get(value.cast::<CUDA_EVENT_RECORD_NODE_PARAMS>())?;
            event(node.event).map(Operation::EventRecord)
        }
        CUgraphNodeType::MEM_ALLOC => allocation(value.cast_mut().cast()),
        CUgraphNodeType::MEM_FREE => {
            Ok(Operation::Free(get(value.cast::<CUDA_MEM_FREE_NODE_PARAMS>())?.dptr))
        }
        CUgraphNodeType(known) if known <= 18 => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Whether a child graph node takes over the caller's graph.
pub(crate) fn moves_child(params: *mut CUgraphNodeParams) -> bool {
    let is_child = get(params.cast_const()).is_ok_and(|params| params.r#type == CUgraphNodeType::GRAPH);
    is_child
        && get(value_of(params).cast::<CUDA_CHILD_GRAPH_NODE_PARAMS>())
            .is_ok_and(|node| node.ownership == CUgraphChildGraphNodeOwnership::MOVE)
}

/// The event of a handle, with the error code of graph functions.
pub(crate) fn event(handle: CUevent) -> Result<Arc<crate::object::event::Event>, CUerror> {
    crate::object::event::event(handle).map_err(crate::object::sharing::as_invalid_value)
}

/// Address of the union in the structure.
fn value_of(params: *mut CUgraphNodeParams) -> *const u8 {
    params.cast::<u8>().wrapping_add(core::mem::offset_of!(CUgraphNodeParams, value)).cast_const()
}
