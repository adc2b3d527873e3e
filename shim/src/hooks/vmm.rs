//! Physical memory that the application maps itself: `cuMemCreate` and what holds its memory. Address reservations cost
//! nothing; memory imported from another process is paid for there.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::ffi::Call;
use crate::mappings::Backing;
use crate::shim;

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// Whether memory of this location is on the GPU whose ordinal is the location's id.
pub(super) fn is_device(location: CUmemLocationType) -> bool {
    location == CUmemLocationType::DEVICE || location == CUmemLocationType::DEVICE_LOCALITY_DOMAIN
}

/// `cuMemCreate`: charged on the device that the properties name, whatever device is current.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    properties: *const CUmemAllocationProp,
    _flags: u64,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    if handle.is_null() || properties.is_null() || bytes == 0 {
        return call.real();
    }
    // SAFETY: not null; the driver is about to read it too.
    let location = unsafe { (*properties).location };
    if !is_device(location.r#type) {
        return call.real();
    }
    let Some(device) = shim.device(location.id) else {
        return call.real();
    };
    let reserved = device.reserve(bytes as u64)?;
    call.real()?;
    // SAFETY: the driver returned success, so it has just written a handle here.
    let handle = unsafe { handle.read() };
    let backing = Backing {
        charge: reserved.into(),
    };
    shim.mappings.create(handle, Arc::new(backing));
    Ok(())
}

/// `cuMemRelease`: one reference less. The memory stays while it is mapped.
pub(super) fn release(call: &Call<'_, CUresult>, handle: CUmemGenericAllocationHandle) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let held = shim.mappings.release(handle);
    let status = call.real();
    if let (Err(_), Some(held)) = (status, held) {
        shim.mappings.retain(handle, held);
    }
    status
}

/// `cuMemRetainAllocationHandle`: one reference more, to what is mapped at the address.
pub(super) fn retain(
    call: &Call<'_, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    call.real()?;
    if handle.is_null() {
        return Ok(());
    }
    if let Some(backing) = shim.mappings.at(address as u64) {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let handle = unsafe { handle.read() };
        shim.mappings.retain(handle, backing);
    }
    Ok(())
}

/// `cuMemMap`: holds the memory too.
pub(super) fn map(
    call: &Call<'_, CUresult>,
    address: CUdeviceptr,
    bytes: usize,
    _offset: usize,
    handle: CUmemGenericAllocationHandle,
    _flags: u64,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let backing = shim.mappings.behind(handle);
    call.real()?;
    if let Some(backing) = backing {
        shim.mappings.map((address, bytes as u64, backing));
    }
    Ok(())
}

/// `cuMemUnmap`: taken out before the driver unmaps, since the addresses may be mapped again at once.
pub(super) fn unmap(call: &Call<'_, CUresult>, address: CUdeviceptr, bytes: usize) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let gone = shim.mappings.unmap(address, bytes as u64);
    let status = call.real();
    if status.is_err() {
        for mapping in gone {
            shim.mappings.map(mapping);
        }
    }
    status
}
