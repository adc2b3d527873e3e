//! Stream memory operations (CUDA Driver API, "Stream Memory Operations"): waits for and writes of values.

use crate::export::prelude::*;
use crate::object::graph::node::Operation;
use crate::object::memory_operation::{Condition, MemoryOperation, Width};
use crate::object::stream::Stream;
use crate::semantics::capture;

export! {
    cuStreamWaitValue32 / cuStreamWaitValue32_ptsz
    | cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz =>
        |null, stream, to, value, flags| one(null, stream, wait_of(to, Width::Four, value.into(), flags));
    cuStreamWaitValue64 / cuStreamWaitValue64_ptsz
    | cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz =>
        |null, stream, to, value, flags| one(null, stream, wait_of(to, Width::Eight, value, flags));
    cuStreamWriteValue32 / cuStreamWriteValue32_ptsz
    | cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz =>
        |null, stream, to, value, flags| one(null, stream, write_of(to, Width::Four, value.into(), flags));
    cuStreamWriteValue64 / cuStreamWriteValue64_ptsz
    | cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz =>
        |null, stream, to, value, flags| one(null, stream, write_of(to, Width::Eight, value, flags));
    cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz
    | cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz => batch;
}

fn one(null: Null, stream: CUstream, operation: Result<MemoryOperation, CUerror>) -> CUresult {
    let stream = resolve(stream, null)?;
    enqueue(&stream, vec![operation?])
}

fn enqueue(stream: &Stream, operations: Vec<MemoryOperation>) -> CUresult {
    if operations.iter().any(|operation| !operation.is_valid()) {
        return Err(CUerror::INVALID_VALUE);
    }
    match capture::intercept(stream)? {
        Some(recording) => recording.add(Operation::Memory(operations)).map(drop),
        None if operations.is_empty() => Ok(()),
        None => crate::semantics::host_thread::operate(stream, operations),
    }
}

/// A wait operation. `CU_STREAM_WAIT_VALUE_FLUSH` orders remote writes, and is accepted, as there are none.
fn wait_of(address: u64, width: Width, value: u64, flags: c_uint) -> Result<MemoryOperation, CUerror> {
    let condition = match CUstreamWaitValue_flags(flags & !CUstreamWaitValue_flags::FLUSH.0) {
        CUstreamWaitValue_flags::GEQ => Condition::GreaterOrEqual,
        CUstreamWaitValue_flags::EQ => Condition::Equal,
        CUstreamWaitValue_flags::AND => Condition::And,
        CUstreamWaitValue_flags::NOR => Condition::Nor,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    Ok(MemoryOperation::Wait { address, width, value, condition })
}

fn write_of(address: u64, width: Width, value: u64, flags: c_uint) -> Result<MemoryOperation, CUerror> {
    if flags & !CUstreamWriteValue_flags::NO_MEMORY_BARRIER.0 != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(MemoryOperation::Write { address, width, value })
}

/// "Must be less than 256."
const BATCH_LIMIT: u32 = 256;

fn batch(
    null: Null,
    stream: CUstream,
    count: c_uint,
    parameters: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> CUresult {
    let stream = resolve(stream, null)?;
    if count >= BATCH_LIMIT || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    enqueue(&stream, read_batch(parameters, count)?)
}

/// Operations of an array for `cuStreamBatchMemOp` and batch nodes. Barriers and flushes have no effect, as every
/// operation is ordered here. Errors: `INVALID_VALUE` for an unknown type or flag, `NOT_SUPPORTED` for an atomic
/// reduction.
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
            if width == Width::Four { value & u64::from(u32::MAX) } else { value }
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
