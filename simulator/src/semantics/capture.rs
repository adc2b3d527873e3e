//! Stream capture (CUDA Driver API, "Stream Management"): the process's capture sequences, and the checks of each call.
//!
//! While nothing is captured, a call reads only one relaxed word. `state.rs` is the state machine, with the types of
//! `object/capture.rs`.

pub(crate) mod named;
pub(crate) mod state;

use core::sync::atomic::{AtomicUsize, Ordering};
use std::cell::Cell;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::{CUerror, CUresult};

use crate::base::thread;
use crate::object::capture::{CapturedEvent, Mode, NodeKey, Status};
use crate::object::context::Context;
use crate::object::graph::Graph;
use crate::object::graph::node::Operation;
use crate::object::graph::topology::PLAIN;
use crate::object::stream::{Role, Stream};
use crate::semantics::capture::state::Captures;

static CAPTURES: Mutex<Option<Captures>> = Mutex::new(None);
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Mode set by `cuThreadExchangeStreamCaptureMode`.
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Swaps the calling thread's interaction mode.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    MODE.try_with(|current| current.replace(mode)).unwrap_or(Mode::Global)
}

/// Whether anything is being captured in this process.
#[inline]
pub(crate) fn is_any_open() -> bool {
    OPEN.load(Ordering::Relaxed) != 0
}

/// Calls `body` with the sequences, and updates their count.
pub(crate) fn with<R>(body: impl FnOnce(&mut Captures) -> R) -> R {
    let mut captures = CAPTURES.lock();
    let captures = captures.get_or_insert_with(Captures::default);
    let result = body(captures);
    OPEN.store(captures.len(), Ordering::Relaxed);
    result
}

/// A stream in capture, to which one operation is being added.
#[derive(Debug)]
pub(crate) struct Recording<'a> {
    stream: &'a Stream,
    graph: Arc<Graph>,
}

impl Recording<'_> {
    /// Adds a node after all that the stream did in this capture. Error: `CUDA_ERROR_INVALID_VALUE` where the graph
    /// refuses it (a free node for foreign memory).
    pub(crate) fn add(&self, operation: Operation) -> Result<NodeKey, CUerror> {
        with(|captures| {
            let tail = captures.tail(self.stream.key).ok_or(CUerror::STREAM_CAPTURE_INVALIDATED)?;
            let node = self.graph.add(operation, &tail)?;
            captures.set_tail(self.stream.key, vec![(node, PLAIN)]);
            Ok(node)
        })
    }
}

/// Check before an operation is submitted to a stream: if the stream is captured, the operation becomes a node. Errors:
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`; `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for the legacy stream of a context in
/// which a blocking stream is capturing.
#[inline]
pub(crate) fn intercept(stream: &Stream) -> Result<Option<Recording<'_>>, CUerror> {
    if is_any_open() { intercept_some(stream) } else { Ok(None) }
}

#[cold]
fn intercept_some(stream: &Stream) -> Result<Option<Recording<'_>>, CUerror> {
    with(|captures| {
        if stream.role == Role::Legacy {
            captures.use_legacy(stream.context)?;
            return Ok(None);
        }
        match captures.status(stream.key) {
            Status::None => Ok(None),
            Status::Invalidated => Err(CUerror::STREAM_CAPTURE_INVALIDATED),
            Status::Active(_) => {
                let graph = captures.graph(stream.key).and_then(crate::object::graph::find);
                let graph = graph.ok_or(CUerror::STREAM_CAPTURE_INVALIDATED)?;
                Ok(Some(Recording { stream, graph }))
            }
        }
    })
}

/// Rejects an operation that no capture takes (a wait, a query, a callback) if the stream is capturing. Errors:
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`, `..._INVALIDATED`, `..._IMPLICIT`; the capture is invalidated.
#[inline]
pub(crate) fn reject_if_capturing(stream: &Stream) -> CUresult {
    if !is_any_open() {
        return Ok(());
    }
    with(|captures| match stream.role {
        Role::Legacy => captures.use_legacy(stream.context),
        _ => captures.reject_if_capturing(stream.key),
    })
}

/// Rejects a wait for a whole context if a stream of it is capturing. Errors: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`;
/// the captures in it are invalidated.
#[inline]
pub(crate) fn reject_if_context_captures(context: &Context) -> CUresult {
    if is_any_open() { with(|captures| captures.use_context(context.handle)) } else { Ok(()) }
}

/// Rejects a potentially unsafe call (`cuThreadExchangeStreamCaptureMode`) if a capture prohibits it: one that
/// allocates, frees, copies or sets synchronously, waits, or queries completion, and that no capture would see. The
/// documentation names `cudaMalloc` as an example and gives no list. docs/hardware.md, "calls during a capture".
/// Unsafe: `cuMemAlloc` and its relatives, `cuMemFree`, arrays and page-locked memory made and freed, synchronous
/// copies and sets, and the queries of and waits for events and streams (`cuEventQuery` is widely known to break
/// captures of other threads). Safe: virtual memory management (reported there), modules, making and ending streams and
/// events, and all that is put into a stream. Error: `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`, if a capture prohibits it,
/// which is then invalidated.
#[inline]
pub(crate) fn reject_unsafe_call() -> CUresult {
    if !is_any_open() {
        return Ok(());
    }
    let mode = MODE.try_with(Cell::get).unwrap_or(Mode::Global);
    with(|captures| captures.reject_unsafe_call(thread::number(), mode))
}

/// `cuEventRecord`: the position recorded in the event, if the stream is capturing.
#[inline]
pub(crate) fn record(stream: &Stream) -> Result<Option<CapturedEvent>, CUerror> {
    if !is_any_open() {
        return Ok(None);
    }
    with(|captures| match stream.role {
        Role::Legacy => captures.use_legacy(stream.context).map(|()| None),
        _ => captures.record(stream.key),
    })
}

/// `cuStreamWaitEvent`: true if the wait became part of a capture. Error: 901, 902, 905, 906, 907: see
/// [`Captures::wait`]. The legacy stream cannot join a capture: 906 (docs/hardware.md, "states of a capture": for a
/// capture of non-blocking streams).
#[inline]
pub(crate) fn wait(stream: &Stream, event: Option<&CapturedEvent>) -> Result<bool, CUerror> {
    if !is_any_open() && event.is_none() {
        return Ok(false);
    }
    with(|captures| {
        if stream.role != Role::Legacy {
            return captures.wait(stream.member(), event);
        }
        captures.use_legacy(stream.context)?;
        match event {
            None => Ok(false),
            Some(event) => {
                // The event's own capture is invalidated too, as by any other forbidden use.
                let _ = captures.use_captured_event(event);
                Err(CUerror::STREAM_CAPTURE_IMPLICIT)
            }
        }
    })
}

/// Handles a query or a wait for an event last recorded in a capture. Always `CUDA_ERROR_CAPTURED_EVENT`.
pub(crate) fn use_captured_event(event: &CapturedEvent) -> CUresult {
    with(|captures| captures.use_captured_event(event))
}

pub(crate) fn forget(stream: &Stream) {
    if is_any_open()
        && let Some(graph) = with(|captures| captures.forget(stream.key))
    {
        crate::object::graph::discard(graph);
    }
}

/// Whether a capture goes into a graph.
pub(crate) fn is_open(graph: usize) -> bool {
    is_any_open() && with(|captures| captures.is_open(graph))
}
