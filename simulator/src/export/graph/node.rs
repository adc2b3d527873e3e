//! Functions that read the parameters of nodes.

use vcuda_driver_api::prelude::*;

use crate::base::ffi::put;
use crate::export::graph::parameters::{of_allocation, of_kernel};
use crate::object::graph::node;
use crate::object::graph::node::Operation;

export! {
    cuGraphKernelNodeGetParams_v2 => get_kernel;
    cuGraphMemcpyNodeGetParams => get_copy;
    cuGraphMemsetNodeGetParams => get_set;
    cuGraphChildGraphNodeGetGraph => get_child;
    cuGraphMemAllocNodeGetParams => get_allocation;
}

/// Reads from a node's operation; `look` returns `None` for another kind of operation, which is an error.
fn read<R>(handle: CUgraphNode, look: impl FnOnce(&Operation) -> Option<R>) -> Result<R, CUerror> {
    let (graph, key) = node(handle)?;
    let found = graph.with(|topology| topology.get(key).and_then(|node| look(&node.payload)));
    found.ok_or(CUerror::INVALID_VALUE)
}

fn get_kernel(node: CUgraphNode, place: *mut CUDA_KERNEL_NODE_PARAMS) -> CUresult {
    let params = read(node, |operation| match operation {
        Operation::Kernel(kernel) => Some(of_kernel(kernel)),
        _ => None,
    })?;
    put(place, params)
}

fn get_copy(node: CUgraphNode, place: *mut CUDA_MEMCPY3D) -> CUresult {
    let params = read(node, |operation| match operation {
        Operation::Copy(transfer, _) => Some(transfer.params),
        _ => None,
    })?;
    put(place, params)
}

fn get_set(node: CUgraphNode, place: *mut CUDA_MEMSET_NODE_PARAMS) -> CUresult {
    let params = read(node, |operation| match operation {
        Operation::Set(fill, _) => Some(fill.params),
        _ => None,
    })?;
    put(place, params)
}

fn get_child(node: CUgraphNode, place: *mut CUgraph) -> CUresult {
    let child = read(node, |operation| match operation {
        Operation::Child(child) => Some(child.handle),
        _ => None,
    })?;
    put(place, CUgraph(child))
}

fn get_allocation(node: CUgraphNode, place: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> CUresult {
    let params = read(node, |operation| match operation {
        Operation::Alloc(allocation) => Some(of_allocation(allocation)),
        _ => None,
    })?;
    put(place, params)
}
