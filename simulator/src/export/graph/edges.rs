//! Functions that list nodes and add edges.

use crate::base::ffi::MOST_ELEMENTS;
use crate::export::prelude::*;
use crate::object::capture::{EdgeData, NodeKey};
use crate::object::graph::graph;
use crate::object::graph::topology::PLAIN;

export! {
    cuGraphGetNodes => get_nodes;
    cuGraphAddDependencies => |handle, from, to, count| add(handle, from, to, core::ptr::null(), count);
    cuGraphAddDependencies_v2 => add;
}

/// Reads nodes and their optional edge data. Error: `INVALID_VALUE` for a null array with a count, or edge data with
/// reserved fields or a to-port ("must be set to zero").
pub(crate) fn pairs(
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<Vec<(NodeKey, EdgeData)>, CUerror> {
    let nodes = get_array(nodes, count)?;
    let data = read_data(data, count)?;
    Ok(nodes.iter().map(|node| node.0).zip(data).collect())
}

fn read_data(data: *const CUgraphEdgeData, count: usize) -> Result<Vec<EdgeData>, CUerror> {
    if data.is_null() {
        return Ok(vec![PLAIN; count]);
    }
    let data = get_array(data, count)?;
    if data.iter().any(|data| data.to_port != 0 || data.reserved != [0; 5]) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(data.iter().map(|data| [data.from_port, data.to_port, data.r#type, 0, 0, 0, 0, 0]).collect())
}

/// Returns the number of nodes without an array; else as many nodes as fit, and null in the remaining elements.
fn get_nodes(handle: CUgraph, array: *mut CUgraphNode, count: *mut usize) -> CUresult {
    let found: Vec<NodeKey> =
        graph(handle)?.with(|topology| topology.nodes().iter().map(|node| node.key).collect());
    if array.is_null() {
        return put(count, found.len());
    }
    let room = get(count.cast_const())?;
    if room > MOST_ELEMENTS {
        return Err(CUerror::INVALID_VALUE);
    }
    for index in 0..room {
        put_at(array, index, CUgraphNode(found.get(index).copied().unwrap_or(0)));
    }
    put(count, found.len().min(room))
}

fn add(
    handle: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> CUresult {
    let graph = graph(handle)?;
    let edges = triples(from, to, data, count)?;
    graph.with(|topology| topology.add_edges(&edges))
}

fn triples(
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<Vec<(NodeKey, NodeKey, EdgeData)>, CUerror> {
    let from = get_array(from, count)?;
    let to = get_array(to, count)?;
    let data = read_data(data, count)?;
    Ok(from.iter().zip(&to).zip(data).map(|((from, to), data)| (from.0, to.0, data)).collect())
}
