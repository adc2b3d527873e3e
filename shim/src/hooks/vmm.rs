//! Physical memory that the application maps itself: `cuMemCreate`, and the calls that hold its memory. Address
//! reservations cost nothing. Memory from another process is in `vmm_share.rs`.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::mappings::Backing;
use crate::memory::state;
use crate::runtime::shim;
use crate::runtime::shim::devices::is_device;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemCreate`: charged on the device that the properties name, whatever device is current.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    properties: *const CUmemAllocationProp,
    _flags: u64,
) -> Handled {
    let shim = state::managed()?;
    Bypass::BadArgument.when(handle.is_null() || bytes == 0)?;
    let location = peek(properties).ok_or(Bypass::BadArgument)?.location;
    Bypass::Uncharged.when(!is_device(location.r#type))?;
    let device = shim.device(location.id).ok_or(Bypass::BadArgument)?;
    let reserved = device.reserve(bytes as u64)?;
    call.real()?;
    // SAFETY: the driver returned success, so it has just written a handle here.
    let handle = unsafe { handle.read() };
    let backing = Backing::charged(reserved.into());
    shim.accounts().mappings.create(handle, Arc::new(backing));
    Ok(())
}

/// `cuMemRelease`: one reference less. The memory stays while it is mapped.
pub(super) fn release(call: &Call<'_, CUresult>, handle: CUmemGenericAllocationHandle) -> Handled {
    let shim = state::managed()?;
    let held = shim.accounts().mappings.release(handle);
    held.iter().for_each(Backing::end);
    let status = call.real();
    if let (Err(_), Some(held)) = (status, held) {
        shim.accounts().mappings.retain(handle, held);
    }
    Ok(status?)
}

/// `cuMemRetainAllocationHandle`: one reference more, to what is mapped at the address.
pub(super) fn retain(
    call: &Call<'_, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    if handle.is_null() {
        return Ok(());
    }
    if let Some(backing) = shim.accounts().mappings.mapped_at(address as u64) {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let handle = unsafe { handle.read() };
        shim.accounts().mappings.retain(handle, backing);
    }
    Ok(())
}

/// `cuMemMap`: holds the memory too. A first mapping of memory from outside of the tenant shows its size only now: if
/// that does not fit, the mapping is undone, and no other code has seen it.
pub(super) fn map(
    call: &Call<'_, CUresult>,
    address: CUdeviceptr,
    bytes: usize,
    _offset: usize,
    handle: CUmemGenericAllocationHandle,
    _flags: u64,
) -> Handled {
    let shim = state::managed()?;
    let backing = shim.accounts().mappings.by_handle(handle);
    call.real()?;
    let Some(backing) = backing else {
        return Ok(());
    };
    if let Err(denied) = backing.cover(bytes as u64) {
        // SAFETY: unmaps what the call above has mapped; the application does not know of it yet.
        let _ = unsafe { real::cuMemUnmap(address, bytes) };
        return Err(denied.into());
    }
    shim.accounts().mappings.map((address, bytes as u64, backing));
    Ok(())
}

/// `cuMemUnmap`: taken out before the driver unmaps, since the addresses may be mapped again at once.
pub(super) fn unmap(call: &Call<'_, CUresult>, address: CUdeviceptr, bytes: usize) -> Handled {
    let shim = state::managed()?;
    let gone = shim.accounts().mappings.unmap(address, bytes as u64);
    gone.iter().for_each(|(_, _, backing)| Backing::end(backing));
    let status = call.real();
    if status.is_err() {
        for mapping in gone {
            shim.accounts().mappings.map(mapping);
        }
    }
    Ok(status?)
}
