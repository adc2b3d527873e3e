//! Commands of a stream, and the names of things on a machine.

use crate::layout::{name, split};

/// A context on a GPU. Never used twice on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub(crate) u64);

/// A stream of a context. Never used twice on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub(crate) u64);

/// One submitted command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) stream: StreamId,
    pub(crate) seq: u64,
}

impl Ticket {
    /// The stream that the command was submitted to.
    #[must_use]
    pub fn stream(self) -> StreamId {
        self.stream
    }

    /// Ring and number in one word.
    pub(crate) fn command(self) -> u64 {
        name(split(self.stream.0).0, self.seq)
    }

    pub(crate) fn ring(self) -> u64 {
        split(self.stream.0).0
    }
}

/// One command of a stream. A stream does its commands in order, each after the one before has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Occupies `sms` multiprocessors (0, or more than there are: all) for `duration_ns` of resident time.
    Kernel {
        /// Time on the GPU, ns; `u64::MAX`: never ends.
        duration_ns: u64,
        /// Multiprocessors that its blocks need.
        sms: u32,
    },
    /// As a kernel that spins until its peers spin too: once `parties` kernels with this `rendezvous` have begun, in whatever
    /// streams of whatever processes and GPUs, each of them runs for `duration_ns` more.
    Rendezvous {
        /// Number of the group.
        rendezvous: u16,
        /// Size of the group.
        parties: u8,
        /// Time on the GPU from then on (ns), below 2^48.
        duration_ns: u64,
        /// Multiprocessors that its blocks need.
        sms: u32,
    },
    /// As a kernel that spins on memory of the host: runs until its owner has called `Client::open_gate`.
    Spin {
        /// Multiprocessors that its blocks need.
        sms: u32,
    },
    /// A copy or a set within the device: occupies all its multiprocessors, as service time, but is no launch.
    Transfer {
        /// Time on the GPU, ns.
        duration_ns: u64,
    },
    /// Occupies one copy engine; needs no residence and is no service time.
    Copy {
        /// Time on the engine, ns.
        duration_ns: u64,
        /// Which engine.
        engine: Engine,
    },
    /// Nothing: its completion time is what counts (events).
    Marker,
    /// Passes once another stream's command has finished.
    Wait {
        /// The other command, of the same process.
        ticket: Ticket,
    },
    /// Passes once its owner has called `Client::open_gate` (host functions, wait-value).
    Gate,
}

/// The copy engines of a GPU; each does one copy at a time, first come first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Host to device.
    ToDevice,
    /// Device to host.
    ToHost,
    /// Between devices.
    Peer,
    /// No engine of the GPU's: within the host.
    Host,
}
