//! The words of stream capture: modes, statuses, and what an event or a stream is to it.

use vcuda_driver_api::CUerror;

/// A stream, by its id that is unique for the life of the process.
pub(crate) type StreamKey = u64;
/// A node, by its handle.
pub(crate) type NodeKey = usize;
/// Edge data as the API's eight bytes; zero is an ordinary dependency.
pub(crate) type EdgeData = [u8; 8];

/// `CUstreamCaptureMode`: how a capture, or a thread, deals with potentially unsafe calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Unsafe calls of any thread conflict.
    Global,
    /// Unsafe calls of the capturing thread conflict.
    ThreadLocal,
    /// None conflict.
    Relaxed,
}

impl Mode {
    /// The API's value.
    pub(crate) fn from_raw(raw: u32) -> Option<Mode> {
        match raw {
            0 => Some(Mode::Global),
            1 => Some(Mode::ThreadLocal),
            2 => Some(Mode::Relaxed),
            _ => None,
        }
    }

    /// The API's value.
    pub(crate) fn raw(self) -> u32 {
        match self {
            Mode::Global => 0,
            Mode::ThreadLocal => 1,
            Mode::Relaxed => 2,
        }
    }
}

/// `CUstreamCaptureStatus`, with the sequence while it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Not capturing.
    None,
    /// Capturing into a sequence.
    Active(u64),
    /// Part of a sequence that an error has invalidated and that is not ended yet.
    Invalidated,
}

/// A stream as far as capture cares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// The stream.
    pub(crate) key: StreamKey,
    /// Its context's handle.
    pub(crate) context: usize,
    /// Whether it synchronises with the legacy stream.
    pub(crate) blocking: bool,
}

/// Capture position of an event recorded in a capturing stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapturedEvent {
    /// The sequence it belongs to, which may have ended since.
    pub(crate) sequence: u64,
    /// The nodes that it stands for.
    pub(crate) nodes: Vec<(NodeKey, EdgeData)>,
}

/// Outcome of a capture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The graph that was captured into.
    pub(crate) graph: usize,
    /// The sequence made the graph, so a failure destroys it (a graph given by the caller stays).
    pub(crate) owns_graph: bool,
    /// Success, or why the caller gets no graph.
    pub(crate) result: Result<(), CUerror>,
}
