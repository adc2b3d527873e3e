//! Functions that read the parameters of nodes.

use crate::export::graph::parameters::{of_allocation, of_kernel};
use crate::export::prelude::*;
use crate::object::graph::node;
use crate::object::graph::node::Operation;

macro_rules! read {
    ($node:ident, $place:ident, $kind:ident($($field:tt),*) => $value:expr) => {
        read($node, $place, |operation| match operation {
            Operation::$kind($($field),*) => Some($value),
            _ => None,
        })
    };
}

export! {
    cuGraphKernelNodeGetParams_v2 => |node, place| read!(node, place, Kernel(kernel) => of_kernel(kernel));
    cuGraphMemcpyNodeGetParams => |node, place| read!(node, place, Copy(transfer, _) => transfer.params);
    cuGraphMemsetNodeGetParams => |node, place| read!(node, place, Set(fill, _) => fill.params);
    cuGraphChildGraphNodeGetGraph => |node, place| read!(node, place, Child(child) => CUgraph(child.handle));
    cuGraphMemAllocNodeGetParams => |node, place| read!(node, place, Alloc(memory) => of_allocation(memory));
}

/// Writes a value of a node's operation; a node of another kind is an error.
fn read<R>(handle: CUgraphNode, place: *mut R, look: impl FnOnce(&Operation) -> Option<R>) -> CUresult {
    let (graph, key) = node(handle)?;
    let found = graph.with(|topology| topology.get(key).and_then(|node| look(&node.payload)));
    put(place, found.ok_or(CUerror::INVALID_VALUE)?)
}
