//! Stream-ordered allocation and memory pools. The bytes in use are charged on the pool's device, from the call that
//! allocates to the call that frees; nothing is synchronised.
//!
//! During a capture an allocation is a node of the graph, and the driver's answer is the answer.

use vcuda_driver_api::prelude::*;

use super::memory::{freed, keep};
use crate::allocations::Kind;
use crate::capture::{self, Default::Legacy, Default::PerThread};
use crate::devices::{Device, context_of_stream, current_context, current_ordinal, device_of_context};
use crate::ffi::{Call, real};
use crate::shim::{self, Shim};

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// Where a pool's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// On this device of the process.
    Device(CUdevice),
    /// Not on a GPU.
    Host,
}

impl Home {
    fn of(location: CUmemLocation) -> Self {
        if super::vmm::is_device(location.r#type) {
            Self::Device(location.id)
        } else {
            Self::Host
        }
    }
}

/// `cuMemAllocAsync`: from the current pool of the stream's device.
pub(super) fn alloc(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    from_stream(call, address, bytes, stream, Legacy)
}

/// `cuMemAllocAsync_ptsz`.
pub(super) fn alloc_ptsz(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    from_stream(call, address, bytes, stream, PerThread)
}

/// `cuMemAllocFromPoolAsync`.
pub(super) fn alloc_from(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    from_pool(call, address, bytes, pool, stream, Legacy)
}

/// `cuMemAllocFromPoolAsync_ptsz`.
pub(super) fn alloc_from_ptsz(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    from_pool(call, address, bytes, pool, stream, PerThread)
}

/// `cuMemFreeAsync`, `_ptsz`. In a capture this is a node of the graph: the memory lives on until the graph runs, if
/// it is not the graph's own.
pub(super) fn free(call: &Call<'_, CUresult>, address: CUdeviceptr, stream: CUstream) -> CUresult {
    if capture::is_capturing(stream, Legacy) {
        call.real()
    } else {
        freed(call, address)
    }
}

/// `cuMemFreeAsync_ptsz`.
pub(super) fn free_ptsz(call: &Call<'_, CUresult>, address: CUdeviceptr, stream: CUstream) -> CUresult {
    if capture::is_capturing(stream, PerThread) {
        call.real()
    } else {
        freed(call, address)
    }
}

/// `cuMemPoolCreate`: notes where the pool's memory will be.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    pool: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    call.real()?;
    if pool.is_null() || properties.is_null() {
        return Ok(());
    }
    // SAFETY: the driver returned success, so it has just read properties here.
    let location = unsafe { (*properties).location };
    // SAFETY: and written a handle here.
    let pool = unsafe { pool.read() };
    shim.pools.lock().insert(pool, Home::of(location));
    Ok(())
}

/// `cuMemPoolDestroy`: what is allocated from it stays until it is freed.
pub(super) fn destroy(call: &Call<'_, CUresult>, pool: CUmemoryPool) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let home = shim.pools.lock().remove(&pool);
    let status = call.real();
    if let (Some(home), Err(_)) = (home, status) {
        shim.pools.lock().insert(pool, home);
    }
    status
}

fn from_stream(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    default: capture::Default,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    if address.is_null() || bytes == 0 || capture::is_capturing(stream, default) {
        return call.real();
    }
    let Some(device) = device_of_stream(shim, stream) else {
        return call.real();
    };
    counted(call, shim, device, address, bytes)
}

fn from_pool(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
    default: capture::Default,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    if address.is_null() || bytes == 0 || capture::is_capturing(stream, default) {
        return call.real();
    }
    let Some(Home::Device(ordinal)) = home_of(shim, pool) else {
        return call.real();
    };
    let Some(device) = shim.device(ordinal) else {
        return call.real();
    };
    counted(call, shim, device, address, bytes)
}

fn counted(
    call: &Call<'_, CUresult>,
    shim: &'static Shim,
    device: &'static Device,
    address: *mut CUdeviceptr,
    bytes: usize,
) -> CUresult {
    let context = current_context();
    let reserved = device.reserve(bytes as u64)?;
    call.real()?;
    // SAFETY: the driver returned success, so it has just written an address here.
    let address = unsafe { address.read() };
    keep(shim, reserved, address, context, Kind::Pooled);
    Ok(())
}

/// The device of a stream: of its own context, which need not be the current one.
fn device_of_stream(shim: &'static Shim, stream: CUstream) -> Option<&'static Device> {
    let context = context_of_stream(stream);
    if context.is_null() {
        shim.current_device()
    } else {
        device_of_context(shim, context)
    }
}

/// Where a pool's memory is: as it was created, or a device's own pool; else (imported) on the current device.
fn home_of(shim: &Shim, pool: CUmemoryPool) -> Option<Home> {
    if let Some(home) = shim.pools.lock().get(&pool) {
        return Some(*home);
    }
    let mut devices = 0;
    // SAFETY: the driver writes a count or nothing.
    unsafe { real::cuDeviceGetCount(&raw mut devices) }.ok()?;
    let owner = (0..devices).find(|ordinal| {
        let mut own = CUmemoryPool::NULL;
        // SAFETY: the driver writes a handle or nothing.
        let asked = unsafe { real::cuDeviceGetDefaultMemPool(&raw mut own, *ordinal) };
        asked.is_ok() && own == pool
    });
    let Some(ordinal) = owner else {
        return current_ordinal().map(Home::Device);
    };
    shim.pools.lock().insert(pool, Home::Device(ordinal));
    Some(Home::Device(ordinal))
}
