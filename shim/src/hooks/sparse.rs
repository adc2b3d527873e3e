//! Physical memory that is mapped into sparse arrays, and into arrays whose mapping was deferred (CUDA Driver API,
//! `cuMemMapArrayAsync`): the arrays cost nothing, and what is mapped stays held whatever becomes of its handle.
//!
//! Mappings are made and undone in the order of a stream. Memory is held from the call that maps it, before the stream
//! gets there. It is held until the stream has got to its unmapping (`pool_accounts/ordered.rs`): never less than the
//! driver holds.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled};
use crate::memory::allocations::Kind;
use crate::memory::pool_accounts::DeferredFree;
use crate::memory::sparse_mappings::Region;
use crate::memory::state;
use crate::runtime::shim;
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemMapArrayAsync`.
pub(super) fn map(
    call: &Call<'_, CUresult>,
    list: *mut CUarrayMapInfo,
    count: c_uint,
    stream: CUstream,
) -> Handled {
    let stream = Stream::of_call(call, stream);
    let shim = state::managed()?;
    Bypass::BadArgument.when(count == 0)?;
    // Copied and held before the driver is asked: another thread may let go of a handle meanwhile.
    let operations: Option<Vec<_>> = (0..count as usize)
        .map(|at| {
            let info = peek(list.cast_const().wrapping_add(at))?;
            Some((info, shim.accounts().mappings.by_handle(info.memHandle)))
        })
        .collect();
    let operations = operations.ok_or(Bypass::BadArgument)?;
    call.real()?;
    let mut gone = Vec::new();
    for (info, backing) in operations {
        let kind = match info.resourceType {
            CUresourcetype::ARRAY => Kind::Array,
            CUresourcetype::MIPMAPPED_ARRAY => Kind::Mipmap,
            _ => continue,
        };
        let sparse_mappings = shim.accounts().allocations.sparse_mappings(info.resource.0 as u64, kind);
        let Some((sparse_mappings, region)) = sparse_mappings.zip(Region::from_info(&info)) else {
            continue;
        };
        match (info.memOperationType, backing) {
            (CUmemOperationType::MAP, Some(backing)) => gone.extend(sparse_mappings.map(region, backing)),
            _ => gone.extend(sparse_mappings.unmap(&region)),
        }
    }
    if !gone.is_empty() {
        shim.accounts().pool_accounts.ordered.after(stream, DeferredFree::SparseMappings(gone));
        shim.accounts().pool_accounts.note_shrinking();
    }
    Ok(())
}
