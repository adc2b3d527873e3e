//! A stream: a queue of the machine, and how it keeps order with the other streams of its context.
//!
//! "Stream synchronization behavior" (CUDA Driver API): the legacy default stream waits for all work before
//! in the context's blocking streams, and work after in them waits for it; non-blocking streams keep out of
//! this. It is done by `Wait` commands, which are submitted only where the other side has work.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_driver_api::{CUerror, CUresult};
use vcuda_machine::{Client, Command, Stamp, StreamId, Ticket};

use crate::capture::state::Member;
use crate::context::Context;
use crate::process::process;
use crate::stream::attributes::Attributes;
use crate::stream::effects::{self, Effect};

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

/// What a stream is to its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The context's legacy default stream.
    Legacy,
    /// A thread's own default stream.
    PerThread,
    /// Nobody's: see `stream::gather`.
    Gathering,
    /// Made by the program; known by this handle.
    Created(usize),
}

/// What the streams of a context share, to keep order with the legacy one.
#[derive(Debug, Default)]
pub(crate) struct Group {
    legacy: OnceCell<Weak<Stream>>,
    blocking: Mutex<Vec<Weak<Stream>>>,
    /// Commands submitted to the legacy stream.
    legacy_count: AtomicU64,
    /// Commands submitted to blocking streams.
    blocking_count: AtomicU64,
}

impl Group {
    fn blocking(&self) -> Vec<Arc<Stream>> {
        self.blocking.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// `cuStreamGetId`: unique over the life of the process.
    pub(crate) key: u64,
    /// What it is.
    pub(crate) role: Role,
    /// What the program knows it by.
    pub(crate) handle: usize,
    /// Its context's handle.
    pub(crate) context: usize,
    /// Its context's id, which no later context has.
    pub(crate) context_unique: u64,
    /// The GPU's index on the machine.
    pub(crate) gpu: usize,
    /// The GPU's ordinal in this process.
    pub(crate) ordinal: i32,
    /// As given to `cuStreamCreate`.
    pub(crate) flags: u32,
    /// After clamping.
    pub(crate) priority: i32,
    /// `cuStreamSetAttribute`.
    pub(crate) attributes: Mutex<Attributes>,
    id: StreamId,
    group: OnceCell<Arc<Group>>,
    ended: AtomicBool,
    detached: AtomicBool,
    /// Multiprocessors of its green context; all of the device's where it has none.
    pub(crate) sms: u32,
    /// The other side's count (see [`Group`]) up to which this stream is in order. The lock keeps a wait
    /// and the command it is for in the order in which threads asked.
    seen: Mutex<u64>,
}

static KEYS: AtomicU64 = AtomicU64::new(1);

impl Stream {
    /// A stream over the machine's `id`; [`Stream::join`] completes it.
    pub(crate) fn new(context: &Context, role: Role, flags: u32, priority: i32, id: StreamId) -> Stream {
        let handle = match role {
            Role::Gathering => 0,
            Role::Legacy => super::LEGACY,
            Role::PerThread => super::PER_THREAD,
            Role::Created(handle) => handle,
        };
        Stream {
            key: KEYS.fetch_add(1, Ordering::Relaxed),
            role,
            handle,
            context: context.handle,
            context_unique: context.unique,
            gpu: context.device.gpu,
            ordinal: context.device.ordinal,
            flags,
            priority,
            attributes: Mutex::default(),
            id,
            group: OnceCell::new(),
            ended: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            sms: context
                .green
                .as_ref()
                .and_then(|part| part.sms)
                .map_or(context.device.config.sms, |sms| sms.count),
            seen: Mutex::new(0),
        }
    }

    /// Makes it one of its context's streams.
    pub(crate) fn join(self: &Arc<Stream>, group: &Arc<Group>) {
        if self.role == Role::Legacy {
            let _ = group.legacy.set(Arc::downgrade(self));
        } else if self.is_blocking() {
            let mut blocking = group.blocking.lock();
            blocking.retain(|stream| stream.strong_count() > 0);
            blocking.push(Arc::downgrade(self));
        }
        let _ = self.group.set(Arc::clone(group));
    }

    /// Whether it synchronises with the legacy stream.
    pub(crate) fn is_blocking(&self) -> bool {
        self.role != Role::Legacy && self.flags & NON_BLOCKING == 0
    }

    /// As the capture machinery knows it.
    pub(crate) fn member(&self) -> Member {
        Member {
            key: self.key,
            context: self.context,
            blocking: self.is_blocking(),
        }
    }

    /// Whether a command was submitted to this stream, where it is in order anyway.
    pub(crate) fn is_where(&self, ticket: Ticket) -> bool {
        ticket.stream() == self.id
    }

    /// Whether the program has destroyed it.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Whether its green context has ended.
    pub(crate) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Relaxed)
    }

    /// Its green context ends.
    pub(crate) fn detach(&self) {
        self.detached.store(true, Ordering::Relaxed);
    }

    /// Ends it: "the resources associated with hStream will be released automatically once the device has
    /// completed all work in hStream".
    pub(crate) fn end(&self) {
        if !self.ended.swap(true, Ordering::Relaxed)
            && let Ok(process) = process()
        {
            process.client.stream_destroy(self.id);
        }
    }

    /// Submits waits for what the default-stream rules order before the next command, which then must
    /// follow while `seen` is still held.
    fn catch_up(&self, client: &Client, seen: &mut u64) {
        let Some(group) = self.group.get() else { return };
        if self.role == Role::Legacy {
            let count = group.blocking_count.load(Ordering::Acquire);
            if count != *seen {
                *seen = count;
                // The lock is not kept: submitting may have to wait for room.
                for stream in group.blocking() {
                    self.wait_for_last(client, &stream);
                }
            }
        } else if self.is_blocking() {
            let count = group.legacy_count.load(Ordering::Acquire);
            if count != *seen {
                *seen = count;
                if let Some(legacy) = group.legacy.get().and_then(Weak::upgrade) {
                    self.wait_for_last(client, &legacy);
                }
            }
        }
    }

    fn wait_for_last(&self, client: &Client, other: &Stream) {
        // A wait for what is over costs less than finding out that it is over.
        if let Some(ticket) = client.last_ticket(other.id) {
            client.submit_blocking(self.id, Command::Wait { ticket });
        }
    }

    /// Tells the other side of the default-stream rules that there is something new.
    fn count_up(&self) {
        let Some(group) = self.group.get() else { return };
        if self.role == Role::Legacy {
            group.legacy_count.fetch_add(1, Ordering::Release);
        } else if self.is_blocking() {
            group.blocking_count.fetch_add(1, Ordering::Release);
        }
    }

    /// Submits a command; waits while the queue is full, as a launch does after 1024 unfinished ones.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_INITIALIZED`.
    #[inline]
    pub(crate) fn submit(&self, command: Command) -> Result<Ticket, CUerror> {
        let client = &process()?.client;
        let mut seen = self.seen.lock();
        self.catch_up(client, &mut seen);
        let ticket = client.submit_blocking(self.id, command);
        self.count_up();
        Ok(ticket)
    }

    /// As [`Stream::submit`]; `effect` happens in this process after completion.
    pub(crate) fn submit_with_effect(&self, command: Command, effect: Effect) -> CUresult {
        let ticket = self.submit(command)?;
        effects::add(ticket, effect);
        Ok(())
    }

    /// Submits a marker whose time of completion stays known.
    pub(crate) fn mark(&self) -> Result<Stamp, CUerror> {
        let client = &process()?.client;
        let mut seen = self.seen.lock();
        self.catch_up(client, &mut seen);
        let stamp = client.mark(self.id);
        self.count_up();
        Ok(stamp)
    }

    /// Submits a marker and then a gate, or a kernel that spins for one. What waits for the marker opens the gate.
    pub(crate) fn mark_and_hold(&self, gate: Command) -> Result<(Ticket, Ticket), CUerror> {
        let client = &process()?.client;
        let mut seen = self.seen.lock();
        self.catch_up(client, &mut seen);
        let marker = client.submit_blocking(self.id, Command::Marker);
        let gate = client.submit_blocking(self.id, gate);
        self.count_up();
        Ok((marker, gate))
    }

    /// What the stream must have done for all of its work to be done, legacy rules included: work of
    /// blocking streams counts to the legacy one ("synchronizes with all blocking streams").
    fn frontier(&self, client: &Client) -> Vec<Ticket> {
        let mut tickets: Vec<Ticket> = client.last_ticket(self.id).into_iter().collect();
        if self.role == Role::Legacy
            && let Some(group) = self.group.get()
        {
            let last = |stream: Arc<Stream>| client.last_ticket(stream.id);
            tickets.extend(group.blocking().into_iter().filter_map(last));
        }
        tickets
    }

    /// Whether all work is done.
    pub(crate) fn is_idle(&self) -> bool {
        let Ok(process) = process() else { return true };
        self.frontier(&process.client)
            .into_iter()
            .all(|ticket| process.client.is_done(ticket))
    }

    /// Waits for all work submitted so far and for its effects.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_INITIALIZED`.
    pub(crate) fn wait_until_idle(&self) -> CUresult {
        let client = &process()?.client;
        for ticket in self.frontier(client) {
            client.wait(ticket);
        }
        effects::settle();
        Ok(())
    }
}
