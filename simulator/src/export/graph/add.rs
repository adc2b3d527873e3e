//! Functions that add nodes.

use std::sync::Arc;

use crate::export::graph::edges::pairs;
use crate::export::graph::parameters::{self, widened};
use crate::export::prelude::*;
use crate::object::graph::node::Operation;
use crate::object::graph::{Graph, discard, graph};

export! {
    cuGraphAddKernelNode => |node, graph, before, count, params|
        Place::new(node, graph, before, count).add(|| parameters::kernel(&widened(&get(params)?)));
    cuGraphAddKernelNode_v2 => |node, graph, before, count, params|
        Place::new(node, graph, before, count).add(|| parameters::kernel(&get(params)?));
    cuGraphAddMemcpyNode => |node, graph, before, count, params, context|
        Place::new(node, graph, before, count).add(|| parameters::copy(params, context));
    cuGraphAddMemsetNode => |node, graph, before, count, params, context|
        Place::new(node, graph, before, count).add(|| parameters::set(params, context));
    cuGraphAddHostNode => |node, graph, before, count, params|
        Place::new(node, graph, before, count).add(|| parameters::host(params));
    // "The child graph is cloned in this call."
    cuGraphAddChildGraphNode => |node, handle, before, count, child|
        Place::new(node, handle, before, count).add(|| Ok(Operation::Child(graph(child)?.copy()?)));
    cuGraphAddEmptyNode => |node, graph, before, count|
        Place::new(node, graph, before, count).add(|| Ok(Operation::Empty));
    cuGraphAddEventRecordNode => |node, graph, before, count, event|
        Place::new(node, graph, before, count).add(|| parameters::event(event).map(Operation::EventRecord));
    cuGraphAddEventWaitNode => |node, graph, before, count, event|
        Place::new(node, graph, before, count).add(|| parameters::event(event).map(Operation::EventWait));
    cuGraphAddMemAllocNode => |node, graph, before, count, params|
        Place::new(node, graph, before, count).add(|| parameters::allocation(params));
    cuGraphAddMemFreeNode => |node, graph, before, count, address|
        Place::new(node, graph, before, count).add(|| Ok(Operation::Free(address)));
    cuGraphAddNode => |node, graph, before, count, params|
        add_node(node, graph, before, core::ptr::null(), count, params);
    cuGraphAddNode_v2 | cuGraphAddNode_v3 => add_node;
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
