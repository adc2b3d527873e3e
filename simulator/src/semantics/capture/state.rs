//! State machine of stream capture, independent of stream, event and graph objects.
//!
//! From the CUDA Driver API, Stream Management (`cuStreamBeginCapture` to `cuThreadExchangeStreamCaptureMode`), the
//! descriptions of results 900 to 908, and the CUDA Programming Guide, "Creating a Graph Using Stream Capture"
//! (cross-stream dependencies; prohibited and unhandled operations). Undocumented behaviour is marked "open":
//! docs/hardware.md, "states of a capture".

use std::collections::HashMap;

use vcuda_driver_api::CUerror;

use crate::object::capture::{CapturedEvent, EdgeData, Ended, Member, Mode, NodeKey, Status, StreamKey};

#[derive(Debug)]
struct Sequence {
    origin: StreamKey,
    thread: u64,
    mode: Mode,
    invalidated: bool,
    graph: usize,
    owns_graph: bool,
}

#[derive(Debug)]
struct Joined {
    sequence: u64,
    member: Member,
    /// Nodes on which the next captured node will depend.
    tail: Vec<(NodeKey, EdgeData)>,
}

/// All capture sequences of the process.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    last_sequence: u64,
    sequences: HashMap<u64, Sequence>,
    streams: HashMap<StreamKey, Joined>,
}

impl Captures {
    /// Number of open sequences; without any, no call needs the checks below.
    pub(crate) fn len(&self) -> usize {
        self.sequences.len()
    }

    /// `cuStreamBeginCapture`: returns the sequence's id. Error: `ILLEGAL_STATE` if the stream is part of a capture
    /// already ("it may only be initiated if the stream is not already in capture mode"; the code is open).
    pub(crate) fn begin(
        &mut self,
        member: Member,
        thread: u64,
        mode: Mode,
        (graph, owns_graph): (usize, bool),
        tail: Vec<(NodeKey, EdgeData)>,
    ) -> Result<u64, CUerror> {
        if self.streams.contains_key(&member.key) {
            return Err(CUerror::ILLEGAL_STATE);
        }
        self.last_sequence += 1;
        let id = self.last_sequence;
        let sequence = Sequence { origin: member.key, thread, mode, invalidated: false, graph, owns_graph };
        self.sequences.insert(id, sequence);
        self.streams.insert(member.key, Joined { sequence: id, member, tail });
        Ok(id)
    }

    /// `cuStreamEndCapture`. `is_reachable(tail, node)` returns whether a node is in `tail`, or a dependency of it.
    /// Errors: with the capture going on: `ILLEGAL_STATE` if the stream is not capturing (open);
    /// `STREAM_CAPTURE_UNMATCHED` if the capture began in another stream (open: it is invalidated);
    /// `STREAM_CAPTURE_WRONG_THREAD` if it was not relaxed and began in another thread (open: nothing else happens).
    /// With the capture ended: see [`Ended::result`], which is `STREAM_CAPTURE_INVALIDATED` after an earlier violation,
    /// or `STREAM_CAPTURE_UNJOINED` if a stream holds work that was not joined to the origin.
    pub(crate) fn end(
        &mut self,
        stream: StreamKey,
        thread: u64,
        is_reachable: impl Fn(&[(NodeKey, EdgeData)], NodeKey) -> bool,
    ) -> Result<Ended, CUerror> {
        let origin = self.streams.get(&stream).ok_or(CUerror::ILLEGAL_STATE)?;
        let id = origin.sequence;
        let sequence = self.sequences.get_mut(&id).ok_or(CUerror::ILLEGAL_STATE)?;
        if sequence.origin != stream {
            sequence.invalidated = true;
            return Err(CUerror::STREAM_CAPTURE_UNMATCHED);
        }
        if sequence.mode != Mode::Relaxed && sequence.thread != thread {
            return Err(CUerror::STREAM_CAPTURE_WRONG_THREAD);
        }
        let result = if sequence.invalidated {
            Err(CUerror::STREAM_CAPTURE_INVALIDATED)
        } else if self
            .streams
            .values()
            .filter(|joined| joined.sequence == id && joined.member.key != stream)
            .flat_map(|joined| &joined.tail)
            .any(|(node, _)| !is_reachable(&origin.tail, *node))
        {
            Err(CUerror::STREAM_CAPTURE_UNJOINED)
        } else {
            Ok(())
        };
        let ended = Ended { graph: sequence.graph, owns_graph: sequence.owns_graph, result };
        self.drop_sequence(id);
        Ok(ended)
    }

    fn drop_sequence(&mut self, id: u64) {
        self.sequences.remove(&id);
        self.streams.retain(|_, joined| joined.sequence != id);
    }

    /// The status of a stream other than the legacy one.
    pub(crate) fn status(&self, stream: StreamKey) -> Status {
        match self.streams.get(&stream) {
            None => Status::None,
            Some(joined) if self.is_valid(joined.sequence) => Status::Active(joined.sequence),
            Some(_) => Status::Invalidated,
        }
    }

    /// The graph of a stream's active capture.
    pub(crate) fn graph(&self, stream: StreamKey) -> Option<usize> {
        let joined = self.streams.get(&stream)?;
        let sequence = self.sequences.get(&joined.sequence)?;
        (!sequence.invalidated).then_some(sequence.graph)
    }

    /// Whether a capture goes into a graph, which then cannot be instantiated or destroyed.
    pub(crate) fn is_open(&self, graph: usize) -> bool {
        self.sequences.values().any(|sequence| sequence.graph == graph)
    }

    /// Whether a blocking stream of the context is capturing, which makes its legacy stream unusable.
    pub(crate) fn blocks_legacy(&self, context: usize) -> bool {
        self.streams.values().any(|joined| joined.member.blocking && joined.member.context == context)
    }

    /// Records a use of a context's legacy stream, other than a query of its capture. Error: `STREAM_CAPTURE_IMPLICIT`,
    /// and the captures concerned are invalidated, if a blocking stream of the context is capturing.
    pub(crate) fn use_legacy(&mut self, context: usize) -> Result<(), CUerror> {
        let concerned = |joined: &Joined| joined.member.blocking && joined.member.context == context;
        if self.invalidate_streams(concerned) {
            return Err(CUerror::STREAM_CAPTURE_IMPLICIT);
        }
        Ok(())
    }

    /// Records a wait for a whole context, "a broader handle which encompasses an active stream capture". Error:
    /// `STREAM_CAPTURE_UNSUPPORTED`, and the captures are invalidated, if any stream of it is capturing.
    pub(crate) fn use_context(&mut self, context: usize) -> Result<(), CUerror> {
        if self.invalidate_streams(|joined| joined.member.context == context) {
            return Err(CUerror::STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    /// Rejects an operation that a capturing stream does not take (a wait, a query, a callback, an attach). Error:
    /// `STREAM_CAPTURE_UNSUPPORTED` if the stream is capturing, whose capture is then invalidated, or
    /// `STREAM_CAPTURE_INVALIDATED` if it was before.
    pub(crate) fn reject_if_capturing(&mut self, stream: StreamKey) -> Result<(), CUerror> {
        match self.status(stream) {
            Status::None => Ok(()),
            Status::Invalidated => Err(CUerror::STREAM_CAPTURE_INVALIDATED),
            Status::Active(id) => {
                self.invalidate(id);
                Err(CUerror::STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Rejects a potentially unsafe call of a thread whose interaction mode is `mode`, if a capture prohibits it.
    /// Error: `STREAM_CAPTURE_UNSUPPORTED` if a capture prohibits it, which is then invalidated.
    pub(crate) fn reject_unsafe_call(&mut self, thread: u64, mode: Mode) -> Result<(), CUerror> {
        if mode == Mode::Relaxed {
            return Ok(());
        }
        let mut conflict = false;
        for sequence in self.sequences.values_mut() {
            let prohibits = if sequence.thread == thread {
                sequence.mode != Mode::Relaxed
            } else {
                mode == Mode::Global && sequence.mode == Mode::Global
            };
            sequence.invalidated |= prohibits;
            conflict |= prohibits;
        }
        if conflict { Err(CUerror::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Handles a query or a wait for an event last recorded in a capturing stream. Always `CAPTURED_EVENT`, even after
    /// the capture's end; an active capture is invalidated.
    pub(crate) fn use_captured_event(&mut self, event: &CapturedEvent) -> Result<(), CUerror> {
        self.invalidate(event.sequence);
        Err(CUerror::CAPTURED_EVENT)
    }

    /// `cuEventRecord` in a capturing stream: the position recorded in the event.
    pub(crate) fn record(&self, stream: StreamKey) -> Result<Option<CapturedEvent>, CUerror> {
        match self.status(stream) {
            Status::None => Ok(None),
            Status::Invalidated => Err(CUerror::STREAM_CAPTURE_INVALIDATED),
            Status::Active(sequence) => {
                Ok(Some(CapturedEvent { sequence, nodes: self.tail(stream).unwrap_or_default() }))
            }
        }
    }

    /// `cuStreamWaitEvent` for a captured stream or event: true if it is handled here, false if neither is captured and
    /// the wait is an ordinary one. Errors: `STREAM_CAPTURE_ISOLATION` if a capturing stream waits for an event outside
    /// (without the external flag); `STREAM_CAPTURE_MERGE` if event and stream are of different captures (open: both
    /// are invalidated); `STREAM_CAPTURE_INVALIDATED`; `CAPTURED_EVENT` for an event of a capture that has ended
    /// (open).
    pub(crate) fn wait(&mut self, member: Member, event: Option<&CapturedEvent>) -> Result<bool, CUerror> {
        let own = match self.status(member.key) {
            Status::Invalidated => return Err(CUerror::STREAM_CAPTURE_INVALIDATED),
            Status::Active(id) => Some(id),
            Status::None => None,
        };
        let Some(event) = event else {
            let Some(own) = own else { return Ok(false) };
            self.invalidate(own);
            return Err(CUerror::STREAM_CAPTURE_ISOLATION);
        };
        match self.sequences.get(&event.sequence) {
            None => {
                if let Some(own) = own {
                    self.invalidate(own);
                }
                return Err(CUerror::CAPTURED_EVENT);
            }
            Some(sequence) if sequence.invalidated => return Err(CUerror::STREAM_CAPTURE_INVALIDATED),
            Some(_) => {}
        }
        if let Some(own) = own
            && own != event.sequence
        {
            self.invalidate(own);
            self.invalidate(event.sequence);
            return Err(CUerror::STREAM_CAPTURE_MERGE);
        }
        let joined = self.streams.entry(member.key).or_insert_with(|| Joined {
            sequence: event.sequence,
            member,
            tail: Vec::new(),
        });
        for node in &event.nodes {
            if !joined.tail.contains(node) {
                joined.tail.push(*node);
            }
        }
        Ok(true)
    }

    /// Nodes on which the stream's next node will depend; none if it is not in an active capture.
    pub(crate) fn tail(&self, stream: StreamKey) -> Option<Vec<(NodeKey, EdgeData)>> {
        let joined = self.streams.get(&stream)?;
        self.is_valid(joined.sequence).then(|| joined.tail.clone())
    }

    /// Replaces the next node's dependencies, after a captured node.
    pub(crate) fn set_tail(&mut self, stream: StreamKey, tail: Vec<(NodeKey, EdgeData)>) {
        if let Some(joined) = self.streams.get_mut(&stream) {
            joined.tail = tail;
        }
    }

    /// Removes a destroyed stream. A joined one may be destroyed during the capture, as NVIDIA's own `cuda-core` does; its
    /// captured work must be joined all the same. Open: destroying the origin ends the capture. Returns the graph of such a
    /// capture, if the sequence owns it.
    pub(crate) fn forget(&mut self, stream: StreamKey) -> Option<usize> {
        let id = self.streams.get(&stream)?.sequence;
        let sequence = self.sequences.get(&id)?;
        if sequence.origin != stream {
            return None;
        }
        let graph = sequence.owns_graph.then_some(sequence.graph);
        self.drop_sequence(id);
        graph
    }

    fn is_valid(&self, id: u64) -> bool {
        self.sequences.get(&id).is_some_and(|sequence| !sequence.invalidated)
    }

    fn invalidate(&mut self, id: u64) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.invalidated = true;
        }
    }

    fn invalidate_streams(&mut self, concerned: impl Fn(&Joined) -> bool) -> bool {
        let ids: Vec<u64> =
            self.streams.values().filter(|joined| concerned(joined)).map(|joined| joined.sequence).collect();
        for id in &ids {
            self.invalidate(*id);
        }
        !ids.is_empty()
    }
}

#[cfg(test)]
mod tests;
