//! Stream memory operations (CUDA Driver API, "Stream Memory Operations"): waits for and writes of values.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;

use crate::capture;
use crate::ffi::{export, get_array};
use crate::graph::node::Operation;
use crate::graph_memory;
use crate::memory;
use crate::stream::queue::Stream;
use crate::stream::{Null, resolve};

export! {
    cuStreamWaitValue32 => wait_32::<false>;
    cuStreamWaitValue32_ptsz => wait_32::<true>;
    cuStreamWaitValue32_v2 => wait_32::<false>;
    cuStreamWaitValue32_v2_ptsz => wait_32::<true>;
    cuStreamWaitValue64 => wait_64::<false>;
    cuStreamWaitValue64_ptsz => wait_64::<true>;
    cuStreamWaitValue64_v2 => wait_64::<false>;
    cuStreamWaitValue64_v2_ptsz => wait_64::<true>;
    cuStreamWriteValue32 => write_32::<false>;
    cuStreamWriteValue32_ptsz => write_32::<true>;
    cuStreamWriteValue32_v2 => write_32::<false>;
    cuStreamWriteValue32_v2_ptsz => write_32::<true>;
    cuStreamWriteValue64 => write_64::<false>;
    cuStreamWriteValue64_ptsz => write_64::<true>;
    cuStreamWriteValue64_v2 => write_64::<false>;
    cuStreamWriteValue64_v2_ptsz => write_64::<true>;
    cuStreamBatchMemOp => batch::<false>;
    cuStreamBatchMemOp_ptsz => batch::<true>;
    cuStreamBatchMemOp_v2 => batch::<false>;
    cuStreamBatchMemOp_v2_ptsz => batch::<true>;
}

/// When a wait is over (`CUstreamWaitValue_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// `(signed)(*addr - value) >= 0`, cyclic.
    GreaterOrEqual,
    /// `*addr == value`.
    Equal,
    /// `(*addr & value) != 0`.
    And,
    /// `~(*addr | value) != 0`.
    Nor,
}

/// Four or eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// `...32`.
    Four,
    /// `...64`.
    Eight,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryOperation {
    /// Wait until the value at the address satisfies the condition.
    Wait {
        /// Where.
        address: u64,
        /// How much.
        width: Width,
        /// Compared with what.
        value: u64,
        /// How.
        condition: Condition,
    },
    /// Write the value.
    Write {
        /// Where.
        address: u64,
        /// How much.
        width: Width,
        /// What.
        value: u64,
    },
}

impl MemoryOperation {
    /// Does it; false for a wait that is not over. Memory that the program has freed meanwhile is left alone
    /// and not waited for.
    pub(crate) fn attempt(&self) -> bool {
        self.is_gone() || self.act()
    }

    /// The range that it is about.
    fn range(&self) -> (u64, u64) {
        let (MemoryOperation::Wait { address, width, .. } | MemoryOperation::Write { address, width, .. }) =
            *self;
        match width {
            Width::Four => (address, 4),
            Width::Eight => (address, 8),
        }
    }

    fn is_gone(&self) -> bool {
        let (address, bytes) = self.range();
        !memory::is_usable(address, bytes)
    }

    fn act(&self) -> bool {
        match *self {
            MemoryOperation::Wait {
                address,
                width,
                value,
                condition,
            } => condition.holds(width, load(address, width), value),
            MemoryOperation::Write {
                address,
                width,
                value,
            } => {
                store(address, width, value);
                true
            }
        }
    }

    /// Whether the address is aligned and memory that a device can use.
    fn is_valid(&self) -> bool {
        let (address, bytes) = self.range();
        let is_memory = !self.is_gone() || graph_memory::planned(address, bytes).is_some();
        address % bytes == 0 && is_memory
    }
}

impl Condition {
    fn holds(self, width: Width, found: u64, value: u64) -> bool {
        let is_negative = |difference: u64| match width {
            Width::Four => difference & (1 << 31) != 0,
            Width::Eight => difference & (1 << 63) != 0,
        };
        match self {
            Condition::GreaterOrEqual => !is_negative(found.wrapping_sub(value)),
            Condition::Equal => found == value,
            Condition::And => found & value != 0,
            Condition::Nor => match width {
                Width::Four => !(found | value) & u64::from(u32::MAX) != 0,
                Width::Eight => !(found | value) != 0,
            },
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "addresses are 64 bits wide here")]
fn load(address: u64, width: Width) -> u64 {
    match width {
        Width::Four => {
            // SAFETY: an aligned address that the program gave for the device to read; atomics may be made of
            // memory that others write. The program keeps it alive until the operation is done.
            let word = unsafe { AtomicU32::from_ptr(address as usize as *mut u32) };
            u64::from(word.load(Ordering::Acquire))
        }
        Width::Eight => {
            // SAFETY: as above.
            let word = unsafe { AtomicU64::from_ptr(address as usize as *mut u64) };
            word.load(Ordering::Acquire)
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a 32-bit operation has a 32-bit value"
)]
fn store(address: u64, width: Width, value: u64) {
    match width {
        Width::Four => {
            // SAFETY: as in `load`, for writing.
            let word = unsafe { AtomicU32::from_ptr(address as usize as *mut u32) };
            word.store(value as u32, Ordering::Release);
        }
        Width::Eight => {
            // SAFETY: as in `load`, for writing.
            let word = unsafe { AtomicU64::from_ptr(address as usize as *mut u64) };
            word.store(value, Ordering::Release);
        }
    }
}

fn enqueue(stream: &Stream, operations: Vec<MemoryOperation>) -> CUresult {
    if operations.iter().any(|operation| !operation.is_valid()) {
        return Err(CUerror::INVALID_VALUE);
    }
    match capture::intercept(stream)? {
        Some(recording) => recording.add(Operation::Memory(operations)).map(drop),
        None if operations.is_empty() => Ok(()),
        None => crate::hostfunc::operate(stream, operations),
    }
}

/// `CU_STREAM_WAIT_VALUE_FLUSH` orders remote writes, of which there are none here: it is accepted.
fn wait_of(address: u64, width: Width, value: u64, flags: c_uint) -> Result<MemoryOperation, CUerror> {
    let condition = match CUstreamWaitValue_flags(flags & !CUstreamWaitValue_flags::FLUSH.0) {
        CUstreamWaitValue_flags::GEQ => Condition::GreaterOrEqual,
        CUstreamWaitValue_flags::EQ => Condition::Equal,
        CUstreamWaitValue_flags::AND => Condition::And,
        CUstreamWaitValue_flags::NOR => Condition::Nor,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    Ok(MemoryOperation::Wait {
        address,
        width,
        value,
        condition,
    })
}

fn write_of(address: u64, width: Width, value: u64, flags: c_uint) -> Result<MemoryOperation, CUerror> {
    if flags & !CUstreamWriteValue_flags::NO_MEMORY_BARRIER.0 != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(MemoryOperation::Write {
        address,
        width,
        value,
    })
}

fn wait_32<const PER_THREAD: bool>(
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    enqueue(
        &stream,
        vec![wait_of(address, Width::Four, u64::from(value), flags)?],
    )
}

fn wait_64<const PER_THREAD: bool>(
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    enqueue(&stream, vec![wait_of(address, Width::Eight, value, flags)?])
}

fn write_32<const PER_THREAD: bool>(
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    enqueue(
        &stream,
        vec![write_of(address, Width::Four, u64::from(value), flags)?],
    )
}

fn write_64<const PER_THREAD: bool>(
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    enqueue(&stream, vec![write_of(address, Width::Eight, value, flags)?])
}

/// "Must be less than 256."
const BATCH_LIMIT: u32 = 256;

fn batch<const PER_THREAD: bool>(
    stream: CUstream,
    count: c_uint,
    parameters: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    if count >= BATCH_LIMIT || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    enqueue(&stream, read_batch(parameters, count)?)
}

/// The operations of an array as `cuStreamBatchMemOp` and batch nodes take it. Barriers and flushes order
/// writes of a real device; here every operation is ordered.
///
/// # Errors
/// `INVALID_VALUE` for an unknown type or flag, `NOT_SUPPORTED` for an atomic reduction.
pub(crate) fn read_batch(
    parameters: *const CUstreamBatchMemOpParams,
    count: c_uint,
) -> Result<Vec<MemoryOperation>, CUerror> {
    let mut operations = Vec::new();
    for entry in get_array(parameters, count as usize)? {
        // SAFETY: every member begins with the type.
        let kind = unsafe { entry.operation };
        let width = match kind {
            CUstreamBatchMemOpType::WAIT_VALUE_64 | CUstreamBatchMemOpType::WRITE_VALUE_64 => Width::Eight,
            _ => Width::Four,
        };
        let cut = |value: u64| {
            if width == Width::Four {
                value & u64::from(u32::MAX)
            } else {
                value
            }
        };
        match kind {
            CUstreamBatchMemOpType::WAIT_VALUE_32 | CUstreamBatchMemOpType::WAIT_VALUE_64 => {
                // SAFETY: the type says that this member counts; all bit patterns are valid numbers.
                let wait = unsafe { entry.waitValue };
                operations.push(wait_of(wait.address, width, cut(wait.value64), wait.flags)?);
            }
            CUstreamBatchMemOpType::WRITE_VALUE_32 | CUstreamBatchMemOpType::WRITE_VALUE_64 => {
                // SAFETY: as above.
                let write = unsafe { entry.writeValue };
                operations.push(write_of(write.address, width, cut(write.value64), write.flags)?);
            }
            CUstreamBatchMemOpType::BARRIER | CUstreamBatchMemOpType::FLUSH_REMOTE_WRITES => {}
            CUstreamBatchMemOpType::ATOMIC_REDUCTION => return Err(CUerror::NOT_SUPPORTED),
            _ => return Err(CUerror::INVALID_VALUE),
        }
    }
    Ok(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_as_documented() {
        use Condition::{And, Equal, GreaterOrEqual, Nor};
        for (condition, width, found, value, expected) in [
            (GreaterOrEqual, Width::Four, 5, 5, true),
            (GreaterOrEqual, Width::Four, 4, 5, false),
            (GreaterOrEqual, Width::Four, 1, 0xffff_fff0, true), // cyclic
            (GreaterOrEqual, Width::Eight, 1, 0xffff_fff0, false),
            (Equal, Width::Four, 7, 7, true),
            (Equal, Width::Eight, 7, 8, false),
            (And, Width::Four, 6, 2, true),
            (And, Width::Four, 4, 2, false),
            (Nor, Width::Four, 0xffff_ffff, 0, false),
            (Nor, Width::Eight, 0xffff_ffff, 0, true),
        ] {
            assert_eq!(
                condition.holds(width, found, value),
                expected,
                "{condition:?} {found:#x} {value:#x}"
            );
        }
    }

    #[test]
    fn a_write_lets_a_wait_pass() {
        let mut word = 0u64;
        let address = (&raw mut word) as usize as u64;
        let wait = MemoryOperation::Wait {
            address,
            width: Width::Eight,
            value: 3,
            condition: Condition::Equal,
        };
        assert!(!wait.act());
        assert!(
            MemoryOperation::Write {
                address,
                width: Width::Eight,
                value: 3
            }
            .act()
        );
        assert!(wait.act());
    }
}
