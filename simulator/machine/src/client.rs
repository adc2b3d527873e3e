//! `Client`: one process of the machine.

use crate::{Command, ContextId, Machine, QueueFull, Refused, StreamId, Ticket};
use std::sync::Arc;

/// One process of the machine. Shared between its threads by reference. A child after `fork` must not use it.
#[derive(Debug)]
pub struct Client {}

/// A marker whose completion time stays known after the stream has moved on (an event's record).
#[derive(Debug, Clone)]
pub struct Stamp(#[allow(dead_code, reason = "skeleton")] Arc<()>);

impl Stamp {
    /// The marker's ticket, for `wait` and `Command::Wait`.
    #[must_use]
    #[allow(clippy::unimplemented, reason = "skeleton")]
    pub fn ticket(&self) -> Ticket {
        unimplemented!()
    }
}

#[allow(
    clippy::panic,
    unused_variables,
    clippy::unimplemented,
    reason = "skeleton; bodies follow"
)]
impl Client {
    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        unimplemented!()
    }
    /// Makes a context on `gpu` and takes `config.context_bytes` there.
    ///
    /// # Errors
    /// `Refused`; a lack of memory is counted as a denied allocation.
    pub fn context_create(&self, gpu: usize) -> Result<ContextId, Refused> {
        unimplemented!()
    }
    /// Ends a context: its bytes go back, its streams end and their pending work is dropped at once (it counts as done).
    pub fn context_destroy(&self, context: ContextId) {
        unimplemented!()
    }
    /// Takes `bytes` of the GPU's memory, or nothing.
    ///
    /// # Errors
    /// `Refused::OutOfMemory` or `Fault`, both counted as denied; `NoSuchGpu`.
    pub fn take(&self, gpu: usize, bytes: u64) -> Result<(), Refused> {
        unimplemented!()
    }
    /// Gives back `bytes` (at most what this client holds).
    pub fn give(&self, gpu: usize, bytes: u64) {
        unimplemented!()
    }
    /// Makes a stream; a lower `priority` goes first where multiprocessors are short.
    ///
    /// # Errors
    /// `Refused::Gone` without that context, `Full`, `DiskFull`.
    pub fn stream_create(&self, context: ContextId, priority: i32) -> Result<StreamId, Refused> {
        unimplemented!()
    }
    /// Ends a stream; pending work still runs to its end. Submitting to it afterwards is refused with `QueueFull`.
    pub fn stream_destroy(&self, stream: StreamId) {
        unimplemented!()
    }
    /// Submits a command. Costs a clock reading and a few stores.
    ///
    /// # Errors
    /// `QueueFull` while `queue_depth` commands are unfinished.
    pub fn submit(&self, stream: StreamId, command: Command) -> Result<Ticket, QueueFull> {
        unimplemented!()
    }
    /// Submits a command, waiting for room. On a stream that has ended the ticket counts as done.
    pub fn submit_blocking(&self, stream: StreamId, command: Command) -> Ticket {
        unimplemented!()
    }
    /// Submits a marker whose completion time survives, waiting for room.
    pub fn mark(&self, stream: StreamId) -> Stamp {
        unimplemented!()
    }
    /// When the marker was reached, machine clock, ns; `None`: not yet.
    #[must_use]
    pub fn stamp_ns(&self, stamp: &Stamp) -> Option<u64> {
        unimplemented!()
    }
    /// Whether the command has finished by now. Commands of a stream that has ended have.
    #[must_use]
    pub fn is_done(&self, ticket: Ticket) -> bool {
        unimplemented!()
    }
    /// When the command finished, if it has and no later command took its place in the ring (the last 1024 are known).
    #[must_use]
    pub fn done_ns(&self, ticket: Ticket) -> Option<u64> {
        unimplemented!()
    }
    /// The last command submitted to the stream, if any: synchronizing a stream is waiting for it.
    #[must_use]
    pub fn last_ticket(&self, stream: StreamId) -> Option<Ticket> {
        unimplemented!()
    }
    /// Waits until the command has finished.
    pub fn wait(&self, ticket: Ticket) {
        unimplemented!()
    }
    /// Waits at most `timeout_ns` of real time; says whether the command has finished.
    #[must_use]
    pub fn wait_timeout(&self, ticket: Ticket, timeout_ns: u64) -> bool {
        unimplemented!()
    }
    /// Lets a `Command::Gate` pass, now or when its stream reaches it.
    pub fn open_gate(&self, ticket: Ticket) {
        unimplemented!()
    }
    /// Brings the machine's state up to now.
    pub fn advance(&self) {
        unimplemented!()
    }
}
