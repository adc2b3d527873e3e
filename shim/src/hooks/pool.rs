//! Stream-ordered allocation and memory pools. The container pays for what a pool holds, on the pool's device: a request
//! is counted as far as it may make the pool grow, and what the driver gives back is credited when it says so; nothing
//! is synchronised (`pool_accounts.rs`).
//!
//! During a capture an allocation is a node of the graph, and the driver's answer is the answer.

use core::mem::MaybeUninit;
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::driver::{Bypass, Call, Handled, Relaxed, real};
use crate::memory::graph_memory;
use crate::memory::pool_accounts::{Block, Home, Owed, PoolAccount};
use crate::runtime::capture;
use crate::runtime::devices::{Device, context_of_stream, current_context, device_of_context, is_device};
use crate::runtime::shim::{self, Shim};
use crate::runtime::stream::Stream;

/// What the table must know of these handlers.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// How often the current pool of a device is asked for again, because another thread has destroyed it meanwhile.
const ATTEMPTS: u32 = 64;

/// `cuMemAllocAsync`: from the current pool of the stream's device.
///
/// The pool that is charged is named to the driver: another thread may make another pool the current one meanwhile, or
/// destroy this one, and the request would be served by a pool that is not charged for it. Both functions mean the same
/// (CUDA Driver API, `cuMemAllocAsync`: "The allocation comes from the memory pool current to the stream's device").
pub(super) fn alloc(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Handled {
    let stream = Stream::of_call(call, stream);
    let shim = shim::managed()?;
    Bypass::BadArgument.when(address.is_null() || bytes == 0)?;
    if capture::is_capturing(stream.handle, stream.default) {
        graph_memory::expect_nodes();
        return Err(Bypass::Capturing.into());
    }
    let (device, mut pool) = pool_of_stream(shim, stream.handle).ok_or(Bypass::NoContext)?;
    for _ in 0..ATTEMPTS {
        // A current pool that nobody noted was made behind our back, and is local to the device.
        let home = shim
            .pool_accounts
            .home(pool)
            .unwrap_or_else(|| shim.pool_accounts.note_on(pool, device));
        let Home::Device(pool_account) = &home else {
            return Err(Bypass::Uncharged.into());
        };
        let ask = || {
            // SAFETY: as the application said; a pool that the driver has just named, and which it judges itself.
            let status =
                unsafe { super::own::cuMemAllocFromPoolAsync(address, bytes, pool, stream.explicit()) };
            if status.is_ok() {
                call.answered(status);
            }
            status
        };
        let answer = counted(shim, pool_account, (address, bytes as u64), stream, ask);
        if answer.is_ok() || answer == Err(CUerror::OUT_OF_MEMORY) {
            return Ok(answer?);
        }
        let Some((_, now)) = pool_of_stream(shim, stream.handle) else {
            return Ok(answer?);
        };
        if now == pool {
            return Ok(answer?);
        }
        pool = now;
    }
    Err(CUerror::OUT_OF_MEMORY.into())
}

/// `cuMemAllocFromPoolAsync`.
pub(super) fn alloc_from(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Handled {
    let stream = Stream::of_call(call, stream);
    let shim = shim::managed()?;
    Bypass::BadArgument.when(address.is_null() || bytes == 0)?;
    if capture::is_capturing(stream.handle, stream.default) {
        graph_memory::expect_nodes();
        return Err(Bypass::Capturing.into());
    }
    let home = shim.pool_accounts.home(pool).or_else(|| {
        let device = owner_of(shim, pool)?;
        Some(shim.pool_accounts.note_on(pool, device))
    });
    match home {
        Some(Home::Device(pool_account)) => {
            let request = (address, bytes as u64);
            Ok(counted(shim, &pool_account, request, stream, || call.real())?)
        }
        Some(Home::Host | Home::Imported) => Err(Bypass::Uncharged.into()),
        None => Err(Bypass::UnseenHandle.into()),
    }
}

/// `cuMemFreeAsync`.
///
/// In a capture this is a node of the graph: the memory lives on until the graph runs, if it is not the graph's own.
/// The record is taken out before the driver frees, since the address may be handed out again at once.
pub(super) fn free(call: &Call<'_, CUresult>, address: CUdeviceptr, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    let shim = shim::managed()?;
    Bypass::Capturing.when(capture::is_capturing(stream.handle, stream.default))?;
    if let Some(block) = shim.pool_accounts.take(address) {
        return Ok(give_back(shim, address, block, stream, || call.real())?);
    }
    super::memory::freed_after(call, address, |allocation| {
        shim.pool_accounts.ordered.after(stream, Owed::Linear(allocation));
        shim.pool_accounts.note_shrinking();
    })
}

/// `cuMemFree` of a piece of a pool; nothing if the address is none.
#[inline]
pub(super) fn freed_now(shim: &Shim, call: &Call<'_, CUresult>, address: CUdeviceptr) -> Option<CUresult> {
    if shim.pool_accounts.is_any() {
        freed_from_pool(shim, call, address)
    } else {
        None
    }
}

fn freed_from_pool(shim: &Shim, call: &Call<'_, CUresult>, address: CUdeviceptr) -> Option<CUresult> {
    let block = shim.pool_accounts.take(address)?;
    let status = call.real();
    if status.is_ok() {
        block.pool_account.recount();
        shim.pool_accounts.note_shrinking();
    } else {
        shim.pool_accounts.put_back(address, block);
    }
    Some(status)
}

/// `cuMemPoolCreate`: notes where the pool's memory will be.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    pool: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> Handled {
    let shim = shim::managed()?;
    call.real()?;
    if pool.is_null() || properties.is_null() {
        return Ok(());
    }
    // SAFETY: the driver returned success, so it has just read properties here.
    let properties = unsafe { properties.read() };
    // SAFETY: and written a handle here.
    let pool = unsafe { pool.read() };
    match device_of(shim, &properties) {
        Some(device) => shim.pool_accounts.note_made_on(pool, device),
        None => shim.pool_accounts.note(pool, Home::Host),
    }
    Ok(())
}

/// `cuMemPoolDestroy`: what is allocated from it stays, and is paid for, until it is freed.
pub(super) fn destroy(call: &Call<'_, CUresult>, pool: CUmemoryPool) -> Handled {
    let shim = shim::managed()?;
    let home = shim.pool_accounts.home(pool).ok_or(Bypass::UnseenHandle)?;
    if let Home::Device(pool_account) = &home {
        pool_account.orphan();
    }
    let status = call.real();
    match (&home, status) {
        (_, Ok(())) => shim.pool_accounts.destroyed(pool, &home),
        (Home::Device(pool_account), Err(_)) => pool_account.join_foreign(pool),
        _ => {}
    }
    Ok(status?)
}

/// `cuMemPoolTrimTo`: what the pool has given back is free for others.
pub(super) fn trim(call: &Call<'_, CUresult>, pool: CUmemoryPool, _keep_bytes: usize) -> Handled {
    let status = call.real();
    if let Some(shim) = shim::get()
        && let Some(Home::Device(pool_account)) = shim.pool_accounts.home(pool)
    {
        pool_account.recount();
    }
    Ok(status?)
}

/// `cuMemPoolSetAttribute`: below a lower threshold the pool gives back at the next synchronisation.
pub(super) fn set_attribute(
    call: &Call<'_, CUresult>,
    _pool: CUmemoryPool,
    _attribute: CUmemPool_attribute,
    _value: *mut c_void,
) -> Handled {
    let status = call.real();
    if let Some(shim) = shim::get().filter(|shim| shim.pool_accounts.is_any()) {
        shim.pool_accounts.note_shrinking();
    }
    Ok(status?)
}

/// Whose device a pool is on; nothing for a pool on the host. Managed memory is charged where it is made, wherever it
/// lives for now.
fn device_of(shim: &'static Shim, properties: &CUmemPoolProps) -> Option<&'static Device> {
    let location = properties.location;
    if is_device(location.r#type) {
        shim.device(location.id)
    } else if properties.allocType == CUmemAllocationType::MANAGED {
        // Preferred on the host or nowhere: as of `cuMemAllocManaged`.
        shim.current_device()
    } else {
        None
    }
}

fn counted(
    shim: &'static Shim,
    pool_account: &Arc<PoolAccount>,
    (address, bytes): (*mut CUdeviceptr, u64),
    stream: Stream,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let place = address.cast::<MaybeUninit<CUdeviceptr>>();
    // SAFETY: not null; where the driver is about to write. Whatever is there is only put back.
    let before = unsafe { place.read() };
    let is_first_managed = pool_account.is_managed() && pool_account.is_empty();
    let promise = pool_account.promise(bytes)?;
    if is_first_managed {
        // All that is asked for is made.
        shim.overhead.watch_managed(pool_account.device, bytes, ask)?;
    } else {
        ask()?;
    }
    // SAFETY: the driver returned success, so it has just written an address here.
    let made = unsafe { address.read() };
    shim.pool_accounts.allocated(made, bytes, pool_account);
    if let Err(denied) = promise.settle() {
        undo(shim, pool_account, made, stream);
        // SAFETY: as above.
        unsafe { place.write(before) };
        return Err(denied.into());
    }
    Ok(())
}

/// The pool grew beyond the limit, which no one could know before: the piece is freed, in the order of its stream.
fn undo(shim: &Shim, pool_account: &Arc<PoolAccount>, made: CUdeviceptr, stream: Stream) {
    if let Some(block) = shim.pool_accounts.take(made) {
        // SAFETY: an address of the driver's own that nobody else has yet.
        let _ = give_back(shim, made, block, stream, || unsafe {
            super::own::cuMemFreeAsync(made, stream.explicit())
        });
    }
    pool_account.trim();
}

/// Frees a piece of a pool, which was taken out, in the order of a stream. Its pool may be destroyed before, meanwhile, or
/// before the stream gets there: so the stream is noted first, and the pool is looked at afterwards.
fn give_back(
    shim: &Shim,
    address: CUdeviceptr,
    block: Block,
    stream: Stream,
    free: impl FnOnce() -> CUresult,
) -> CUresult {
    let is_noted = block.pool_account.frees_in(stream);
    if let Err(error) = free() {
        shim.pool_accounts.put_back(address, block);
        return Err(error);
    }
    // Another process may import it until the stream is there, and the container must know it then.
    if block.pool_account.is_orphan() || block.is_exported() {
        shim.pool_accounts.ordered.after(stream, Owed::Block(block));
    } else if !is_noted {
        let pool = Owed::Pool(Arc::clone(&block.pool_account));
        shim.pool_accounts.ordered.after(stream, pool);
    }
    shim.pool_accounts.note_shrinking();
    Ok(())
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
    let (context, current) = (context_of_stream(stream), current_context());
    if context.is_null() || context == current {
        shim.devices().of_current(shim, current)
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
        None if PoolAccount::is_pool(pool) => shim.current_device(),
        None => None,
    }
}
