//! Multicast objects (CUDA Driver API, "Multicast Object Management") cost nothing themselves. Memory that is bound to
//! one stays held until it is unbound or the object is gone, whatever becomes of the memory's own handle and mappings.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::driver::{Call, Handled};
use crate::memory::mappings::{Backing, Binding};
use crate::memory::state;
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMulticastCreate`.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    object: *mut CUmemGenericAllocationHandle,
    _properties: *const CUmulticastObjectProp,
) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    if !object.is_null() {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let object = unsafe { object.read() };
        shim.accounts().mappings.create(object, Arc::new(Backing::multicast(None)));
    }
    Ok(())
}

/// `cuMulticastAddDevice`: an imported handle that is passed here is a multicast object.
pub(super) fn add_device(
    call: &Call<'_, CUresult>,
    object: CUmemGenericAllocationHandle,
    _device: CUdevice,
) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    if let Some(object) = shim.accounts().mappings.by_handle(object) {
        object.set_multicast();
    }
    Ok(())
}

/// `cuMulticastBindMem`.
pub(super) fn bind_mem(
    call: &Call<'_, CUresult>,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    _memory_offset: usize,
    bytes: usize,
    _flags: u64,
) -> Handled {
    bound(call, None, object, offset, bytes, |shim| {
        shim.accounts().mappings.by_handle(memory).into_iter().collect()
    })
}

/// `cuMulticastBindMem_v2`: names the device too.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
pub(super) fn bind_mem_v2(
    call: &Call<'_, CUresult>,
    object: CUmemGenericAllocationHandle,
    ordinal: CUdevice,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    _memory_offset: usize,
    bytes: usize,
    _flags: u64,
) -> Handled {
    bound(call, Some(ordinal), object, offset, bytes, |shim| {
        shim.accounts().mappings.by_handle(memory).into_iter().collect()
    })
}

/// `cuMulticastBindAddr`. Memory of a pool may be bound too: the pool holds it.
pub(super) fn bind_addr(
    call: &Call<'_, CUresult>,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    _flags: u64,
) -> Handled {
    bound(call, None, object, offset, bytes, |shim| shim.accounts().mappings.mapped_in(address, bytes as u64))
}

/// `cuMulticastBindAddr_v2`: names the device too.
pub(super) fn bind_addr_v2(
    call: &Call<'_, CUresult>,
    object: CUmemGenericAllocationHandle,
    ordinal: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    _flags: u64,
) -> Handled {
    bound(call, Some(ordinal), object, offset, bytes, |shim| {
        shim.accounts().mappings.mapped_in(address, bytes as u64)
    })
}

/// `cuMulticastUnbind`: the binding is removed before the driver unbinds, since the range may be bound again at once.
pub(super) fn unbind(
    call: &Call<'_, CUresult>,
    object: CUmemGenericAllocationHandle,
    ordinal: CUdevice,
    offset: usize,
    bytes: usize,
) -> Handled {
    let shim = state::managed()?;
    let object = shim.accounts().mappings.by_handle(object);
    let gone = object.as_ref().map(|object| object.unbind(ordinal, offset as u64, bytes as u64));
    let status = call.real();
    if let (Some(object), Some(gone), Err(_)) = (object, gone, status) {
        for binding in gone {
            object.bind(binding);
        }
    }
    Ok(status?)
}

fn bound(
    call: &Call<'_, CUresult>,
    ordinal: Option<CUdevice>,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    bytes: usize,
    memory: impl Fn(&'static Shim) -> Vec<Arc<Backing>>,
) -> Handled {
    let shim = state::managed()?;
    // Held, should another thread let go of it meanwhile.
    let (object, memory) = (shim.accounts().mappings.by_handle(object), memory(shim));
    call.real()?;
    let Some(object) = object else {
        return Ok(());
    };
    object.set_multicast();
    let ordinal = ordinal.or_else(|| memory.first().and_then(|memory| memory.ordinal()));
    if let Some(ordinal) = ordinal.filter(|_| !memory.is_empty()) {
        object.bind(Binding { ordinal, offset: offset as u64, bytes: bytes as u64, memory });
    }
    Ok(())
}
