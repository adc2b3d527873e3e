//! Commands of a stream, and ids of contexts, streams and commands.

use crate::layout::{name, split};

/// Id of a context, never reused on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub(crate) u64);

/// Id of a stream, never reused on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub(crate) u64);

/// Id of a submitted command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) stream: StreamId,
    pub(crate) seq: u64,
}

impl Ticket {
    /// The stream that the command was submitted to.
    pub fn stream(self) -> StreamId {
        self.stream
    }

    /// Ring and sequence number in one word.
    pub(crate) fn command(self) -> u64 {
        name(split(self.stream.0).0, self.seq)
    }

    pub(crate) fn ring(self) -> u64 {
        split(self.stream.0).0
    }
}

/// A command. A stream executes its commands in order, each after the previous one has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Occupies `sms` multiprocessors (0, or more than there are: all) for `duration_ns` of resident time.
    Kernel {
        /// Time on the GPU, ns; `u64::MAX`: never ends.
        duration_ns: u64,
        /// Multiprocessors that its blocks need.
        sms: u32,
    },
    /// Models a kernel that spins until its peers run. Once `parties` kernels with this `rendezvous` have begun, in any
    /// streams of any processes and GPUs, each runs for `duration_ns` more.
    Rendezvous {
        /// Id of the group.
        rendezvous: u16,
        /// Size of the group.
        parties: u8,
        /// Time on the GPU after the rendezvous (ns), below 2^48.
        duration_ns: u64,
        /// Multiprocessors that its blocks need.
        sms: u32,
    },
    /// Models a kernel that spins on host memory: runs until its owner calls `Client::open_gate`.
    Spin {
        /// Multiprocessors that its blocks need.
        sms: u32,
    },
    /// A copy or memset within the device. It occupies all multiprocessors and counts as service time, but not as a launch.
    Transfer {
        /// Time on the GPU, ns.
        duration_ns: u64,
    },
    /// A copy on a copy engine. It needs no residence and is no service time.
    Copy {
        /// Time on the engine, ns.
        duration_ns: u64,
        /// The copy engine.
        engine: Engine,
    },
    /// A no-op whose completion time is recorded (for events).
    Marker,
    /// Waits until a command of another stream has finished.
    Wait {
        /// The other command, of the same process.
        ticket: Ticket,
    },
    /// Waits until its owner calls `Client::open_gate` (host functions, wait-value).
    Gate,
}

/// Copy engines of a GPU; each does one copy at a time in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Host to device.
    ToDevice,
    /// Device to host.
    ToHost,
    /// Between devices.
    Peer,
    /// No engine, as the copy is within the host.
    Host,
}
