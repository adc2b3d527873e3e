//! Types of stream capture: modes, statuses, and the capture state of events and streams.

use vcuda_driver_api::CUerror;

/// Id of a stream, unique over the life of the process.
pub(crate) type StreamKey = u64;
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
    /// The mode for the API's value, which is also the number of the variant.
    pub(crate) fn from_raw(raw: u32) -> Option<Mode> {
        [Mode::Global, Mode::ThreadLocal, Mode::Relaxed].get(raw as usize).copied()
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
    pub(crate) key: StreamKey,
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

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) graph: usize,
    /// Whether the sequence made the graph, which a failure then destroys; a graph given by the caller stays.
    pub(crate) owns_graph: bool,
    /// Success, or the reason why the caller gets no graph.
    pub(crate) result: Result<(), CUerror>,
}
