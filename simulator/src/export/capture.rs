//! Stream capture.

use vcuda_driver_api::cuda::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};

use crate::base::thread;
use crate::export::graph::edges::pairs;
use crate::export::prelude::*;
use crate::object::capture::{EdgeData, Mode, NodeKey, Status};
use crate::object::graph::{Graph, discard, graph};
use crate::object::stream::{Role, Stream};
use crate::semantics::capture;

export! {
    // Begins a capture in the first form, which had no mode: it is global (CUDA 10.0 documentation).
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz => |null, stream|
        begin(null, stream, CUstreamCaptureMode::GLOBAL);
    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz => begin;
    cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz => begin_to_graph;
    cuStreamEndCapture / cuStreamEndCapture_ptsz => end;
    cuStreamIsCapturing / cuStreamIsCapturing_ptsz => |null, stream, place|
        put(place, raw(status(&*resolve(stream, null)?)?));
    cuThreadExchangeStreamCaptureMode => exchange_mode;
}

fn begin(null: Null, stream: CUstream, mode: CUstreamCaptureMode) -> CUresult {
    let stream = resolve(stream, null)?;
    let graph = Graph::create();
    let begun = start(&stream, mode, (graph.handle, true), Vec::new());
    if begun.is_err() {
        discard(graph.handle);
    }
    begun
}

fn begin_to_graph(
    null: Null,
    stream: CUstream,
    into: CUgraph,
    dependencies: *const CUgraphNode,
    dependency_data: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    let stream = resolve(stream, null)?;
    let into = graph(into)?;
    let tail = pairs(dependencies, dependency_data, count)?;
    into.check_dependencies(&tail)?;
    start(&stream, mode, (into.handle, false), tail)
}

/// Begins a capture. The legacy stream cannot be captured ("capture may not be initiated if stream is CU_STREAM_LEGACY").
/// The code: docs/hardware.md, "states of a capture"; HIP's tests, which also run on CUDA, expect 900.
fn start(
    stream: &Stream,
    mode: CUstreamCaptureMode,
    graph: (usize, bool),
    tail: Vec<(NodeKey, EdgeData)>,
) -> CUresult {
    let mode = Mode::from_raw(mode.0).ok_or(CUerror::INVALID_VALUE)?;
    if stream.role == Role::Legacy {
        return Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
    }
    capture::with(|captures| captures.begin(stream.member(), thread::number(), mode, graph, tail)).map(drop)
}

fn end(null: Null, stream: CUstream, place: *mut CUgraph) -> CUresult {
    let stream = resolve(stream, null)?;
    put(place, CUgraph::NULL)?;
    let ended = capture::with(|captures| {
        let into = captures.graph(stream.key).and_then(crate::object::graph::find);
        captures.end(stream.key, thread::number(), |tail, node| {
            into.as_ref().is_none_or(|into| into.is_joined(tail, node))
        })
    })?;
    match ended.result {
        Ok(()) => put(place, CUgraph(ended.graph)),
        Err(error) => {
            if ended.owns_graph {
                discard(ended.graph);
            }
            Err(error)
        }
    }
}

/// Capture status of a stream, for queries. Error: `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for the legacy stream while a
/// blocking stream of its context is capturing; that capture stays valid.
fn status(stream: &Stream) -> Result<Status, CUerror> {
    if !capture::is_any_open() {
        return Ok(Status::None);
    }
    capture::with(|captures| match stream.role {
        Role::Legacy if captures.blocks_legacy(stream.context) => Err(CUerror::STREAM_CAPTURE_IMPLICIT),
        Role::Legacy => Ok(Status::None),
        _ => Ok(captures.status(stream.key)),
    })
}

fn raw(status: Status) -> CUstreamCaptureStatus {
    match status {
        Status::None => CUstreamCaptureStatus::NONE,
        Status::Active(_) => CUstreamCaptureStatus::ACTIVE,
        Status::Invalidated => CUstreamCaptureStatus::INVALIDATED,
    }
}

fn exchange_mode(mode: *mut CUstreamCaptureMode) -> CUresult {
    process()?;
    let new = Mode::from_raw(get(mode.cast_const())?.0).ok_or(CUerror::INVALID_VALUE)?;
    put(mode, CUstreamCaptureMode(capture::exchange_mode(new) as u32))
}
