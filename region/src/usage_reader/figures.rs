//! What a container's `usage` tells: figures of processes, of the container's memory, and of its token bucket.

use vcuda_limiter::controller::Measured;
use vcuda_limiter::token_bucket::LatenessUse;

use crate::process::Identity;

/// One process's use of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceUse {
    /// Memory counted, overhead included (bytes).
    pub used_bytes: u64,
    /// Most memory counted at once (bytes).
    pub peak_bytes: u64,
    /// Of it, what the driver itself takes (bytes).
    pub overhead_bytes: u64,
    /// Reservations refused.
    pub denied: u64,
    /// Launches.
    pub launches: u64,
    /// GPU time charged by measurement (ns).
    pub charged_ns: u64,
    /// Launches held.
    pub holds: u64,
    /// Time that launches were held (ns).
    pub held_ns: u64,
    /// Launches admitted on debt.
    pub debt_admits: u64,
    /// Sum of the differences between prediction and truth (ns).
    pub mispredicted_ns: u64,
    /// Work launched and not yet finished, as predicted (ns).
    pub in_flight_ns: u64,
    /// Launches not yet finished.
    pub in_flight_launches: u64,
}

/// One process that holds a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessUse {
    /// The slot.
    pub slot: usize,
    /// Who it is.
    pub identity: Identity,
    /// Its use, by position of the device in `limits`.
    pub devices: Vec<DeviceUse>,
}

/// What one process has in flight on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The slot.
    pub slot: usize,
    /// The process.
    pub identity: Identity,
    /// A word that no other process in the slot has.
    pub state: u64,
    /// When the process's worker last settled what was done (`CLOCK_MONOTONIC`, ns); 0 of a process that does not tell.
    pub settled_ns: u64,
    /// Launches not yet finished.
    pub launches: u32,
}

/// The container's bucket on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketUse {
    /// Consumed or held in leases (ns).
    pub level_ns: i64,
    /// GPU time that counts as the container's: measured, apportioned among those who overlapped (ns).
    pub served_ns: u64,
    /// Debt forgiven (ns).
    pub forgiven_ns: u64,
    /// Reservations refused, of processes that are gone too.
    pub denied: u64,
    /// Copies between the host and the device while GPU time was metered.
    pub host_copies: u64,
    /// What they moved (bytes).
    pub host_copied_bytes: u64,
    /// Time that was measured and new in the busy map, and what was charged for it (ns).
    pub measured: Measured,
    /// Time that was measured, as often as several streams or processes had work then (ns).
    pub measured_elapsed_ns: u64,
    /// The same, as often as several contexts had work then (ns); 0 where an earlier release measured.
    pub contexts_ns: u64,
    /// A launch waits, or did when its process was killed.
    pub is_waiting: bool,
    /// How late launches went on after a hold.
    pub lateness: LatenessUse,
}

/// The container's memory on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// What the container has (bytes): that of its processes, and `shared_bytes`.
    pub used_bytes: u64,
    /// What of it no process counts: objects from outside of the container, and those whose payer is gone (bytes). See
    /// [`crate::shared`].
    pub shared_bytes: u64,
}
