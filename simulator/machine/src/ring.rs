//! Commands of a stream: a ring in the mapped file, written by the stream's owner, read by each process that plays the
//! machine.
//!
//! Words of an entry: kind and multiprocessors or engine; duration, target or opening time; submission time (ns); done
//! word.
//! The done word is `PENDING | seq` until the command has finished, then its completion time. The committing process stores
//! it by exchange, so a late store cannot affect the entry's next command.

use crate::layout::{entry, ring};
use crate::map::Mapping;
use crate::{Command, Engine};

/// Bit of a done word while the command is unfinished.
pub(crate) const PENDING: u64 = 1 << 63;

const KERNEL: u64 = 1;
const COPY: u64 = 2;
const MARKER: u64 = 3;
const WAIT: u64 = 4;
const GATE: u64 = 5;
const RENDEZVOUS: u64 = 6;
const SPIN: u64 = 7;

/// Bits of a rendezvous's duration in its argument; the remaining bits are its id.
const DURATION_BITS: u32 = 48;

/// A command as the engine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) work: Work,
    /// Time of submission (ns).
    pub(crate) arrival: u64,
}

/// Kind of a command, as the engine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Kernel { duration: u64, sms: u64, until: Until },
    Copy { duration: u64, engine: u64 },
    Marker,
    Wait { command: u64 },
    Gate { opened: Option<u64> },
}

/// Condition for the start of a kernel's duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// None: it starts when the kernel begins.
    Begun,
    /// `parties` kernels of this rendezvous have begun.
    Met { rendezvous: u64, parties: u64 },
    /// The gate is open; with the time of opening.
    Opened(Option<u64>),
}

/// Sequence number of the next command.
pub(crate) fn tail(map: &Mapping, index: u64) -> u64 {
    map.acquire(ring(index))
}

/// Number of kernels submitted to the ring by all its streams.
pub(crate) fn kernels(map: &Mapping, index: u64) -> u64 {
    map.load(ring(index) + 1)
}

/// Writes command `seq` to a free entry and publishes it. Only for the stream's owner.
pub(crate) fn submit(map: &Mapping, index: u64, seq: u64, command: Command, now: u64, kernels: u64) {
    let at = entry(index, seq);
    let (head, argument) = match command {
        Command::Kernel { duration_ns, sms } => (KERNEL | (u64::from(sms) << 8), duration_ns),
        Command::Rendezvous { rendezvous, parties, duration_ns, sms } => (
            RENDEZVOUS | (u64::from(sms) << 8) | (u64::from(parties) << 40),
            (u64::from(rendezvous) << DURATION_BITS) | (duration_ns & ((1 << DURATION_BITS) - 1)),
        ),
        Command::Spin { sms } => (SPIN | (u64::from(sms) << 8), 0),
        Command::Transfer { duration_ns } => (KERNEL, duration_ns),
        Command::Copy { duration_ns, engine } => (COPY | (engine_number(engine) << 8), duration_ns),
        Command::Marker => (MARKER, 0),
        Command::Wait { ticket } => (WAIT, ticket.command()),
        Command::Gate => (GATE, 0),
    };
    map.store(at, head);
    map.store(at + 1, argument);
    map.store(at + 2, now);
    map.store(at + 3, PENDING | seq);
    map.store(ring(index) + 1, kernels);
    map.publish(ring(index), seq + 1);
}

/// Reads command `seq`. If the owner overwrites it meanwhile, the result is invalid and the reader's commit fails.
pub(crate) fn read(map: &Mapping, index: u64, seq: u64) -> Entry {
    let at = entry(index, seq);
    let (head, argument) = (map.load(at), map.acquire(at + 1));
    let work = match head & 0xff {
        KERNEL => Work::Kernel { duration: argument, sms: head >> 8, until: Until::Begun },
        RENDEZVOUS => Work::Kernel {
            duration: argument & ((1 << DURATION_BITS) - 1),
            sms: head >> 8 & u64::from(u32::MAX),
            until: Until::Met { rendezvous: argument >> DURATION_BITS, parties: head >> 40 },
        },
        SPIN => Work::Kernel {
            duration: 0,
            sms: head >> 8,
            until: Until::Opened((argument != 0).then_some(argument)),
        },
        COPY => Work::Copy { duration: argument, engine: head >> 8 },
        WAIT => Work::Wait { command: argument },
        GATE => Work::Gate { opened: (argument != 0).then_some(argument) },
        _ => Work::Marker,
    };
    Entry { work, arrival: map.load(at + 2) }
}

/// Opens the gate `seq`, or ends the kernel that spins for it, if its entry still has it.
pub(crate) fn open_gate(map: &Mapping, index: u64, seq: u64, now: u64) {
    let at = entry(index, seq);
    if matches!(map.load(at) & 0xff, GATE | SPIN) && map.load(at + 3) == (PENDING | seq) {
        map.exchange(at + 1, 0, now.max(1));
    }
}

/// The done word of command `seq`.
pub(crate) fn done_word(map: &Mapping, index: u64, seq: u64) -> u64 {
    map.acquire(entry(index, seq) + 3)
}

/// Stores a completion, unless it is stored already or the entry has another command.
pub(crate) fn complete(map: &Mapping, index: u64, seq: u64, ns: u64) {
    let at = entry(index, seq) + 3;
    if map.load(at) == (PENDING | seq) {
        map.exchange(at, PENDING | seq, ns);
    }
}

fn engine_number(engine: Engine) -> u64 {
    match engine {
        Engine::ToDevice => 0,
        Engine::ToHost => 1,
        Engine::Peer => 2,
        Engine::Host => 3,
    }
}
