//! Markers whose completion time is kept outside the ring.

use super::Client;
use crate::{Command, StreamId, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A marker whose completion time stays known (for an event's record).
#[derive(Debug, Clone)]
pub struct Stamp(Arc<StampCell>);

#[derive(Debug)]
pub(super) struct StampCell {
    pub(super) ticket: Ticket,
    /// Completion time plus one; 0: unknown.
    time: AtomicU64,
}

impl StampCell {
    pub(super) fn set(&self, ns: u64) {
        self.time.store(ns + 1, Ordering::Release);
    }

    fn get(&self) -> Option<u64> {
        self.time.load(Ordering::Acquire).checked_sub(1)
    }
}

impl Stamp {
    /// The marker's ticket, for `wait` and `Command::Wait`.
    pub fn ticket(&self) -> Ticket {
        self.0.ticket
    }
}

impl Client {
    /// Submits such a marker, waiting for room.
    pub fn mark(&self, stream: StreamId) -> Stamp {
        let mut stamp = None;
        let ticket = self.submit_blocking_then(stream, Command::Marker, |producer, ticket| {
            let cell = Arc::new(StampCell { ticket, time: AtomicU64::new(0) });
            producer.watch(Arc::clone(&cell));
            stamp = Some(Stamp(cell));
        });
        stamp.unwrap_or_else(|| {
            let cell = StampCell { ticket, time: AtomicU64::new(0) };
            cell.set(self.shared().now());
            Stamp(Arc::new(cell))
        })
    }

    /// Time at which the marker was reached (machine clock, ns); `None`: not yet. If its context is destroyed, a pending
    /// marker counts as reached then.
    pub fn stamp_ns(&self, stamp: &Stamp) -> Option<u64> {
        let cell = &*stamp.0;
        if let Some(ns) = cell.get() {
            return Some(ns);
        }
        if !self.is_done(cell.ticket) {
            return None;
        }
        // The commit that finished the marker was seen, so its time is in the ring after `refresh`.
        if let Some(producer) = self.producer(cell.ticket.ring()) {
            producer.lock().harvest(&self.shared().map);
        }
        Some(cell.get().unwrap_or_else(|| self.shared().now()))
    }
}
