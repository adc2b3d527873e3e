//! Pools and pieces of pools that are passed from process to process (CUDA Driver API, Stream Ordered Memory Allocator).
//!
//! An imported pool costs nothing, and nothing can be allocated from it: the exporter pays for what the pool holds. A
//! piece whose pointer is exported becomes an object of the tenant. Only importers of other tenants pay for it.

use vcuda_driver_api::prelude::*;
use vcuda_region::shared::ObjectKey;

use super::ipc::imported;
use super::table::Handlers;
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::allocations::Kind;
use crate::memory::pool_accounts::PoolLocation;
use crate::memory::state;
use crate::runtime::shim;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemPoolImportFromShareableHandle`.
pub(super) fn import(
    call: &Call<'_, CUresult>,
    pool: *mut CUmemoryPool,
    _shareable: *mut c_void,
    _kind: CUmemAllocationHandleType,
    _flags: u64,
) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    if !pool.is_null() {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let pool = unsafe { pool.read() };
        shim.accounts().pool_accounts.note(pool, PoolLocation::Imported);
    }
    Ok(())
}

/// `cuMemPoolExportPointer`.
pub(super) fn export_pointer(
    call: &Call<'_, CUresult>,
    data: *mut CUmemPoolPtrExportData,
    address: CUdeviceptr,
) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    if !data.is_null() {
        // SAFETY: the driver returned success, so it has just written its data here.
        let data = unsafe { data.read() };
        shim.accounts().pool_accounts.export(address, ObjectKey::of(&data.reserved));
    }
    Ok(())
}

/// `cuMemPoolImportPointer`: ends by `cuMemFree` or `cuMemFreeAsync`.
pub(super) fn import_pointer(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    _pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> Handled {
    let data = peek(data.cast_const()).ok_or(Bypass::BadArgument)?;
    let key = ObjectKey::of(&data.reserved);
    imported(call, address, key, Kind::Imported, |address| {
        // SAFETY: frees what has just been imported; the application does not know of it yet.
        let _ = unsafe { real::cuMemFree_v2(address) };
    })
}
