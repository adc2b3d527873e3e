//! Figures in a tenant's `usage`: its processes, its memory, and its token bucket.

use vcuda_limiter::controller::Measured;
use vcuda_limiter::token_bucket::LatenessUse;

use crate::process::Identity;

/// A process's use of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceUse {
    /// Memory counted, overhead included (bytes).
    pub used_bytes: u64,
    /// Most memory counted at once (bytes).
    pub peak_bytes: u64,
    /// The part of it that the driver itself uses (bytes).
    pub overhead_bytes: u64,
    /// Reservations refused.
    pub denied: u64,
    /// Launches.
    pub launches: u64,
    /// GPU time charged by measurement (ns).
    pub charged_ns: u64,
    /// Launches that were throttled.
    pub holds: u64,
    /// Time that launches waited (ns).
    pub held_ns: u64,
    /// Launches that proceeded on debt.
    pub debt_admits: u64,
    /// Sum of the differences between prediction and truth (ns).
    pub mispredicted_ns: u64,
    /// Work launched and not yet finished, as predicted (ns).
    pub in_flight_ns: u64,
    /// Launches not yet finished.
    pub in_flight_launches: u64,
}

/// A process that holds a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessUse {
    /// The slot.
    pub slot: usize,
    /// The process's identity.
    pub identity: Identity,
    /// Its use, by position of the device in `limits`.
    pub devices: Vec<DeviceUse>,
}

/// Work of one process in flight on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// The slot.
    pub slot: usize,
    /// The process.
    pub identity: Identity,
    /// A word that no other process in the slot has.
    pub state: u64,
    /// Time at which the worker last settled finished work (`CLOCK_MONOTONIC`, ns); 0 if the process does not tell.
    pub settled_ns: u64,
    /// Launches not yet finished.
    pub launches: u32,
}

/// The tenant's bucket on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketUse {
    /// Consumed or held in leases (ns).
    pub level_ns: i64,
    /// GPU time charged to the tenant: measured, and apportioned among streams that overlapped (ns).
    pub served_ns: u64,
    /// Debt forgiven (ns).
    pub forgiven_ns: u64,
    /// Reservations refused, including those of processes that are gone.
    pub denied: u64,
    /// Size of the last one (bytes).
    pub denied_bytes: u64,
    /// Memory of the tenant at that refusal (bytes).
    pub denied_used_bytes: u64,
    /// Most memory that a process had at once whose slot another one has taken since (bytes).
    pub peak_bytes: u64,
    /// Copies between the host and the device while GPU time was metered.
    pub host_copies: u64,
    /// Bytes that they moved.
    pub host_copied_bytes: u64,
    /// Measured time that was new in the busy map, and its charge (ns).
    pub measured: Measured,
    /// Measured time, counted once for each context that had work (ns).
    pub contexts_ns: u64,
    /// Whether a launch waits, or did when its process was killed.
    pub is_waiting: bool,
    /// Lateness of launches that proceeded after a wait.
    pub lateness: LatenessUse,
}

/// The tenant's memory on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Memory of the tenant (bytes): that of its processes, and `shared_bytes`.
    pub used_bytes: u64,
    /// The part of it that no process counts: objects from outside of the tenant, and those whose payer is gone
    /// (bytes). See [`crate::shared`].
    pub shared_bytes: u64,
}
