//! Stream-ordered allocation and memory pools. The container pays for what a pool holds, on the pool's device: a request
//! is counted as far as it may make the pool grow, and what the driver gives back is credited when it says so; nothing
//! is synchronised (`holdings.rs`).
//!
//! During a capture an allocation is a node of the graph, and the driver's answer is the answer.

use core::mem::MaybeUninit;
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::capture;
use crate::devices::{Device, context_of_stream, current_context, device_of_context, is_device};
use crate::ffi::{Call, Relaxed, real};
use crate::graph_memory;
use crate::holdings::{Holding, Home, Owed};
use crate::shim::{self, Shim};
use crate::timing::Stream;

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemAllocAsync`: from the current pool of the stream's device.
pub(super) fn alloc(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    from_stream(call, address, bytes, Stream::legacy(stream))
}

/// `cuMemAllocAsync_ptsz`.
pub(super) fn alloc_ptsz(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    from_stream(call, address, bytes, Stream::per_thread(stream))
}

/// `cuMemAllocFromPoolAsync`.
pub(super) fn alloc_from(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    from_pool(call, address, bytes, pool, Stream::legacy(stream))
}

/// `cuMemAllocFromPoolAsync_ptsz`.
pub(super) fn alloc_from_ptsz(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    from_pool(call, address, bytes, pool, Stream::per_thread(stream))
}

/// `cuMemFreeAsync`.
pub(super) fn free(call: &Call<'_, CUresult>, address: CUdeviceptr, stream: CUstream) -> CUresult {
    freed_in(call, address, Stream::legacy(stream))
}

/// `cuMemFreeAsync_ptsz`.
pub(super) fn free_ptsz(call: &Call<'_, CUresult>, address: CUdeviceptr, stream: CUstream) -> CUresult {
    freed_in(call, address, Stream::per_thread(stream))
}

/// `cuMemFree` of a piece of a pool; nothing if the address is none.
pub(super) fn freed_now(call: &Call<'_, CUresult>, address: CUdeviceptr) -> Option<CUresult> {
    let shim = shim::get()?;
    let block = shim.holdings.take(address)?;
    let status = call.real();
    if status.is_ok() {
        block.holding.recount();
        shim.holdings.ebb();
    } else {
        shim.holdings.put_back(address, block);
    }
    Some(status)
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
    let properties = unsafe { properties.read() };
    // SAFETY: and written a handle here.
    let pool = unsafe { pool.read() };
    match device_of(shim, &properties) {
        Some(device) => drop(shim.holdings.note_on(pool, device)),
        None => shim.holdings.note(pool, Home::Host),
    }
    Ok(())
}

/// `cuMemPoolDestroy`: what is allocated from it stays, and is paid for, until it is freed.
pub(super) fn destroy(call: &Call<'_, CUresult>, pool: CUmemoryPool) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let home = shim.holdings.forget(pool);
    if let Some(Home::Device(holding)) = &home {
        holding.orphan();
    }
    let status = call.real();
    if let (Some(home), Err(_)) = (home, status) {
        if let Home::Device(holding) = &home {
            holding.adopt(pool);
        }
        shim.holdings.note(pool, home);
    }
    status
}

/// `cuMemPoolTrimTo`: what the pool has given back is free for others.
pub(super) fn trim(call: &Call<'_, CUresult>, pool: CUmemoryPool, _keep_bytes: usize) -> CUresult {
    let status = call.real();
    if let Some(shim) = shim::get()
        && let Some(Home::Device(holding)) = shim.holdings.home(pool)
    {
        holding.recount();
    }
    status
}

/// `cuMemPoolSetAttribute`: below a lower threshold the pool gives back at the next synchronisation.
pub(super) fn set_attribute(
    call: &Call<'_, CUresult>,
    _pool: CUmemoryPool,
    _attribute: CUmemPool_attribute,
    _value: *mut c_void,
) -> CUresult {
    let status = call.real();
    if let Some(shim) = shim::get().filter(|shim| shim.holdings.is_any()) {
        shim.holdings.ebb();
    }
    status
}

/// Whose device a pool is on; nothing for a pool on the host. Managed memory is charged where it is made, wherever it
/// lives for now.
fn device_of(shim: &'static Shim, properties: &CUmemPoolProps) -> Option<&'static Device> {
    let location = properties.location;
    if is_device(location.r#type) {
        shim.device(location.id)
    } else if properties.allocType == CUmemAllocationType::MANAGED
        && location.r#type == CUmemLocationType::NONE
    {
        shim.current_device()
    } else {
        None
    }
}

fn from_stream(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: Stream,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    if address.is_null() || bytes == 0 {
        return call.real();
    }
    if capture::is_capturing(stream.handle, stream.default) {
        graph_memory::expect_nodes();
        return call.real();
    }
    let Some((device, pool)) = pool_of_stream(shim, stream.handle) else {
        return call.real();
    };
    // A current pool that nobody noted was made behind our back, and is local to the device.
    let home = shim
        .holdings
        .home(pool)
        .unwrap_or_else(|| shim.holdings.note_on(pool, device));
    counted(call, shim, &home, (address, bytes as u64), stream)
}

fn from_pool(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: Stream,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    if address.is_null() || bytes == 0 {
        return call.real();
    }
    if capture::is_capturing(stream.handle, stream.default) {
        graph_memory::expect_nodes();
        return call.real();
    }
    let home = shim.holdings.home(pool).or_else(|| {
        let device = owner_of(shim, pool)?;
        Some(shim.holdings.note_on(pool, device))
    });
    match home {
        Some(home) => counted(call, shim, &home, (address, bytes as u64), stream),
        None => call.real(),
    }
}

fn counted(
    call: &Call<'_, CUresult>,
    shim: &'static Shim,
    home: &Home,
    (address, bytes): (*mut CUdeviceptr, u64),
    stream: Stream,
) -> CUresult {
    let Home::Device(holding) = home else {
        return call.real();
    };
    let place = address.cast::<MaybeUninit<CUdeviceptr>>();
    // SAFETY: not null; where the driver is about to write. Whatever is there is only put back.
    let before = unsafe { place.read() };
    let promise = holding.promise(bytes)?;
    call.real()?;
    // SAFETY: the driver returned success, so it has just written an address here.
    let made = unsafe { address.read() };
    shim.holdings.allocated(made, bytes, holding);
    if let Err(denied) = promise.settle() {
        undo(shim, holding, made, stream);
        // SAFETY: as above.
        unsafe { place.write(before) };
        return Err(denied.into());
    }
    Ok(())
}

/// The pool grew beyond the limit, which no one could know before: the piece is freed, in the order of its stream.
fn undo(shim: &Shim, holding: &Arc<Holding>, made: CUdeviceptr, stream: Stream) {
    drop(shim.holdings.take(made));
    // SAFETY: an address of the driver's own that nobody else has yet.
    let _ = unsafe { super::own::cuMemFreeAsync(made, stream.explicit()) };
    holding.trim();
    shim.holdings.ebb();
}

/// In a capture this is a node of the graph: the memory lives on until the graph runs, if it is not the graph's own.
/// The record is taken out before the driver frees, since the address may be handed out again at once.
fn freed_in(call: &Call<'_, CUresult>, address: CUdeviceptr, stream: Stream) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    if capture::is_capturing(stream.handle, stream.default) {
        return call.real();
    }
    if let Some(block) = shim.holdings.take(address) {
        if let Err(error) = call.real() {
            shim.holdings.put_back(address, block);
            return Err(error);
        }
        if block.holding.is_orphan() {
            shim.holdings.ordered.after(stream, Owed::Block(block));
        }
        shim.holdings.ebb();
        return Ok(());
    }
    super::memory::freed_after(call, address, |allocation| {
        shim.holdings.ordered.after(stream, Owed::Linear(allocation));
        shim.holdings.ebb();
    })
}

/// The device of a stream, and its current pool.
fn pool_of_stream(shim: &'static Shim, stream: CUstream) -> Option<(&'static Device, CUmemoryPool)> {
    let _relaxed = Relaxed::enter();
    let device = device_of_stream(shim, stream)?;
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: the driver writes a handle or nothing.
    unsafe { real::cuDeviceGetMemPool(&raw mut pool, device.ordinal) }.ok()?;
    Some((device, pool))
}

/// The device of a stream: of its own context, which need not be the current one. Memory of a context that tells no device
/// is charged to the current one, rather than to none.
fn device_of_stream(shim: &'static Shim, stream: CUstream) -> Option<&'static Device> {
    let context = context_of_stream(stream);
    if context.is_null() || context == current_context() {
        shim.current_device()
    } else {
        device_of_context(shim, context).or_else(|| shim.current_device())
    }
}

/// Whose device a pool is on that nobody noted: a device's own pool, or one made behind our back, which is taken to be
/// on the current device. Nothing for a handle that is none, or without a context.
fn owner_of(shim: &'static Shim, pool: CUmemoryPool) -> Option<&'static Device> {
    let mut devices = 0;
    // SAFETY: the driver writes a count or nothing.
    unsafe { real::cuDeviceGetCount(&raw mut devices) }.ok()?;
    let owner = (0..devices).find(|ordinal| {
        let mut own = CUmemoryPool::NULL;
        // SAFETY: the driver writes a handle or nothing.
        let asked = unsafe { real::cuDeviceGetDefaultMemPool(&raw mut own, *ordinal) };
        asked.is_ok() && own == pool
    });
    match owner {
        Some(ordinal) => shim.device(ordinal),
        None if Holding::is_pool(pool) => shim.current_device(),
        None => None,
    }
}
