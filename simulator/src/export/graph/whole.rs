//! Whole graphs.

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{put, text};
use crate::export::graph::dot;
use crate::object::graph::{Graph, discard, graph, local_id, node};
use crate::semantics::capture;
use crate::semantics::graph::executable::executable;

export! {
    cuGraphCreate => create;
    cuGraphDestroy => destroy;
    cuGraphClone => clone;
    cuGraphNodeFindInClone => find_in_clone;
    cuGraphNodeGetType => get_type;
    cuGraphDebugDotPrint => print_dot;
    cuGraphGetId => get_id;
    cuGraphExecGetId => get_executable_id;
    cuGraphNodeGetContainingGraph => get_containing_graph;
    cuGraphNodeGetLocalId => get_local_id;
    cuGraphNodeGetToolsId => get_tools_id;
}

/// "Flags: must be 0."
fn create(place: *mut CUgraph, flags: c_uint) -> CUresult {
    crate::base::thread::permit()?;
    crate::object::process::process()?;
    if place.is_null() || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUgraph(Graph::create().handle))
}

/// Destroys a graph, unless a node owns it or a capture goes into it (docs/hardware.md, "objects that are not the
/// caller's": `INVALID_VALUE`).
fn destroy(handle: CUgraph) -> CUresult {
    let graph = graph(handle)?;
    if graph.is_embedded() || capture::is_open(graph.handle) {
        return Err(CUerror::INVALID_VALUE);
    }
    discard(graph.handle);
    Ok(())
}

fn clone(place: *mut CUgraph, original: CUgraph) -> CUresult {
    let original = graph(original)?;
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUgraph(original.copy(false)?.handle))
}

fn find_in_clone(place: *mut CUgraphNode, original: CUgraphNode, cloned: CUgraph) -> CUresult {
    node(original)?;
    let copy = graph(cloned)?.with(|body| {
        let copy = body.copies.get(&original.0).copied();
        copy.filter(|copy| body.topology.get(*copy).is_some())
    });
    put(place, CUgraphNode(copy.ok_or(CUerror::INVALID_VALUE)?))
}

fn get_type(handle: CUgraphNode, place: *mut CUgraphNodeType) -> CUresult {
    let (graph, key) = node(handle)?;
    let kind = graph.with(|body| body.topology.get(key).map(|node| node.payload.kind()));
    put(place, kind.ok_or(CUerror::INVALID_VALUE)?)
}

fn get_id(handle: CUgraph, place: *mut c_uint) -> CUresult {
    put(place, graph(handle)?.id)
}

fn get_executable_id(handle: CUgraphExec, place: *mut c_uint) -> CUresult {
    put(place, executable(handle)?.id)
}

fn get_containing_graph(handle: CUgraphNode, place: *mut CUgraph) -> CUresult {
    put(place, CUgraph(node(handle)?.0.handle))
}

fn get_local_id(handle: CUgraphNode, place: *mut c_uint) -> CUresult {
    put(place, local_id(node(handle)?.1))
}

/// Tools id of a node: the graph's id above the node's (docs/hardware.md, "graphs").
fn get_tools_id(handle: CUgraphNode, place: *mut u64) -> CUresult {
    let (graph, key) = node(handle)?;
    put(place, u64::from(graph.id) << 32 | u64::from(local_id(key)))
}

/// Writes a description for Graphviz.
///
/// # Errors
/// `OPERATING_SYSTEM` if the file cannot be written.
fn print_dot(handle: CUgraph, path: *const c_char, flags: c_uint) -> CUresult {
    let graph = graph(handle)?;
    let path = text(path)?.to_str().map_err(|_| CUerror::INVALID_VALUE)?;
    let description = graph.with(|body| dot::describe(&body.topology, flags));
    std::fs::write(path, description).map_err(|_| CUerror::OPERATING_SYSTEM)
}
