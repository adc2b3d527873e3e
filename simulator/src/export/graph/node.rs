//! Functions that read and change the parameters of nodes.

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{get, put};
use crate::export::graph::parameters::{self, narrowed, of_allocation, of_kernel, widened};
use crate::object::graph::node;
use crate::object::graph::node::Operation;

export! {
    cuGraphKernelNodeGetParams => get_kernel_v1;
    cuGraphKernelNodeGetParams_v2 => get_kernel;
    cuGraphKernelNodeSetParams => set_kernel_v1;
    cuGraphKernelNodeSetParams_v2 => set_kernel;
    cuGraphMemcpyNodeGetParams => get_copy;
    cuGraphMemcpyNodeSetParams => set_copy;
    cuGraphMemsetNodeGetParams => get_set;
    cuGraphMemsetNodeSetParams => set_set;
    cuGraphHostNodeGetParams => get_host;
    cuGraphHostNodeSetParams => set_host;
    cuGraphChildGraphNodeGetGraph => get_child;
    cuGraphEventRecordNodeGetEvent => get_recorded_event;
    cuGraphEventRecordNodeSetEvent => set_recorded_event;
    cuGraphEventWaitNodeGetEvent => get_awaited_event;
    cuGraphEventWaitNodeSetEvent => set_awaited_event;
    cuGraphMemAllocNodeGetParams => get_allocation;
    cuGraphMemFreeNodeGetParams => get_freed;
    cuGraphNodeSetParams => set_tagged;
    cuGraphNodeGetParams => get_tagged;
    cuGraphKernelNodeCopyAttributes => copy_attributes;
    cuGraphKernelNodeGetAttribute => get_attribute;
    cuGraphKernelNodeSetAttribute => set_attribute;
}

/// Reads from a node's operation; `look` returns `None` for another kind of operation, which is an error.
fn read<R>(handle: CUgraphNode, look: impl FnOnce(&Operation) -> Option<R>) -> Result<R, CUerror> {
    let (graph, key) = node(handle)?;
    let found = graph.with(|body| body.topology.get(key).and_then(|node| look(&node.payload)));
    found.ok_or(CUerror::INVALID_VALUE)
}

/// Replaces a node's operation by another of the same kind.
///
/// # Errors
/// `INVALID_VALUE` for another kind; `NOT_SUPPORTED` for allocation and free nodes.
fn replace(handle: CUgraphNode, mut operation: Operation) -> CUresult {
    let (graph, key) = node(handle)?;
    graph.with(|body| {
        let node = body.topology.get_mut(key).ok_or(CUerror::INVALID_VALUE)?;
        if node.payload.is_memory_node() {
            return Err(CUerror::NOT_SUPPORTED);
        }
        if node.payload.kind() != operation.kind() || matches!(operation, Operation::Child(_)) {
            return Err(CUerror::INVALID_VALUE);
        }
        operation.keep_attributes_of(&node.payload);
        node.payload = operation;
        Ok(())
    })
}

fn get_kernel_v1(node: CUgraphNode, place: *mut CUDA_KERNEL_NODE_PARAMS_v1) -> CUresult {
    put(place, narrowed(&kernel_of(node)?))
}

fn get_kernel(node: CUgraphNode, place: *mut CUDA_KERNEL_NODE_PARAMS) -> CUresult {
    put(place, kernel_of(node)?)
}

fn kernel_of(node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS, CUerror> {
    read(node, |operation| match operation {
        Operation::Kernel(kernel) => Some(of_kernel(kernel)),
        _ => None,
    })
}

fn set_kernel_v1(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) -> CUresult {
    replace(node, parameters::kernel(&widened(&get(params)?))?)
}

fn set_kernel(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS) -> CUresult {
    replace(node, parameters::kernel(&get(params)?)?)
}

fn get_copy(node: CUgraphNode, place: *mut CUDA_MEMCPY3D) -> CUresult {
    let params = read(node, |operation| match operation {
        Operation::Copy(transfer, _) => Some(transfer.params),
        _ => None,
    })?;
    put(place, params)
}

fn set_copy(node: CUgraphNode, params: *const CUDA_MEMCPY3D) -> CUresult {
    let context = read(node, context_of)?;
    replace(node, parameters::copy(params, CUcontext(context))?)
}

fn context_of(operation: &Operation) -> Option<usize> {
    match operation {
        Operation::Copy(_, context) | Operation::Set(_, context) => Some(*context),
        _ => None,
    }
}

fn get_set(node: CUgraphNode, place: *mut CUDA_MEMSET_NODE_PARAMS) -> CUresult {
    let params = read(node, |operation| match operation {
        Operation::Set(fill, _) => Some(fill.params),
        _ => None,
    })?;
    put(place, params)
}

fn set_set(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS) -> CUresult {
    let context = read(node, context_of)?;
    replace(node, parameters::set(params, CUcontext(context))?)
}

fn get_host(node: CUgraphNode, place: *mut CUDA_HOST_NODE_PARAMS) -> CUresult {
    let host = read(node, |operation| match operation {
        Operation::Host(host) => Some(*host),
        _ => None,
    })?;
    put(place, CUDA_HOST_NODE_PARAMS { r#fn: Some(host.function), userData: host.data })
}

fn set_host(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS) -> CUresult {
    replace(node, parameters::host(params)?)
}

fn get_child(node: CUgraphNode, place: *mut CUgraph) -> CUresult {
    let child = read(node, |operation| match operation {
        Operation::Child(child) => Some(child.handle),
        _ => None,
    })?;
    put(place, CUgraph(child))
}

fn get_recorded_event(node: CUgraphNode, place: *mut CUevent) -> CUresult {
    let event = read(node, |operation| match operation {
        Operation::EventRecord(event) => Some(event.handle),
        _ => None,
    })?;
    put(place, CUevent(event))
}

fn set_recorded_event(node: CUgraphNode, event: CUevent) -> CUresult {
    replace(node, Operation::EventRecord(parameters::event(event)?))
}

fn get_awaited_event(node: CUgraphNode, place: *mut CUevent) -> CUresult {
    let event = read(node, |operation| match operation {
        Operation::EventWait(event) => Some(event.handle),
        _ => None,
    })?;
    put(place, CUevent(event))
}

fn set_awaited_event(node: CUgraphNode, event: CUevent) -> CUresult {
    replace(node, Operation::EventWait(parameters::event(event)?))
}

fn get_allocation(node: CUgraphNode, place: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult {
    let params = read(node, |operation| match operation {
        Operation::Alloc(allocation) => Some(of_allocation(allocation)),
        _ => None,
    })?;
    put(place, params)
}

fn get_freed(node: CUgraphNode, place: *mut CUdeviceptr) -> CUresult {
    let address = read(node, |operation| match operation {
        Operation::Free(address) => Some(*address),
        _ => None,
    })?;
    put(place, address)
}

fn get_tagged(node: CUgraphNode, place: *mut CUgraphNodeParams) -> CUresult {
    put(place, read(node, |operation| Some(parameters::of_operation(operation)))??)
}

/// A child graph's node cannot be given another graph here (docs/hardware.md, "graphs").
fn set_tagged(node: CUgraphNode, params: *mut CUgraphNodeParams) -> CUresult {
    let kind = get(params.cast_const())?.r#type;
    if kind == CUgraphNodeType::GRAPH
        || kind == CUgraphNodeType::MEM_ALLOC
        || kind == CUgraphNodeType::MEM_FREE
    {
        return Err(CUerror::NOT_SUPPORTED);
    }
    replace(node, parameters::tagged(params)?)
}

/// The only stored attribute of a kernel node: whether it is cooperative.
fn cooperative_of(node: CUgraphNode) -> Result<bool, CUerror> {
    read(node, |operation| match operation {
        Operation::Kernel(kernel) => Some(kernel.is_cooperative),
        _ => None,
    })
}

fn set_cooperative(handle: CUgraphNode, is_cooperative: bool) -> CUresult {
    let (graph, key) = node(handle)?;
    graph.with(|body| match body.topology.get_mut(key).map(|node| &mut node.payload) {
        Some(Operation::Kernel(kernel)) => {
            kernel.is_cooperative = is_cooperative;
            Ok(())
        }
        _ => Err(CUerror::INVALID_VALUE),
    })
}

fn copy_attributes(to: CUgraphNode, from: CUgraphNode) -> CUresult {
    set_cooperative(to, cooperative_of(from)?)
}

/// Reads an attribute; those without effect here are zero.
fn get_attribute(node: CUgraphNode, id: CUlaunchAttributeID, place: *mut CUlaunchAttributeValue) -> CUresult {
    let is_cooperative = cooperative_of(node)?;
    check_attribute(id)?;
    // SAFETY: numbers and raw pointers only, for which zero is a value.
    let mut value: CUlaunchAttributeValue = unsafe { core::mem::zeroed() };
    if id == CUlaunchAttributeID::COOPERATIVE {
        value.cooperative = c_int::from(is_cooperative);
    }
    put(place, value)
}

fn set_attribute(
    node: CUgraphNode,
    id: CUlaunchAttributeID,
    value: *const CUlaunchAttributeValue,
) -> CUresult {
    cooperative_of(node)?;
    check_attribute(id)?;
    let value = get(value)?;
    if id == CUlaunchAttributeID::COOPERATIVE {
        // SAFETY: the id says that this member counts; all bit patterns are valid numbers.
        let cooperative = unsafe { value.cooperative };
        return set_cooperative(node, cooperative != 0);
    }
    Ok(())
}

fn check_attribute(id: CUlaunchAttributeID) -> CUresult {
    match id {
        CUlaunchAttributeID::ACCESS_POLICY_WINDOW
        | CUlaunchAttributeID::COOPERATIVE
        | CUlaunchAttributeID::CLUSTER_DIMENSION
        | CUlaunchAttributeID::CLUSTER_SCHEDULING_POLICY_PREFERENCE
        | CUlaunchAttributeID::PRIORITY
        | CUlaunchAttributeID::MEM_SYNC_DOMAIN_MAP
        | CUlaunchAttributeID::MEM_SYNC_DOMAIN => Ok(()),
        _ => Err(CUerror::INVALID_VALUE),
    }
}
