//! Whole graphs.

use crate::export::prelude::*;
use crate::object::graph::{Graph, discard, graph, node};
use crate::semantics::capture;

export! {
    cuGraphCreate => create;
    cuGraphDestroy => destroy;
    cuGraphNodeGetType => get_type;
}

/// "Flags: must be 0."
fn create(place: *mut CUgraph, flags: c_uint) -> CUresult {
    crate::base::thread::permit()?;
    process()?;
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

fn get_type(handle: CUgraphNode, place: *mut CUgraphNodeType) -> CUresult {
    let (graph, key) = node(handle)?;
    let kind = graph.with(|topology| topology.get(key).map(|node| node.payload.kind()));
    put(place, kind.ok_or(CUerror::INVALID_VALUE)?)
}
