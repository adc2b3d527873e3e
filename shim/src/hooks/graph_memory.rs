//! Graphs that allocate memory: where their allocation nodes are made, instantiated, uploaded and trimmed. Launches are
//! in `graph.rs`. Nothing here is asked or counted for a stream in capture.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::compute::graph_cost;
use crate::driver::saved_answer::peek;
use crate::driver::{Call, Handled};
use crate::memory::graph_memory::{self, parts_of, with_memory};
use crate::memory::pool_accounts;
use crate::memory::state;
use crate::runtime::capture;
use crate::runtime::limits;
use crate::runtime::shim;
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuGraphAddMemAllocNode`.
pub(super) fn add_allocation(
    call: &Call<'_, CUresult>,
    _node: *mut CUgraphNode,
    _graph: CUgraph,
    _dependencies: *const CUgraphNode,
    _count: usize,
    _parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Handled {
    graph_memory::expect_nodes();
    Ok(call.real()?)
}

/// `cuGraphAddNode`.
pub(super) fn add_node(
    call: &Call<'_, CUresult>,
    _node: *mut CUgraphNode,
    _graph: CUgraph,
    _dependencies: *const CUgraphNode,
    _count: usize,
    parameters: *mut CUgraphNodeParams,
) -> Handled {
    added(call, parameters)
}

/// `cuGraphAddNode_v2`, `_v3`.
pub(super) fn add_node_v2(
    call: &Call<'_, CUresult>,
    _node: *mut CUgraphNode,
    _graph: CUgraph,
    _dependencies: *const CUgraphNode,
    _data: *const CUgraphEdgeData,
    _count: usize,
    parameters: *mut CUgraphNodeParams,
) -> Handled {
    added(call, parameters)
}

fn added(call: &Call<'_, CUresult>, parameters: *mut CUgraphNodeParams) -> Handled {
    call.real()?;
    // SAFETY: the driver returned success, so it has just read parameters here, which begin with their type.
    if !parameters.is_null() && unsafe { (*parameters).r#type } == CUgraphNodeType::MEM_ALLOC {
        graph_memory::expect_nodes();
    }
    Ok(())
}

/// `cuGraphInstantiate`, `_v2`.
pub(super) fn instantiate(
    call: &Call<'_, CUresult>,
    made: *mut CUgraphExec,
    graph: CUgraph,
    _error_node: *mut CUgraphNode,
    _log: *mut c_char,
    _log_bytes: usize,
) -> Handled {
    instantiated(call, made, graph)
}

/// `cuGraphInstantiateWithFlags`.
pub(super) fn instantiate_with_flags(
    call: &Call<'_, CUresult>,
    made: *mut CUgraphExec,
    graph: CUgraph,
    _flags: u64,
) -> Handled {
    instantiated(call, made, graph)
}

/// `cuGraphInstantiateWithParams`, `_ptsz`: may upload at once.
pub(super) fn instantiate_with_params(
    call: &Call<'_, CUresult>,
    made: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Handled {
    const UPLOAD: u64 = CUgraphInstantiate_flags::UPLOAD.0 as u64;
    let Some(shim) = state::get().filter(|_| graph_memory::has_nodes()) else {
        return instantiated(call, made, graph);
    };
    if peek(parameters.cast_const()).is_none_or(|parameters| parameters.flags & UPLOAD == 0) {
        return instantiated(call, made, graph);
    }
    let parts = parts_of(shim, graph);
    with_memory(&parts, || call.real())?;
    if !made.is_null() {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let made = unsafe { made.read() };
        expect_cost(made, graph);
        shim.accounts().graphs.note(made, parts);
    }
    Ok(())
}

/// Predicts the cost of a graph's first launch from its nodes.
fn expect_cost(made: CUgraphExec, graph: CUgraph) {
    if !limits::is_unmetered() {
        graph_cost::expect(made, graph);
    }
}

fn instantiated(call: &Call<'_, CUresult>, made: *mut CUgraphExec, graph: CUgraph) -> Handled {
    call.real()?;
    if made.is_null() {
        return Ok(());
    }
    // SAFETY: the driver returned success, so it has just written a handle here.
    let made = unsafe { made.read() };
    expect_cost(made, graph);
    if let Some(shim) = state::get().filter(|_| graph_memory::has_nodes()) {
        shim.accounts().graphs.note(made, parts_of(shim, graph));
    }
    Ok(())
}

/// `cuGraphUpload`.
pub(super) fn upload(call: &Call<'_, CUresult>, graph: CUgraphExec, stream: CUstream) -> Handled {
    Ok(backed(graph, Stream::of_call(call, stream), || call.real())?)
}

/// Launches or uploads a graph. Afterwards there is memory behind its allocations.
#[inline]
pub(super) fn backed(graph: CUgraphExec, stream: Stream, launch: impl FnOnce() -> CUresult) -> CUresult {
    if graph_memory::may_allocate(graph)
        && !capture::is_capturing(stream.handle, stream.default)
        && let Some(parts) = state::get().and_then(|shim| shim.accounts().graphs.parts(graph))
    {
        return with_memory(&parts, launch);
    }
    launch()
}

/// `cuDeviceGraphMemTrim`: what graphs have given back is free for others.
pub(super) fn trim(call: &Call<'_, CUresult>, ordinal: CUdevice) -> Handled {
    let status = call.real();
    if let Some(shim) = state::get().filter(|_| pool_accounts::is_any())
        && let Some(device) = shim.device(ordinal)
    {
        shim.accounts().pool_accounts.recount_on(device);
    }
    Ok(status?)
}
