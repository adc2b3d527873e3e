//! Questions to the driver about a graph: its nodes, their types, and the graphs nested in it.

use vcuda_driver_api::prelude::*;

use super::real;

/// Depth beyond which nested graphs are not followed. No program nests this deep, and the driver allows no cycle.
pub(crate) const DEEPEST: u32 = 64;

/// The nodes of a graph; `None` if the driver does not tell.
pub(crate) fn nodes(graph: CUgraph) -> Option<Vec<CUgraphNode>> {
    let mut count = 0;
    // SAFETY: without a place for nodes the driver only writes their number.
    unsafe { real::cuGraphGetNodes(graph, core::ptr::null_mut(), &raw mut count) }.ok()?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        // SAFETY: room for `count` nodes; the driver writes as many at most.
        unsafe { real::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count) }.ok()?;
    }
    nodes.truncate(count);
    Some(nodes)
}

/// The type of a node that the driver has just named; `None` if the driver does not tell.
pub(crate) fn node_type(node: CUgraphNode) -> Option<CUgraphNodeType> {
    let mut kind = CUgraphNodeType::EMPTY;
    // SAFETY: the driver writes a type or nothing.
    unsafe { real::cuGraphNodeGetType(node, &raw mut kind) }.ok()?;
    Some(kind)
}

/// The graph of a child graph node; `None` if the driver does not tell.
pub(crate) fn child_graph(node: CUgraphNode) -> Option<CUgraph> {
    let mut child = CUgraph::NULL;
    // SAFETY: a child graph node; the driver writes a graph or nothing.
    unsafe { real::cuGraphChildGraphNodeGetGraph(node, &raw mut child) }.ok()?;
    Some(child)
}
