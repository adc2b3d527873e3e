//! Functions that query and change edges.
//!
//! The forms without edge data (CUDA before 12.3) handle ordinary edges only; a query that would lose data returns
//! `CUDA_ERROR_LOSSY_QUERY`.

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{MOST_ELEMENTS, get, get_array, put, put_at};
use crate::object::capture::{EdgeData, NodeKey};
use crate::object::graph::topology::PLAIN;
use crate::object::graph::{graph, node};

export! {
    cuGraphGetNodes => get_nodes;
    cuGraphGetRootNodes => get_root_nodes;
    cuGraphGetEdges => get_edges_v1;
    cuGraphGetEdges_v2 => get_edges;
    cuGraphNodeGetDependencies => get_dependencies_v1;
    cuGraphNodeGetDependencies_v2 => get_dependencies;
    cuGraphNodeGetDependentNodes => get_dependents_v1;
    cuGraphNodeGetDependentNodes_v2 => get_dependents;
    cuGraphAddDependencies => add_v1;
    cuGraphAddDependencies_v2 => add;
    cuGraphRemoveDependencies => remove_v1;
    cuGraphRemoveDependencies_v2 => remove;
    cuGraphDestroyNode => destroy_node;
}

/// The API's structure for stored edge data.
pub(crate) fn edge_data(data: EdgeData) -> CUgraphEdgeData {
    let [from_port, to_port, kind, reserved @ ..] = data;
    CUgraphEdgeData { from_port, to_port, r#type: kind, reserved }
}

/// Edge data as stored bytes.
pub(crate) fn from_edge_data(data: &CUgraphEdgeData) -> EdgeData {
    let [a, b, c, d, e] = data.reserved;
    [data.from_port, data.to_port, data.r#type, a, b, c, d, e]
}

/// Reads nodes and their optional edge data.
///
/// # Errors
/// `INVALID_VALUE` for a null array with a count, or edge data with reserved fields or a to-port ("must be
/// set to zero").
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
    Ok(data.iter().map(from_edge_data).collect())
}

/// Returns a list: its length without an array; else as many nodes as fit, and null in the remaining elements.
fn answer(found: &[NodeKey], array: *mut CUgraphNode, count: *mut usize) -> CUresult {
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

/// Returns the edge data of such a list.
fn answer_data(found: &[EdgeData], array: *mut CUgraphEdgeData, room: usize) {
    for index in 0..room.min(MOST_ELEMENTS) {
        put_at(array, index, edge_data(found.get(index).copied().unwrap_or(PLAIN)));
    }
}

fn check_loss(data: &[EdgeData], is_v1: bool) -> CUresult {
    if is_v1 && data.iter().any(|data| *data != PLAIN) { Err(CUerror::LOSSY_QUERY) } else { Ok(()) }
}

fn get_nodes(handle: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    let found: Vec<NodeKey> =
        graph(handle)?.with(|body| body.topology.nodes().iter().map(|node| node.key).collect());
    answer(&found, nodes, count)
}

fn get_root_nodes(handle: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    let found: Vec<NodeKey> = graph(handle)?.with(|body| {
        let roots = body.topology.nodes().iter().filter(|node| node.dependencies.is_empty());
        roots.map(|node| node.key).collect()
    });
    answer(&found, nodes, count)
}

fn get_edges_v1(
    handle: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> CUresult {
    edges(handle, from, to, core::ptr::null_mut(), count, true)
}

fn get_edges(
    handle: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    edges(handle, from, to, data, count, data.is_null())
}

fn edges(
    handle: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
    is_lossy: bool,
) -> CUresult {
    let found: Vec<_> = graph(handle)?.with(|body| body.topology.edges().collect());
    if from.is_null() != to.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    if from.is_null() {
        return put(count, found.len());
    }
    let all_data: Vec<EdgeData> = found.iter().map(|edge| edge.2).collect();
    check_loss(&all_data, is_lossy)?;
    let room = get(count.cast_const())?;
    answer(&found.iter().map(|edge| edge.0).collect::<Vec<_>>(), from, count)?;
    put(count, room)?;
    answer(&found.iter().map(|edge| edge.1).collect::<Vec<_>>(), to, count)?;
    answer_data(&all_data, data, room);
    Ok(())
}

fn get_dependencies_v1(handle: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    neighbours(handle, nodes, core::ptr::null_mut(), count, false)
}

fn get_dependencies(
    handle: CUgraphNode,
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    neighbours(handle, nodes, data, count, false)
}

fn get_dependents_v1(handle: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) -> CUresult {
    neighbours(handle, nodes, core::ptr::null_mut(), count, true)
}

fn get_dependents(
    handle: CUgraphNode,
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    neighbours(handle, nodes, data, count, true)
}

/// Dependencies or dependents of a node.
fn neighbours(
    handle: CUgraphNode,
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
    are_dependent: bool,
) -> CUresult {
    let (graph, key) = node(handle)?;
    let (found, all_data): (Vec<NodeKey>, Vec<EdgeData>) = graph.with(|body| {
        let edges = body.topology.edges();
        if are_dependent {
            edges.filter(|edge| edge.0 == key).map(|edge| (edge.1, edge.2)).unzip()
        } else {
            edges.filter(|edge| edge.1 == key).map(|edge| (edge.0, edge.2)).unzip()
        }
    });
    if !nodes.is_null() {
        check_loss(&all_data, data.is_null())?;
        answer_data(&all_data, data, get(count.cast_const())?);
    }
    answer(&found, nodes, count)
}

fn add_v1(handle: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) -> CUresult {
    add(handle, from, to, core::ptr::null(), count)
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
    graph.with(|body| body.topology.add_edges(&edges))
}

fn remove_v1(handle: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) -> CUresult {
    remove(handle, from, to, core::ptr::null(), count)
}

/// "Dependencies cannot be removed from graphs which contain allocation or free nodes."
fn remove(
    handle: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> CUresult {
    let graph = graph(handle)?;
    let edges = triples(from, to, data, count)?;
    graph.with(|body| {
        if body.has_memory_nodes() && !edges.is_empty() {
            return Err(CUerror::INVALID_VALUE);
        }
        body.topology.remove_edges(&edges)
    })
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

fn destroy_node(handle: CUgraphNode) -> CUresult {
    let (graph, key) = node(handle)?;
    crate::semantics::graph::remove(&graph, key)
}
