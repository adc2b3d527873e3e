//! Graphs and captures. A launch of a graph costs what its executable was measured to cost. While a stream is captured,
//! the shim makes no call that could break the capture (I5).

use vcuda_driver_api::prelude::*;
use vcuda_limiter::predict::Key;

use super::table::Handlers;
use crate::compute::{self, COSTS, Launches};
use crate::driver::{Call, Handled};
use crate::memory::graph_memory;
use crate::memory::state;
use crate::runtime::capture;
use crate::runtime::limits;
use crate::runtime::shim;
use crate::runtime::shim::devices::{context_of_stream, current_context};
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuGraphLaunch`.
pub(super) fn launch(call: &Call<'_, CUresult>, graph: CUgraphExec, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    let launch = || meter(call, graph, stream);
    Ok(super::graph_memory::backed(graph, stream, launch)?)
}

fn meter(call: &Call<'_, CUresult>, graph: CUgraphExec, stream: Stream) -> CUresult {
    match Launches::get(state::get()) {
        Some(launches) if !limits::is_unmetered() => {
            let key = Key::graph(graph.0);
            launches.launch(call, stream, key, key)
        }
        _ => call.real(),
    }
}

/// `cuGraphExecDestroy`: the handle may be reused. Memory that the graph allocated stays with the device's graphs.
pub(super) fn exec_destroy(call: &Call<'_, CUresult>, graph: CUgraphExec) -> Handled {
    let shim = state::managed()?;
    let parts = shim.accounts().graphs.remove(graph);
    if let Err(error) = call.real() {
        if let Some(parts) = parts {
            shim.accounts().graphs.put_back(graph, parts);
        }
        return Err(error.into());
    }
    COSTS.forget(Key::graph(graph.0));
    Ok(())
}

/// `cuGraphExecUpdate`: the estimate stays, and is learnt anew.
pub(super) fn exec_update(
    call: &Call<'_, CUresult>,
    graph: CUgraphExec,
    from: CUgraph,
    _error_node: *mut CUgraphNode,
    _result: *mut CUgraphExecUpdateResult,
) -> Handled {
    updated(call, graph, from)
}

/// `cuGraphExecUpdate_v2`: as [`exec_update`].
pub(super) fn exec_update_v2(
    call: &Call<'_, CUresult>,
    graph: CUgraphExec,
    from: CUgraph,
    _result: *mut CUgraphExecUpdateResultInfo,
) -> Handled {
    updated(call, graph, from)
}

fn updated(call: &Call<'_, CUresult>, graph: CUgraphExec, from: CUgraph) -> Handled {
    call.real()?;
    COSTS.relearn(Key::graph(graph.0));
    if let Some(shim) = state::get().filter(|_| graph_memory::has_nodes()) {
        shim.accounts().graphs.note(graph, graph_memory::parts_of(shim, from));
    }
    Ok(())
}

/// `cuStreamBeginCapture` before CUDA 10.1, which had no modes.
pub(super) fn begin_v1(call: &Call<'_, CUresult>, stream: CUstream) -> Handled {
    begun(call, stream)
}

/// `cuStreamBeginCapture_v2`.
pub(super) fn begin(call: &Call<'_, CUresult>, stream: CUstream, _mode: CUstreamCaptureMode) -> Handled {
    begun(call, stream)
}

/// `cuStreamBeginCaptureToGraph`.
pub(super) fn begin_to_graph(
    call: &Call<'_, CUresult>,
    stream: CUstream,
    _graph: CUgraph,
    _dependencies: *const CUgraphNode,
    _edges: *const CUgraphEdgeData,
    _count: usize,
    _mode: CUstreamCaptureMode,
) -> Handled {
    begun(call, stream)
}

/// `cuStreamBeginRecaptureToGraph`.
pub(super) fn begin_again(
    call: &Call<'_, CUresult>,
    stream: CUstream,
    _mode: CUstreamCaptureMode,
    _graph: CUgraph,
    _callback: CUgraphRecaptureCallback,
    _data: *mut c_void,
) -> Handled {
    begun(call, stream)
}

/// `cuStreamBeginCaptureToCig`: recorded for a graphics queue, not for a graph.
pub(super) fn begin_to_cig(
    call: &Call<'_, CUresult>,
    stream: CUstream,
    _parameters: *mut CUstreamCigCaptureParams,
) -> Handled {
    begun(call, stream)
}

/// Counted before the driver begins, so that no timing event of another thread slips between.
fn begun(call: &Call<'_, CUresult>, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    let context = match context_of_stream(stream.explicit()) {
        CUcontext::NULL => current_context(),
        context => context,
    };
    compute::capture_begins(stream);
    let beginning = capture::begins(stream.key(), context);
    let answer = call.real();
    if answer.is_err() {
        beginning.failed();
    }
    Ok(answer?)
}

/// `cuStreamEndCapture`.
pub(super) fn end(call: &Call<'_, CUresult>, stream: CUstream, _graph: *mut CUgraph) -> Handled {
    ended(call, stream)
}

/// `cuStreamEndCaptureToCig`.
pub(super) fn end_to_cig(call: &Call<'_, CUresult>, stream: CUstream) -> Handled {
    ended(call, stream)
}

/// Ends a capture. An invalidated one ends with an error; a call on the wrong stream or thread ends none.
fn ended(call: &Call<'_, CUresult>, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    let is_open = || capture::is_capturing(stream.handle, stream.default);
    let was_open = is_open();
    let answer = call.real();
    if answer.is_ok() || (was_open && !is_open()) {
        capture::ended(stream.key());
    }
    Ok(answer?)
}

/// `cuStreamDestroy`: events are recorded behind its last work and frees, and a capture that began on it is over.
pub(super) fn stream_destroy(call: &Call<'_, CUresult>, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    compute::stream_closing(stream);
    if let Some(shim) = state::get() {
        shim.accounts().pool_accounts.stream_closing(stream.handle);
    }
    call.real()?;
    capture::stream_ended(stream.key());
    Ok(())
}
