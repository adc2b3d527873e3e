//! Types of stream capture: modes, statuses, and the capture state of events and streams.

use vcuda_driver_api::CUerror;

/// Id of a stream, unique over the life of the process.
pub(crate) type StreamKey = u64;
/// A node by its handle.
pub(crate) type NodeKey = usize;
/// Edge data in the API's eight bytes; zero is an ordinary dependency.
pub(crate) type EdgeData = [u8; 8];

/// `CUstreamCaptureMode`: treatment of potentially unsafe calls by a capture or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Unsafe calls of any thread are prohibited.
    Global,
    /// Unsafe calls of the capturing thread are prohibited.
    ThreadLocal,
    /// No calls are prohibited.
    Relaxed,
}

impl Mode {
    /// The mode for the API's value.
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

/// `CUstreamCaptureStatus`, with the id of an active sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Not capturing.
    None,
    /// Capturing into this sequence.
    Active(u64),
    /// Part of a sequence that an error has invalidated, and that has not ended.
    Invalidated,
}

/// Facts about a stream that capture needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    /// The stream.
    pub(crate) key: StreamKey,
    /// Its context's handle.
    pub(crate) context: usize,
    /// Whether it synchronises with the legacy stream.
    pub(crate) blocking: bool,
}

/// Position in a capture, stored in an event recorded in a capturing stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapturedEvent {
    /// The sequence, which may have ended.
    pub(crate) sequence: u64,
    /// The nodes that the event represents.
    pub(crate) nodes: Vec<(NodeKey, EdgeData)>,
}

/// Outcome of a capture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Handle of the captured graph.
    pub(crate) graph: usize,
    /// Whether the sequence made the graph, which a failure then destroys; a graph given by the caller stays.
    pub(crate) owns_graph: bool,
    /// Success, or the reason why the caller gets no graph.
    pub(crate) result: Result<(), CUerror>,
}
