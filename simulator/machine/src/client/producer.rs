//! Submission side of a stream's queue.

use super::stamp::StampCell;
use crate::config::RING_ENTRIES;
use crate::layout::split;
use crate::map::Mapping;
use crate::ring::{self, PENDING};
use crate::{Command, StreamId, Ticket};
use std::collections::VecDeque;
use std::sync::Arc;

/// The owner's state of one ring.
#[derive(Debug, Default)]
pub(super) struct Producer {
    /// The stream of this process on the ring; `None` if there is none or it was destroyed.
    stream: Option<StreamId>,
    is_closing: bool,
    /// Number of the next command.
    tail: u64,
    /// First command that this side does not know to be finished.
    pub(super) head: u64,
    kernels: u64,
    /// Markers whose time is still to be copied out of the ring, the oldest first.
    stamps: VecDeque<Arc<StampCell>>,
}

impl Producer {
    /// Starts a stream at the ring's tail.
    pub(super) fn begin(&mut self, stream: StreamId, kernels: u64) {
        let (_, tail) = split(stream.0);
        *self = Producer { stream: Some(stream), tail, head: tail, kernels, ..Producer::default() };
    }

    /// Whether commands may be submitted to `stream` here.
    pub(super) fn is_open(&self, stream: StreamId) -> bool {
        self.stream == Some(stream) && !self.is_closing
    }

    /// Whether this ring (still) belongs to `stream`.
    pub(super) fn is_of(&self, stream: StreamId) -> bool {
        self.stream == Some(stream)
    }

    pub(super) fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    pub(super) fn close(&mut self) {
        self.is_closing = true;
    }

    pub(super) fn has_room(&self, depth: u64) -> bool {
        self.tail - self.head < depth
    }

    pub(super) fn last(&self) -> Option<Ticket> {
        let stream = self.stream?;
        let seq = self.tail.checked_sub(1).filter(|seq| *seq >= split(stream.0).1)?;
        Some(Ticket { stream, seq })
    }

    /// The oldest command whose end makes room.
    pub(super) fn blocker(&self, depth: u64) -> Option<Ticket> {
        let seq = self.tail.checked_sub(depth)?;
        self.stream.map(|stream| Ticket { stream, seq })
    }

    /// Writes a command; there must be room.
    pub(super) fn submit(&mut self, map: &Mapping, stream: StreamId, command: Command, now: u64) -> Ticket {
        let (ring, _) = split(stream.0);
        let seq = self.tail;
        // The entry's former command has finished, and this is the last moment to read its time.
        if self.stamps.front().is_some_and(|cell| cell.ticket.seq + RING_ENTRIES <= seq) {
            self.harvest(map);
        }
        if let Command::Kernel { .. } | Command::Rendezvous { .. } | Command::Spin { .. } = command {
            self.kernels += 1;
        }
        ring::submit(map, ring, seq, command, now, self.kernels);
        self.tail = seq + 1;
        Ticket { stream, seq }
    }

    /// Records that the last command's time is wanted.
    pub(super) fn watch(&mut self, cell: Arc<StampCell>) {
        self.stamps.push_back(cell);
    }

    /// Copies the times of finished markers out of the ring.
    pub(super) fn harvest(&mut self, map: &Mapping) {
        while let Some(cell) = self.stamps.front() {
            let word = ring::done_word(map, cell.ticket.ring(), cell.ticket.seq);
            if word & PENDING != 0 {
                return;
            }
            cell.set(word);
            self.stamps.pop_front();
        }
    }

    /// Ends the stream; pending markers count as reached now.
    pub(super) fn end(&mut self, map: &Mapping, now: u64) {
        self.harvest(map);
        for cell in self.stamps.drain(..) {
            cell.set(now);
        }
        self.stream = None;
    }

    /// Completion time of a command, if the ring still has it.
    pub(super) fn time_of(&self, map: &Mapping, ticket: Ticket) -> Option<u64> {
        let is_known =
            self.is_of(ticket.stream) && ticket.seq < self.tail && ticket.seq + RING_ENTRIES >= self.tail;
        let word = ring::done_word(map, ticket.ring(), ticket.seq);
        (is_known && word & PENDING == 0).then_some(word)
    }
}
