//! Executable graphs.

use std::sync::Arc;

use crate::export::prelude::*;
use crate::object::graph::node::Operation;
use crate::object::graph::{Graph, graph};
use crate::semantics::capture;
use crate::semantics::graph::executable::{Executable, destroy, executable};

export! {
    cuGraphInstantiate | cuGraphInstantiate_v2 => instantiate_with_log;
    cuGraphInstantiateWithFlags => instantiate_with_flags;
    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz => instantiate_with_params;
    cuGraphLaunch / cuGraphLaunch_ptsz => launch;
    cuGraphUpload / cuGraphUpload_ptsz => upload;
    cuGraphExecDestroy => destroy;
    cuGraphExecUpdate => update_v1;
    cuGraphExecUpdate_v2 => update_with_info;
}

const UPLOAD: u64 = CUgraphInstantiate_flags::UPLOAD.0 as u64;
const AUTO_FREE: u64 = CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH.0 as u64;
const DEVICE_LAUNCH: u64 = CUgraphInstantiate_flags::DEVICE_LAUNCH.0 as u64;
const KNOWN_FLAGS: u64 =
    UPLOAD | AUTO_FREE | DEVICE_LAUNCH | CUgraphInstantiate_flags::USE_NODE_PRIORITY.0 as u64;

/// Instantiates a graph. An error names the node that prevents it. Errors: `INVALID_VALUE` for unknown flags, two that
/// exclude each other, or a structure that cannot run; `NOT_SUPPORTED` for a launch from the device; `ILLEGAL_STATE`
/// while the graph is being captured into (docs/hardware.md, "graphs").
fn instantiate(graph: &Arc<Graph>, flags: u64) -> Result<Arc<Executable>, (CUerror, usize)> {
    if flags & !KNOWN_FLAGS != 0 || (flags & AUTO_FREE != 0 && flags & DEVICE_LAUNCH != 0) {
        return Err((CUerror::INVALID_VALUE, 0));
    }
    if flags & DEVICE_LAUNCH != 0 {
        return Err((CUerror::NOT_SUPPORTED, 0));
    }
    if capture::is_open(graph.handle) {
        return Err((CUerror::ILLEGAL_STATE, 0));
    }
    // A graph that was moved into a child graph node "cannot be independently instantiated".
    if graph.is_embedded() && graph.has_memory_nodes() {
        return Err((CUerror::INVALID_VALUE, 0));
    }
    let made =
        Executable::create(graph, flags & !UPLOAD).map_err(|(error, node)| (error, node.unwrap_or(0)))?;
    if flags & UPLOAD != 0
        && let Err(error) = made.upload()
    {
        // No other code has seen its handle.
        let _ = destroy(CUgraphExec(made.handle));
        return Err((error, 0));
    }
    Ok(made)
}

/// The form before CUDA 12, with a node and a text for an error.
fn instantiate_with_log(
    place: *mut CUgraphExec,
    handle: CUgraph,
    error_node: *mut CUgraphNode,
    log: *mut c_char,
    log_bytes: usize,
) -> CUresult {
    let graph = graph(handle)?;
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    if !log.is_null() && log_bytes > 0 {
        put_at(log, 0, 0);
    }
    match instantiate(&graph, 0) {
        Ok(made) => put(place, CUgraphExec(made.handle)),
        Err((error, node)) => {
            put_if_wanted(error_node, CUgraphNode(node));
            Err(error)
        }
    }
}

fn instantiate_with_flags(place: *mut CUgraphExec, handle: CUgraph, flags: u64) -> CUresult {
    let graph = graph(handle)?;
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    let made = instantiate(&graph, flags).map_err(|(error, _)| error)?;
    put(place, CUgraphExec(made.handle))
}

fn instantiate_with_params(
    null: Null,
    place: *mut CUgraphExec,
    handle: CUgraph,
    params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult {
    let graph = graph(handle)?;
    let mut asked = get(params.cast_const())?;
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    if asked.flags & UPLOAD != 0 {
        resolve(asked.hUploadStream, null)?;
    }
    let made = instantiate(&graph, asked.flags);
    (asked.result_out, asked.hErrNode_out) = match &made {
        Ok(_) => (CUgraphInstantiateResult::SUCCESS, CUgraphNode::NULL),
        Err((_, 0)) => (CUgraphInstantiateResult::ERROR, CUgraphNode::NULL),
        Err((_, node)) => (CUgraphInstantiateResult::INVALID_STRUCTURE, CUgraphNode(*node)),
    };
    put(params, asked)?;
    put(place, CUgraphExec(made.map_err(|(error, _)| error)?.handle))
}

/// Launches a graph. In a capturing stream it becomes a child graph node (Programming Guide, "Creating a Graph Using Stream
/// Capture").
fn launch(null: Null, handle: CUgraphExec, stream: CUstream) -> CUresult {
    let executable = executable(handle)?;
    let stream = resolve(stream, null)?;
    match capture::intercept(&stream)? {
        Some(recording) => {
            let nodes = executable.with(|state| state.nodes.clone());
            recording.add(Operation::Child(Graph::thaw(&nodes)?)).map(drop)
        }
        None => executable.launch(&stream),
    }
}

/// Uploads a graph: takes the memory of its allocations.
fn upload(null: Null, handle: CUgraphExec, stream: CUstream) -> CUresult {
    let executable = executable(handle)?;
    let stream = resolve(stream, null)?;
    capture::reject_if_capturing(&stream)?;
    executable.upload()
}

fn update_v1(
    handle: CUgraphExec,
    new: CUgraph,
    error_node: *mut CUgraphNode,
    result: *mut CUgraphExecUpdateResult,
) -> CUresult {
    let mut info = CUgraphExecUpdateResultInfo {
        result: CUgraphExecUpdateResult::SUCCESS,
        errorNode: CUgraphNode::NULL,
        errorFromNode: CUgraphNode::NULL,
    };
    let answer = update_with_info(handle, new, &raw mut info);
    put_if_wanted(error_node, info.errorNode);
    put_if_wanted(result, info.result);
    answer
}

/// Error: `GRAPH_EXEC_UPDATE_FAILURE` with the reason in `info`.
fn update_with_info(handle: CUgraphExec, new: CUgraph, info: *mut CUgraphExecUpdateResultInfo) -> CUresult {
    let report = |result, node, from| {
        let info_value = CUgraphExecUpdateResultInfo {
            result,
            errorNode: CUgraphNode(node),
            errorFromNode: CUgraphNode(from),
        };
        put(info, info_value)
    };
    report(CUgraphExecUpdateResult::ERROR, 0, 0)?;
    let executable = executable(handle)?;
    let new = graph(new)?;
    match executable.update(&new.freeze()) {
        Ok(()) => report(CUgraphExecUpdateResult::SUCCESS, 0, 0),
        Err(misfit) => {
            report(misfit.result, misfit.node, misfit.from)?;
            Err(CUerror::GRAPH_EXEC_UPDATE_FAILURE)
        }
    }
}
