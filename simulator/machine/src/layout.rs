//! Layout of the state file in words of 8 bytes.
//!
//! | part | what |
//! |---|---|
//! | header | magic, version, root, virtual clock, bells |
//! | buffers | two per writer slot and an initial one: copies of the core; the root names the current one |
//! | rings | one per stream: a header page, then commands |
//! | history | one record per dead process and GPU |
//!
//! The file is sparse: only reserved or touched pages exist.

use crate::config::RING_ENTRIES;

/// "VCUDASIM".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"VCUDASIM");
/// Version of the layout, raised with every change.
pub(crate) const VERSION: u64 = 6;

/// Maximum number of concurrent writers; each has two buffers.
pub(crate) const WRITERS: u64 = 256;
/// Maximum number of clients.
pub(crate) const CLIENTS: u64 = 256;
/// Maximum number of streams of all processes.
pub(crate) const STREAMS: u64 = 2048;
/// Maximum number of contexts.
pub(crate) const CONTEXTS: usize = 512;
/// Maximum number of pairs of process and GPU.
pub(crate) const USES: usize = 512;
/// Maximum number of shared objects: more than a tenant may share.
pub(crate) const OBJECTS: usize = 2048;
/// Maximum number of holders of objects.
pub(crate) const HOLDS: usize = 4096;
/// Maximum number of memory limits of cgroups, on all GPUs.
pub(crate) const LIMITS: usize = 512;
/// Maximum number of pairs of process and cgroup, ancestors counted.
pub(crate) const MEMBERS: usize = 2048;
/// Maximum number of records of dead processes.
pub(crate) const RECORDS: u64 = 65_536;

pub(crate) const HEADER_MAGIC: usize = 0;
pub(crate) const HEADER_VERSION: usize = 1;
pub(crate) const HEADER_CONFIG: usize = 2;
/// The PID namespace of the host, see `namespaces`.
pub(crate) const HEADER_NAMESPACE: usize = 3;
/// The root, `version << 16 | buffer`, on its own cache line.
pub(crate) const ROOT: usize = 64;
/// The virtual clock (ns), on its own cache line.
pub(crate) const CLOCK: usize = 128;
/// The clients' bells, by slot: words that count what was asked of a client and what came of it, see `checkpoint`.
pub(crate) const BELLS: usize = 256;
const HEADER_WORDS: usize = 512;

pub(crate) const BUFFER_WORDS: usize = 32_768;
/// The initial buffer, which no writer owns.
pub(crate) const BIRTH_BUFFER: u64 = 2 * WRITERS;
const BUFFERS: usize = HEADER_WORDS;

/// First word of a buffer, clamped to the last buffer.
pub(crate) fn buffer(index: u64) -> usize {
    BUFFERS + as_index(index.min(BIRTH_BUFFER)) * BUFFER_WORDS
}

/// Words of a command in a ring.
pub(crate) const ENTRY_WORDS: usize = 4;
const RING_HEADER_WORDS: usize = 512;
pub(crate) const RING_WORDS: usize = RING_HEADER_WORDS + as_index(RING_ENTRIES) * ENTRY_WORDS;
const RINGS: usize = BUFFERS + (as_index(BIRTH_BUFFER) + 1) * BUFFER_WORDS;

/// First word of a ring, its tail.
pub(crate) fn ring(index: u64) -> usize {
    RINGS + as_index(index.min(STREAMS - 1)) * RING_WORDS
}

/// First word of the command `seq` of a ring.
pub(crate) fn entry(ring_index: u64, seq: u64) -> usize {
    ring(ring_index) + RING_HEADER_WORDS + as_index(seq % RING_ENTRIES) * ENTRY_WORDS
}

/// Words of a record in the history.
pub(crate) const RECORD_WORDS: usize = 16;
const HISTORY: usize = RINGS + as_index(STREAMS) * RING_WORDS;

/// First word of a record, clamped to the last record.
pub(crate) fn record(index: u64) -> usize {
    HISTORY + as_index(index.min(RECORDS - 1)) * RECORD_WORDS
}

/// Words of the whole file.
pub(crate) const TOTAL_WORDS: usize = HISTORY + as_index(RECORDS) * RECORD_WORDS;

/// A small count as an index (the address space has 64 bits).
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits, as asserted")]
pub(crate) const fn as_index(number: u64) -> usize {
    const { assert!(size_of::<usize>() == 8) };
    number as usize
}

/// Ring and sequence number of a stream's or command's id.
pub(crate) fn split(name: u64) -> (u64, u64) {
    (name >> SEQ_BITS, name & SEQ_MASK)
}

/// Id of command `seq` of a ring. A ring's numbers continue from stream to stream, so ids are unique.
pub(crate) fn name(ring_index: u64, seq: u64) -> u64 {
    (ring_index << SEQ_BITS) | (seq & SEQ_MASK)
}

const SEQ_BITS: u32 = 48;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
