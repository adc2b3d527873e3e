//! Executable graphs: `plan.rs` makes the commands of a launch, `schedule.rs` computes the time of concurrent kernels,
//! `update.rs` changes nodes.

pub(crate) mod executable;
pub(crate) mod plan;
pub(crate) mod schedule;
pub(crate) mod update;

use std::sync::Arc;

use vcuda_driver_api::{CUerror, CUresult};

use crate::object::capture::NodeKey;
use crate::object::graph::Graph;
use crate::semantics::capture;

/// Gives a graph to a child graph node (`CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`).
///
/// # Errors
/// `INVALID_VALUE` if it belongs to a node already, or if a capture goes into it (docs/hardware.md, "objects that are not
/// the caller's").
pub(crate) fn give_away(graph: Arc<Graph>) -> Result<Arc<Graph>, CUerror> {
    if capture::is_open(graph.handle) || !graph.embed() {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(graph)
}

/// Removes a node.
///
/// # Errors
/// `INVALID_VALUE` if the graph has memory nodes, or if a capture goes into it.
pub(crate) fn remove(graph: &Graph, key: NodeKey) -> CUresult {
    if capture::is_open(graph.handle) {
        return Err(CUerror::INVALID_VALUE);
    }
    graph.remove(key)
}
