//! Functions that add nodes.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{get, put};
use crate::export::graph::edges::pairs;
use crate::export::graph::parameters::{self, widened};
use crate::object::graph::node::Operation;
use crate::object::graph::{Graph, discard, graph};

export! {
    cuGraphAddKernelNode => add_kernel_v1;
    cuGraphAddKernelNode_v2 => add_kernel;
    cuGraphAddMemcpyNode => add_copy;
    cuGraphAddMemsetNode => add_set;
    cuGraphAddHostNode => add_host;
    cuGraphAddChildGraphNode => add_child;
    cuGraphAddEmptyNode => add_empty;
    cuGraphAddEventRecordNode => add_event_record;
    cuGraphAddEventWaitNode => add_event_wait;
    cuGraphAddMemAllocNode => add_allocation;
    cuGraphAddMemFreeNode => add_free;
    cuGraphAddNode => add_node_v1;
    cuGraphAddNode_v2 => add_node;
    cuGraphAddNode_v3 => add_node;
}

/// Target of a new node: graph, dependencies and the place for its handle.
#[derive(Clone, Copy)]
struct Place {
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    /// Whether a child graph is moved, not copied.
    is_moved: bool,
}

impl Place {
    fn new(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize) -> Place {
        Place { node, graph, dependencies, data: core::ptr::null(), count, is_moved: false }
    }

    /// Adds the node that `make` returns. Nothing is made for an invalid target.
    fn add(self, make: impl FnOnce() -> Result<Operation, CUerror>) -> CUresult {
        let graph = graph(self.graph)?;
        if self.node.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        let dependencies = pairs(self.dependencies, self.data, self.count)?;
        graph.check_dependencies(&dependencies)?;
        let operation = make()?;
        let child = if let Operation::Child(child) = &operation { Some(Arc::clone(child)) } else { None };
        // A moved graph could come to contain itself.
        let added = if child.as_ref().is_some_and(|child| child.leads_to(&graph)) {
            Err(CUerror::INVALID_VALUE)
        } else {
            graph.add(operation, &dependencies)
        };
        match added {
            Ok(key) => put(self.node, CUgraphNode(key)),
            Err(error) => {
                if let Some(child) = child {
                    self.refuse(&child);
                }
                Err(error)
            }
        }
    }

    /// Returns a moved child graph to its owner; destroys a copy.
    fn refuse(self, child: &Graph) {
        if self.is_moved {
            child.unembed();
        } else {
            discard(child.handle);
        }
    }
}

fn add_kernel_v1(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| parameters::kernel(&widened(&get(params)?)))
}

fn add_kernel(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| parameters::kernel(&get(params)?))
}

fn add_copy(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| parameters::copy(params, context))
}

fn add_set(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| parameters::set(params, context))
}

fn add_host(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *const CUDA_HOST_NODE_PARAMS,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| parameters::host(params))
}

/// "The child graph is cloned in this call."
fn add_child(
    node: *mut CUgraphNode,
    handle: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> CUresult {
    Place::new(node, handle, dependencies, count).add(|| Ok(Operation::Child(graph(child)?.copy()?)))
}

fn add_empty(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| Ok(Operation::Empty))
}

fn add_event_record(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| parameters::event(event).map(Operation::EventRecord))
}

fn add_event_wait(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| parameters::event(event).map(Operation::EventWait))
}

fn add_allocation(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| parameters::allocation(params))
}

fn add_free(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> CUresult {
    Place::new(node, graph, dependencies, count).add(|| Ok(Operation::Free(address)))
}

fn add_node_v1(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    add_node(node, graph, dependencies, core::ptr::null(), count, params)
}

fn add_node(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    params: *mut CUgraphNodeParams,
) -> CUresult {
    Place { node, graph, dependencies, data, count, is_moved: parameters::moves_child(params) }
        .add(|| parameters::tagged(params))
}
