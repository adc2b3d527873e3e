//! Stream capture.

use std::cell::RefCell;

use vcuda_driver_api::cuda::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use vcuda_driver_api::prelude::*;

use crate::base::ffi::{get, get_array, put, put_if_wanted};
use crate::base::thread;
use crate::export::graph::edges::{edge_data, from_edge_data, pairs};
use crate::object::capture::{EdgeData, Mode, NodeKey, Status};
use crate::object::graph::{Graph, discard, graph};
use crate::object::stream::{Role, Stream};
use crate::semantics::capture;
use crate::semantics::stream::{Null, resolve};

export! {
    cuStreamBeginCapture => begin_v1::<false>;
    cuStreamBeginCapture_ptsz => begin_v1::<true>;
    cuStreamBeginCapture_v2 => begin::<false>;
    cuStreamBeginCapture_v2_ptsz => begin::<true>;
    cuStreamBeginCaptureToGraph => begin_to_graph::<false>;
    cuStreamBeginCaptureToGraph_ptsz => begin_to_graph::<true>;
    cuStreamEndCapture => end::<false>;
    cuStreamEndCapture_ptsz => end::<true>;
    cuStreamIsCapturing => is_capturing::<false>;
    cuStreamIsCapturing_ptsz => is_capturing::<true>;
    cuStreamGetCaptureInfo => info_v1::<false>;
    cuStreamGetCaptureInfo_ptsz => info_v1::<true>;
    cuStreamGetCaptureInfo_v2 => info_v2::<false>;
    cuStreamGetCaptureInfo_v2_ptsz => info_v2::<true>;
    cuStreamGetCaptureInfo_v3 => info_v3::<false>;
    cuStreamGetCaptureInfo_v3_ptsz => info_v3::<true>;
    cuStreamUpdateCaptureDependencies => update_v1::<false>;
    cuStreamUpdateCaptureDependencies_ptsz => update_v1::<true>;
    cuStreamUpdateCaptureDependencies_v2 => update::<false>;
    cuStreamUpdateCaptureDependencies_v2_ptsz => update::<true>;
    cuThreadExchangeStreamCaptureMode => exchange_mode;
}

/// Begins a capture in the first form, which had no mode: it is global (CUDA 10.0 documentation).
fn begin_v1<const PER_THREAD: bool>(stream: CUstream) -> CUresult {
    begin::<PER_THREAD>(stream, CUstreamCaptureMode::GLOBAL)
}

fn begin<const PER_THREAD: bool>(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    let graph = Graph::create();
    let begun = start(&stream, mode, (graph.handle, true), Vec::new());
    if begun.is_err() {
        discard(graph.handle);
    }
    begun
}

fn begin_to_graph<const PER_THREAD: bool>(
    stream: CUstream,
    into: CUgraph,
    dependencies: *const CUgraphNode,
    dependency_data: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
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

fn end<const PER_THREAD: bool>(stream: CUstream, place: *mut CUgraph) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
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

/// Capture status of a stream, for queries.
///
/// # Errors
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for the legacy stream while a blocking stream of its context is
/// capturing; that capture stays valid.
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

fn is_capturing<const PER_THREAD: bool>(stream: CUstream, place: *mut CUstreamCaptureStatus) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    put(place, raw(status(&stream)?))
}

fn info_v1<const PER_THREAD: bool>(
    stream: CUstream,
    place: *mut CUstreamCaptureStatus,
    id: *mut u64,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    let status = status(&stream)?;
    put(place, raw(status))?;
    if let Status::Active(sequence) = status {
        put_if_wanted(id, sequence);
    }
    Ok(())
}

fn info_v2<const PER_THREAD: bool>(
    stream: CUstream,
    place: *mut CUstreamCaptureStatus,
    id: *mut u64,
    into: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> CUresult {
    info_v3::<PER_THREAD>(stream, place, id, into, dependencies, core::ptr::null_mut(), count)
}

thread_local! {
    /// The last returned arrays: "valid until the next API call which operates on the stream".
    static HANDED_OUT: RefCell<(Vec<CUgraphNode>, Vec<CUgraphEdgeData>)> =
        const { RefCell::new((Vec::new(), Vec::new())) };
}

fn info_v3<const PER_THREAD: bool>(
    stream: CUstream,
    place: *mut CUstreamCaptureStatus,
    id: *mut u64,
    into: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    data: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    let status = status(&stream)?;
    if !data.is_null() && dependencies.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, raw(status))?;
    let Status::Active(sequence) = status else {
        return Ok(());
    };
    let (graph, tail) = capture::with(|captures| (captures.graph(stream.key), captures.tail(stream.key)));
    let (Some(graph), Some(tail)) = (graph, tail) else {
        return Ok(());
    };
    if !dependencies.is_null() && data.is_null() && tail.iter().any(|(_, data)| *data != EdgeData::default())
    {
        return Err(CUerror::LOSSY_QUERY);
    }
    put_if_wanted(id, sequence);
    put_if_wanted(into, CUgraph(graph));
    put_if_wanted(count, tail.len());
    let _ = HANDED_OUT.try_with(|arrays| {
        let mut arrays = arrays.borrow_mut();
        *arrays = tail.iter().map(|(node, data)| (CUgraphNode(*node), edge_data(*data))).unzip();
        put_if_wanted(dependencies, arrays.0.as_ptr());
        put_if_wanted(data, arrays.1.as_ptr());
    });
    Ok(())
}

fn update_v1<const PER_THREAD: bool>(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    count: usize,
    flags: c_uint,
) -> CUresult {
    update::<PER_THREAD>(stream, dependencies, core::ptr::null(), count, flags)
}

fn update<const PER_THREAD: bool>(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    let nodes = get_array(dependencies.cast_const(), count)?;
    let data = if data.is_null() { None } else { Some(get_array(data, count)?) };
    let new = nodes.iter().enumerate().map(|(index, node)| {
        let data = data.as_ref().and_then(|data| data.get(index)).map_or(EdgeData::default(), from_edge_data);
        (node.0, data)
    });
    capture::with(|captures| {
        let Some(mut tail) = captures.tail(stream.key) else {
            return Err(CUerror::ILLEGAL_STATE);
        };
        match flags {
            0 => {
                for edge in new {
                    if !tail.contains(&edge) {
                        tail.push(edge);
                    }
                }
            }
            1 => tail = new.collect(),
            _ => return Err(CUerror::INVALID_VALUE),
        }
        let into =
            captures.graph(stream.key).and_then(crate::object::graph::find).ok_or(CUerror::ILLEGAL_STATE)?;
        into.check_dependencies(&tail)?;
        captures.set_tail(stream.key, tail);
        Ok(())
    })
}

fn exchange_mode(mode: *mut CUstreamCaptureMode) -> CUresult {
    crate::object::process::process()?;
    let new = Mode::from_raw(get(mode.cast_const())?.0).ok_or(CUerror::INVALID_VALUE)?;
    put(mode, CUstreamCaptureMode(capture::exchange_mode(new).raw()))
}
