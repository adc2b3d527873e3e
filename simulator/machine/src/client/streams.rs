//! Creation, end and submission of streams.

use super::producer::Producer;
use super::{CannotCommit, Client};
use crate::commit::Change;
use crate::core::{ContextRow, StreamRow};
use crate::layout::{RING_WORDS, STREAMS, as_index, name, ring as ring_start, split};
use crate::process_table::remove_stream;
use crate::shared::Local;
use crate::{Command, ContextId, QueueFull, Refused, StreamId, Ticket, ring};
use parking_lot::{Mutex, MutexGuard};

impl Client {
    /// Makes a stream. A lower `priority` has precedence if multiprocessors are short. Errors: `Refused::Gone` if the
    /// context does not exist, `Full`, `DiskFull`.
    pub fn stream_create(&self, context: ContextId, priority: i32) -> Result<StreamId, Refused> {
        let shared = self.shared();
        let local = &mut *shared.local.lock();
        self.sweep(local);
        let stream = shared.transact(local, None, |core| {
            let is_own = |row: &&ContextRow| row.id == context.0 && row.client == self.id;
            let Some(owner) = core.contexts.iter().find(is_own).copied() else {
                return Change::None(Err(Refused::Gone));
            };
            let Some(ring) = (0..STREAMS).find(|ring| core.stream_on_ring(*ring).is_none()) else {
                return Change::None(Err(Refused::Full("streams")));
            };
            if let Err(why) = shared.reserve(ring_start(ring), RING_WORDS) {
                return Change::None(Err(why.into()));
            }
            // The ring has no owner: the last one has ended its stream, or is dead.
            let head = ring::tail(&shared.map, ring);
            let id = name(ring, head);
            let row = StreamRow {
                id,
                context: owner.id,
                client: self.id,
                gpu: owner.gpu,
                priority: (1u64 << 32).saturating_add_signed(i64::from(priority)),
                head,
                kernels: ring::kernels(&shared.map, ring),
                ..StreamRow::default()
            };
            let position = core.streams.partition_point(|other| split(other.id).0 < ring);
            core.streams.insert(position, row);
            Change::Made(Ok(StreamId(id)))
        })??;
        let (ring, _) = split(stream.0);
        if let Some(cell) = self.producers.get(as_index(ring)) {
            cell.get_or_init(Box::default).lock().begin(stream, ring::kernels(&shared.map, ring));
        }
        Ok(stream)
    }

    /// Ends a stream; pending work still completes. Later submissions fail with `QueueFull`.
    pub fn stream_destroy(&self, stream: StreamId) {
        let (ring, _) = split(stream.0);
        let Some(mut producer) = self.producer(ring).map(Mutex::lock).filter(|end| end.is_open(stream))
        else {
            return;
        };
        producer.close();
        drop(producer);
        self.closing.lock().push(ring);
        self.sweep(&mut self.shared().local.lock());
    }

    /// Submits a command, at the cost of a clock reading and a few stores. Error: `QueueFull` while `queue_depth`
    /// commands are unfinished.
    pub fn submit(&self, stream: StreamId, command: Command) -> Result<Ticket, QueueFull> {
        let depth = self.shared().config.queue_depth;
        let mut producer = self.open_producer(stream).ok_or(QueueFull)?;
        if !producer.has_room(depth) {
            drop(producer);
            self.find_finished(stream);
            producer = self.open_producer(stream).filter(|end| end.has_room(depth)).ok_or(QueueFull)?;
        }
        Ok(producer.submit(&self.shared().map, stream, command, self.shared().now()))
    }

    /// Submits a command, waiting for room. On an ended stream the ticket counts as done.
    pub fn submit_blocking(&self, stream: StreamId, command: Command) -> Ticket {
        self.submit_blocking_then(stream, command, |_, _| {})
    }

    /// The last command of the stream, if any. Waiting for it synchronizes the stream.
    pub fn last_ticket(&self, stream: StreamId) -> Option<Ticket> {
        let producer = self.producer(split(stream.0).0)?.lock();
        producer.last().filter(|ticket| ticket.stream == stream)
    }

    /// Opens a `Command::Gate`, even before its stream reaches it.
    pub fn open_gate(&self, ticket: Ticket) {
        let Some(producer) = self.producer(ticket.ring()) else {
            return;
        };
        // Locked, so that the entry is not reused meanwhile.
        let producer = producer.lock();
        if producer.is_of(ticket.stream) {
            ring::open_gate(&self.shared().map, ticket.ring(), ticket.seq, self.shared().now());
            drop(producer);
            self.shared().wake_waiters();
        }
    }

    /// As `submit_blocking`. `then` runs with the queue locked, unless the stream has ended.
    pub(super) fn submit_blocking_then(
        &self,
        stream: StreamId,
        command: Command,
        then: impl FnOnce(&mut Producer, Ticket),
    ) -> Ticket {
        let depth = self.shared().config.queue_depth;
        loop {
            let Some(mut producer) = self.open_producer(stream) else {
                return Ticket { stream, seq: split(stream.0).1 };
            };
            if producer.has_room(depth) {
                let ticket = producer.submit(&self.shared().map, stream, command, self.shared().now());
                then(&mut producer, ticket);
                return ticket;
            }
            let blocker = producer.blocker(depth);
            drop(producer);
            if let Some(blocker) = blocker {
                self.wait(blocker);
            }
            self.find_finished(stream);
        }
    }

    pub(super) fn producer(&self, ring: u64) -> Option<&Mutex<Producer>> {
        self.producers.get(as_index(ring))?.get().map(|end| &**end)
    }

    fn open_producer(&self, stream: StreamId) -> Option<MutexGuard<'_, Producer>> {
        self.producer(split(stream.0).0).map(Mutex::lock).filter(|end| end.is_open(stream))
    }

    /// Finds finished commands. Only committed completions count, as only then no process reads their entries.
    fn find_finished(&self, stream: StreamId) {
        let local = &mut *self.shared().local.lock();
        if self.advance_locked(local).is_ok()
            && let Some(row) = local.base.stream(stream.0)
            && let Some(mut producer) = self.open_producer(stream)
        {
            producer.head = producer.head.max(row.head);
        }
    }

    /// Removes destroyed streams without pending work from the machine.
    pub(super) fn sweep(&self, local: &mut Local) {
        let mut closing = self.closing.lock();
        if closing.is_empty() || self.advance_locked(local).is_err() {
            return;
        }
        closing.retain(|ring| matches!(self.remove_drained(local, *ring), Ok(false)));
    }

    /// Removes the destroyed stream if it has drained. Returns whether it is gone.
    fn remove_drained(&self, local: &mut Local, ring: u64) -> Result<bool, CannotCommit> {
        let shared = self.shared();
        let Some(producer) = self.producer(ring) else {
            return Ok(true);
        };
        let Some(stream) = producer.lock().stream() else {
            return Ok(true);
        };
        let has_work = |head: u64| head < ring::tail(&shared.map, ring);
        if local.base.stream(stream.0).is_some_and(|row| has_work(row.head)) {
            return Ok(false);
        }
        producer.lock().end(&shared.map, shared.now());
        shared.transact(local, None, |core| {
            let position = core.stream_on_ring(ring);
            let row = position.and_then(|position| core.streams.get(position));
            match (position, row) {
                (Some(position), Some(row)) if row.id == stream.0 => {
                    remove_stream(core, &shared.map, position);
                    Change::Made(true)
                }
                _ => Change::None(true),
            }
        })
    }

    /// Refuses further commands to the context's streams. Returns their rings.
    pub(super) fn close_streams_of(&self, context: ContextId) -> Vec<u64> {
        let local = &mut *self.shared().local.lock();
        if self.shared().refresh(local).is_err() {
            return Vec::new();
        }
        let rows = local.base.streams.iter().filter(|row| row.context == context.0 && row.client == self.id);
        let rings: Vec<u64> = rows.map(|row| split(row.id).0).collect();
        for producer in rings.iter().filter_map(|ring| self.producer(*ring)) {
            producer.lock().close();
        }
        rings
    }

    /// Ends the streams of a destroyed context.
    pub(super) fn forget_streams(&self, local: &mut Local, rings: &[u64]) {
        for ring in rings {
            let Some(mut producer) = self.producer(*ring).map(Mutex::lock) else {
                continue;
            };
            if producer.stream().is_some_and(|stream| local.base.stream(stream.0).is_none()) {
                producer.end(&self.shared().map, self.shared().now());
            }
        }
    }
}
