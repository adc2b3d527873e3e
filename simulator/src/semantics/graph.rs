//! Executable graphs: `plan.rs` makes the commands of a launch, `schedule.rs` computes the time of concurrent kernels,
//! `update.rs` compares graphs.

pub(crate) mod executable;
pub(crate) mod plan;
pub(crate) mod schedule;
pub(crate) mod update;

use std::sync::Arc;

use vcuda_driver_api::CUerror;

use crate::object::graph::Graph;
use crate::semantics::capture;

/// Gives a graph to a child graph node (`CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`). Error: `INVALID_VALUE` if it belongs to
/// a node already, or if a capture goes into it (docs/hardware.md, "objects that are not the caller's").
pub(crate) fn give_away(graph: Arc<Graph>) -> Result<Arc<Graph>, CUerror> {
    if capture::is_open(graph.handle) || !graph.embed() {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(graph)
}
