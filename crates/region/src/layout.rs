//! The two files of a tenant's directory as they lie in memory, word for word.
//!
//! Atomic integers only: no `bool`, enum, float, reference or hidden padding. So any bytes are a valid value, and words
//! of an untrusted process can be read. All zero is a valid, empty `usage`. The numbers have the machine's byte order,
//! as the files never leave it. A change of layout changes [`VERSION`]; [`crate::header`] decides which versions go
//! together.

use crate::ledger::record::Record;
use crate::primitive::{AtomicU32, AtomicU64};
use crate::seqlock::Versioned;
use crate::shared::{HOLDER_WORDS, MAX_OBJECTS, ObjectRecord};
use crate::{MAX_DEVICES, MAX_SLOTS};
use vcuda_limiter::queue::Queue;
use vcuda_limiter::token_bucket::Meter;
use vcuda_limiter::token_bucket::TokenBucket;

/// First word of `limits`: the letters `vculimit`.
pub const LIMITS_MAGIC: u64 = u64::from_le_bytes(*b"vculimit");
/// First word of `usage`: the letters `vcuusage`.
pub const USAGE_MAGIC: u64 = u64::from_le_bytes(*b"vcuusage");
/// Version of both layouts.
pub const VERSION: u32 = 6;
/// The oldest version whose files this program uses, and whose programs can use this one's files. There is no release
/// yet: version 5 has the same layout, and exists only so that the tests can upgrade from it.
pub const OLDEST_VERSION: u32 = 5;
/// Bytes reserved for a tenant's name.
pub const NAME_BYTES: usize = 128;
/// Words of a device's configuration, its checksum included.
pub const CONFIG_WORDS: usize = 9;
/// Words of a device's pace, its checksum included.
pub const PACE_WORDS: usize = 6;

/// Fields that a reader checks first in either file. The same in every version.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Header {
    /// [`LIMITS_MAGIC`] or [`USAGE_MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`] of the program that made the file.
    pub version: AtomicU32,
    /// The oldest version whose programs can use the file.
    pub compatible_version: AtomicU32,
    /// Size of the file in bytes.
    pub size_bytes: AtomicU64,
}

/// `limits`.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct LimitsFile {
    /// Magic, versions, size.
    pub header: Header,
    /// Number of entries of `devices` in use.
    pub device_count: AtomicU32,
    /// Bytes of the name.
    pub name_bytes: AtomicU32,
    /// The name, UTF-8, eight bytes a word.
    pub name: [AtomicU64; NAME_BYTES / 8],
    /// Checksum of header, count, name and UUIDs, none of which ever changes.
    pub checksum: AtomicU64,
    /// Number of configurations written so far.
    pub generation: AtomicU64,
    /// Time at which the arbiter last worked (`CLOCK_MONOTONIC`, ns).
    pub arbiter_beat_ns: AtomicU64,
    /// [`crate::limits::SUSPENDABLE`], or any other value for a tenant that is not suspended.
    pub suspendable: AtomicU64,
    /// Time at which the manager last offered to make room ([`crate::room`]; `CLOCK_MONOTONIC`, ns); 0: never.
    pub room_offered_ns: AtomicU64,
    /// Longest wait of an allocation for room (ms), plus one; 0: the usual wait.
    pub memory_wait: AtomicU64,
    reserved: [AtomicU64; 6],
    /// The GPUs.
    pub devices: [DeviceLimits; MAX_DEVICES],
}

/// Quota of a tenant on one GPU.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct DeviceLimits {
    /// UUID of the GPU.
    pub uuid: [AtomicU64; 2],
    /// [`crate::limits::NOT_METERED`], or any other value for metered.
    pub metered: AtomicU32,
    reserved_half: AtomicU32,
    reserved: [AtomicU64; 12],
    /// Words of [`vcuda_quota::DeviceConfig`].
    pub config: Versioned<CONFIG_WORDS>,
    /// Words of [`vcuda_limiter::token_bucket::Pace`].
    pub pace: Versioned<PACE_WORDS>,
}

/// `usage`.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct UsageFile {
    /// Magic, versions, size.
    pub header: Header,
    /// Number of slots that a sum covers: the highest slot ever used, plus one. Never falls.
    pub slots_used: AtomicU32,
    /// Number of places that a sum covers: the highest place of an object ever used, plus one. Never falls.
    pub objects_used: AtomicU32,
    /// Number of changes of `limits` that the tenant's processes should read soon. It is only a hint: the values stand
    /// in `limits`.
    pub limits_notice: AtomicU32,
    /// State of the tenant: see [`crate::suspension::SuspendState`].
    pub suspend_state: AtomicU32,
    /// Not 0: a process of a suspended tenant waits.
    pub resume_wanted: AtomicU32,
    /// A bit for each device on which a process waits for room ([`crate::room`]).
    pub room_wanted: AtomicU32,
    /// Number of allocations within the quota that the driver refused: the GPU, or its own limit, had no room.
    pub room_denied: AtomicU32,
    reserved: [AtomicU32; 19],
    /// Owner of each slot.
    pub identities: [IdentityRecord; MAX_SLOTS],
    /// Memory and GPU time of each process, per device: a sum over one device walks through adjacent lines.
    pub devices: [[SlotDevice; MAX_SLOTS]; MAX_DEVICES],
    /// The tenant's bucket of GPU time, per device.
    pub buckets: [TokenBucket; MAX_DEVICES],
    /// State of each object that processes share. See [`crate::shared`].
    pub object_states: [AtomicU64; MAX_OBJECTS],
    /// The objects.
    pub objects: [ObjectRecord; MAX_OBJECTS],
    /// The processes that wait for GPU time, per device.
    pub queues: [Queue; MAX_DEVICES],
}

/// The owner of a slot. See [`crate::slots`].
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct IdentityRecord {
    /// Incarnation, pid and status in one word, so that one exchange claims the slot and names its owner.
    pub state: AtomicU64,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22), 0 until written.
    pub start_ticks: AtomicU64,
    /// Inode of the PID namespace (low half) and of the time namespace (high half).
    pub namespaces: AtomicU64,
    /// The command's name as the kernel has it (`/proc/PID/comm`, 15 bytes).
    pub name: [AtomicU64; 2],
    /// Reasons why calls of the process reached the driver past the shim, a bit each
    /// ([`crate::bypass::Bypass::bit`]).
    pub bypasses: AtomicU64,
    /// The state under which the owner has locked the slot's byte of the file. Any other value: not locked.
    pub locked_state: AtomicU64,
    /// Time at which the dead owner's memory was last seen to be kept: see [`crate::slots::Usage::reap_dead`]. 0
    /// before.
    pub gone: AtomicU64,
    /// Time at which the worker last settled the finished work of the process (`CLOCK_MONOTONIC`, ns): see
    /// [`crate::slots::Slot::tell_settled`]. 0 before its first metered launch.
    pub settled_ns: AtomicU64,
    /// The state under which the owner's calls pass a gate ([`crate::suspension::Gate`]). Any other value: they do not.
    pub gate_state: AtomicU64,
    /// Number of the owner's threads inside the driver (low half), and of its calls so far (high half), if they pass a gate.
    pub inside: AtomicU64,
    reserved: [AtomicU64; 5],
}

/// A process on a device: two cache lines.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct SlotDevice {
    /// Memory of the process.
    pub ledger: Record,
    /// GPU time of the process.
    pub meter: Meter,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<Header>() == 24);
    assert!(offset_of!(Header, version) == 8 && offset_of!(Header, compatible_version) == 12);
    assert!(offset_of!(Header, size_bytes) == 16);
    assert!(size_of::<IdentityRecord>() == 128);
    assert!(size_of::<Record>() == 64 && size_of::<Meter>() == 64);
    assert!(size_of::<SlotDevice>() == 128 && align_of::<SlotDevice>() == 128);
    assert!(offset_of!(SlotDevice, ledger) == 0 && offset_of!(SlotDevice, meter) == 64);

    assert!(offset_of!(LimitsFile, device_count) == 24);
    assert!(offset_of!(LimitsFile, name) == 32);
    assert!(offset_of!(LimitsFile, checksum) == 160);
    assert!(offset_of!(LimitsFile, generation) == 168);
    assert!(offset_of!(LimitsFile, arbiter_beat_ns) == 176);
    assert!(offset_of!(LimitsFile, suspendable) == 184);
    assert!(offset_of!(LimitsFile, room_offered_ns) == 192 && offset_of!(LimitsFile, memory_wait) == 200);
    assert!(offset_of!(LimitsFile, devices) == 256);
    assert!(offset_of!(DeviceLimits, metered) == 16);
    assert!(offset_of!(DeviceLimits, config) == 120);
    assert!(offset_of!(DeviceLimits, pace) == 272);
    assert!(size_of::<DeviceLimits>() == 384);
    assert!(size_of::<LimitsFile>() == 256 + MAX_DEVICES * 384);

    assert!(offset_of!(TokenBucket, wake) == 128 && offset_of!(TokenBucket, lateness) == 136);
    assert!(offset_of!(TokenBucket, served_ns) == 384);
    assert!(offset_of!(TokenBucket, busy) == 512);
    assert!(offset_of!(UsageFile, slots_used) == 24);
    assert!(offset_of!(UsageFile, identities) == 128);
    assert!(offset_of!(UsageFile, devices) == 128 + 128 * MAX_SLOTS);
    assert!(offset_of!(UsageFile, buckets) == 128 + 128 * MAX_SLOTS * (1 + MAX_DEVICES));
    assert!(offset_of!(UsageFile, objects_used) == 28);
    assert!(offset_of!(UsageFile, limits_notice) == 32);
    assert!(offset_of!(UsageFile, suspend_state) == 36 && offset_of!(UsageFile, resume_wanted) == 40);
    assert!(offset_of!(UsageFile, room_wanted) == 44 && offset_of!(UsageFile, room_denied) == 48);
    assert!(offset_of!(IdentityRecord, gate_state) == 72 && offset_of!(IdentityRecord, inside) == 80);
    assert!(offset_of!(ObjectRecord, bytes) == 16 && offset_of!(ObjectRecord, payer) == 24);
    assert!(offset_of!(ObjectRecord, until) == 32 && offset_of!(ObjectRecord, holders) == 64);
    assert!(size_of::<ObjectRecord>() == (64 + HOLDER_WORDS * 8).next_multiple_of(64));
    let buckets = 128 + 128 * MAX_SLOTS * (1 + MAX_DEVICES);
    assert!(offset_of!(UsageFile, object_states) == buckets + MAX_DEVICES * size_of::<TokenBucket>());
    assert!(offset_of!(UsageFile, objects) == offset_of!(UsageFile, object_states) + MAX_OBJECTS * 8);
    let objects_end = offset_of!(UsageFile, objects) + MAX_OBJECTS * size_of::<ObjectRecord>();
    // Only here is anything rounded up, and only for miri, whose tables are small.
    let queues = objects_end.next_multiple_of(128);
    assert!(offset_of!(UsageFile, queues) == queues);
    assert!(size_of::<Queue>() == 128 + (MAX_SLOTS * 8).next_multiple_of(128));
    assert!(size_of::<UsageFile>() == queues + MAX_DEVICES * size_of::<Queue>());
};
