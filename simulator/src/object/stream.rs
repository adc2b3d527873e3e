//! Streams of the machine and of a context. `semantics/ordering.rs` submits commands to them.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use vcuda_machine::{Stamp, StreamId, Ticket};

use crate::base::table::{Kind, Table};
use crate::object::capture::Member;
use crate::object::process::process;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

/// Role of a stream in its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The context's legacy default stream.
    Legacy,
    /// A thread's own default stream.
    PerThread,
    /// A helper that waits for a whole context, see `semantics::stream::gather`.
    Gathering,
    /// Made by the program, with this handle.
    Created(usize),
}

/// State that a context's streams share, for the order with the legacy stream.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) legacy: OnceCell<Weak<Stream>>,
    blocking: Mutex<Vec<Weak<Stream>>>,
    /// Number of commands submitted to the legacy stream.
    pub(crate) legacy_count: AtomicU64,
    /// Number of commands submitted to blocking streams.
    pub(crate) blocking_count: AtomicU64,
}

impl Group {
    /// Living streams that synchronise with the legacy one.
    pub(crate) fn blocking(&self) -> Vec<Arc<Stream>> {
        self.blocking.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    /// `cuStreamGetId`: unique over the life of the process.
    pub(crate) key: u64,
    pub(crate) role: Role,
    pub(crate) handle: usize,
    pub(crate) context: usize,
    /// `Context::unique` of its context, never reused.
    pub(crate) context_unique: u64,
    /// The GPU's index on the machine.
    pub(crate) gpu: usize,
    /// The GPU's ordinal in this process.
    pub(crate) ordinal: i32,
    /// Flags given to `cuStreamCreate`.
    pub(crate) flags: u32,
    /// Priority after clamping.
    pub(crate) priority: i32,
    /// Its queue on the machine.
    pub(crate) id: StreamId,
    /// Shared state, set by [`Stream::join`].
    pub(crate) group: OnceCell<Arc<Group>>,
    ended: AtomicBool,
    detached: AtomicBool,
    /// Number of multiprocessors of its green context; without one, all of the device's.
    pub(crate) sms: u32,
    /// The other side's count (see [`Group`]) up to which this stream is ordered. The lock keeps a wait and its command
    /// together when several threads submit.
    pub(crate) seen: Mutex<u64>,
}

/// All streams made by programs (default streams have fixed handles).
pub(crate) static STREAMS: Table<Stream> = Table::new(Kind::Stream);

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: usize = 1;

/// `CU_STREAM_PER_THREAD`.
pub(crate) const PER_THREAD: usize = 2;

/// Streams of a context: none at first, as even the legacy stream is made at its first use.
#[derive(Debug, Default)]
pub(crate) struct ContextStreams {
    /// Shared state of the streams.
    pub(crate) group: Arc<Group>,
    pub(crate) legacy: OnceCell<Arc<Stream>>,
    /// Helper that waits for all streams when an event is recorded in the whole context.
    pub(crate) gathering: OnceCell<Arc<Stream>>,
    /// See [`ContextStreams::all`].
    pub(crate) all: Mutex<Vec<Arc<Stream>>>,
    /// Stamps that the whole context waits for; later streams wait for them too.
    pub(crate) held: Mutex<Vec<Stamp>>,
}

impl ContextStreams {
    /// All streams that may have work, including those that the program has destroyed.
    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        self.all.lock().clone()
    }
}

/// Facts about the context of a new stream, see the fields of [`Stream`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) context: usize,
    /// `Context::unique`.
    pub(crate) unique: u64,
    /// The GPU's index on the machine.
    pub(crate) gpu: usize,
    /// The GPU's ordinal in this process.
    pub(crate) ordinal: i32,
    /// Number of multiprocessors of its green context; without one, all of the device's.
    pub(crate) sms: u32,
}

static KEYS: AtomicU64 = AtomicU64::new(1);

impl Stream {
    /// A stream for the machine's `id`, to be completed by [`Stream::join`].
    pub(crate) fn new(owner: Owner, role: Role, flags: u32, priority: i32, id: StreamId) -> Stream {
        let handle = match role {
            Role::Gathering => 0,
            Role::Legacy => LEGACY,
            Role::PerThread => PER_THREAD,
            Role::Created(handle) => handle,
        };
        Stream {
            key: KEYS.fetch_add(1, Ordering::Relaxed),
            role,
            handle,
            context: owner.context,
            context_unique: owner.unique,
            gpu: owner.gpu,
            ordinal: owner.ordinal,
            flags,
            priority,
            id,
            group: OnceCell::new(),
            ended: AtomicBool::new(false),
            detached: AtomicBool::new(false),
            sms: owner.sms,
            seen: Mutex::new(0),
        }
    }

    /// Adds it to its context's streams.
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

    /// Its description for capture.
    pub(crate) fn member(&self) -> Member {
        Member { key: self.key, context: self.context, blocking: self.is_blocking() }
    }

    /// Whether a command was submitted to this stream, which orders it anyway.
    pub(crate) fn has(&self, ticket: Ticket) -> bool {
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

    /// Marks its green context as ended.
    pub(crate) fn detach(&self) {
        self.detached.store(true, Ordering::Relaxed);
    }

    /// Marks it as ended: "the resources associated with hStream will be released automatically once the device has
    /// completed all work in hStream".
    pub(crate) fn end(&self) {
        if !self.ended.swap(true, Ordering::Relaxed)
            && let Ok(process) = process()
        {
            process.client.stream_destroy(self.id);
        }
    }
}
