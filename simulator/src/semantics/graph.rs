//! Executable graphs: `plan.rs` is the list of commands of a launch, `schedule.rs` says how long kernels side by side
//! take, `update.rs` changes the nodes of an executable graph.

pub(crate) mod executable;
pub(crate) mod plan;
pub(crate) mod schedule;
pub(crate) mod update;

use std::sync::Arc;

use vcuda_driver_api::{CUerror, CUresult};

use crate::object::capture::NodeKey;
use crate::object::graph::Graph;
use crate::semantics::capture;

/// Makes a graph a child graph node's (`CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`).
///
/// # Errors
/// `INVALID_VALUE` for one that belongs to a node already, or is being captured into (docs/hardware.md, "objects
/// that are not the caller's").
pub(crate) fn give_away(graph: Arc<Graph>) -> Result<Arc<Graph>, CUerror> {
    if capture::is_open(graph.handle) || !graph.embed() {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(graph)
}

/// Removes a node.
///
/// # Errors
/// `INVALID_VALUE` if the graph has memory nodes or is being captured into.
pub(crate) fn remove(graph: &Graph, key: NodeKey) -> CUresult {
    if capture::is_open(graph.handle) {
        return Err(CUerror::INVALID_VALUE);
    }
    graph.remove(key)
}
