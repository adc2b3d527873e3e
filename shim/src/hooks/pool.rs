//! Stream-ordered allocation and memory pools. The tenant pays for what a pool holds, on the pool's device. A request
//! is counted as far as it may make the pool grow. Memory that the driver gives back is credited when the driver says
//! so; nothing is synchronised (`pool_accounts.rs`).
//!
//! During a capture an allocation is a node of the graph, and the driver's answer is the answer.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use super::memory::refused;
use super::table::Handlers;
use crate::driver::saved_answer::is_there;
use crate::driver::{Bypass, Call, Handled, Relaxed, real};
use crate::memory::graph_memory;
use crate::memory::pool_accounts::{self, Block, DeferredFree, PoolAccount, PoolLocation};
use crate::memory::state;
use crate::runtime::capture;
use crate::runtime::shim::devices::{
    Device, context_of_stream, current_context, device_of_context, is_device,
};
use crate::runtime::shim::{self, Shim};
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// Attempts to ask for the current pool of a device, because another thread may have destroyed it meanwhile.
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
    let shim = allocating(address, stream)?;
    let mut relaxed = Relaxed::enter();
    let (device, mut pool) = pool_of_stream(shim, stream.handle).ok_or(Bypass::NoContext)?;
    for _ in 0..ATTEMPTS {
        // A current pool without a note was made unseen, and is local to the device.
        let location = shim
            .accounts()
            .pool_accounts
            .location(pool)
            .unwrap_or_else(|| shim.accounts().pool_accounts.note_on(pool, device));
        let PoolLocation::Device(pool_account) = &location else {
            return Err(Bypass::Uncharged.into());
        };
        let request = Request { address, bytes, pool, stream };
        let answer = counted(call, shim, pool_account, request, relaxed);
        if answer.is_ok() || answer == Err(CUerror::OUT_OF_MEMORY) {
            return Ok(answer?);
        }
        relaxed = Relaxed::enter();
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
    let shim = allocating(address, stream)?;
    let relaxed = Relaxed::enter();
    let location = shim.accounts().pool_accounts.location(pool).or_else(|| {
        let device = owner_of(shim, pool)?;
        Some(shim.accounts().pool_accounts.note_on(pool, device))
    });
    match location {
        Some(PoolLocation::Device(pool_account)) => {
            let request = Request { address, bytes, pool, stream };
            Ok(counted(call, shim, &pool_account, request, relaxed)?)
        }
        Some(PoolLocation::Host | PoolLocation::Imported) => Err(Bypass::Uncharged.into()),
        None => Err(Bypass::UnseenHandle.into()),
    }
}

/// The shim's state, if these are the arguments of an allocation that is made now. In a capture it becomes a node,
/// which is charged with its graph.
fn allocating(address: *mut CUdeviceptr, stream: Stream) -> Result<&'static Shim, Bypass> {
    let shim = state::managed()?;
    Bypass::BadArgument.when(!is_there(address))?;
    if capture::is_capturing(stream.handle, stream.default) {
        graph_memory::expect_nodes();
        return Err(Bypass::Capturing);
    }
    Ok(shim)
}

/// `cuMemPoolCreate`: notes where the pool's memory will be.
pub(super) fn create(
    call: &Call<'_, CUresult>,
    pool: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    if pool.is_null() || properties.is_null() {
        return Ok(());
    }
    // SAFETY: the driver returned success, so it has just read properties here.
    let properties = unsafe { properties.read() };
    // SAFETY: and written a handle here.
    let pool = unsafe { pool.read() };
    match device_of(shim, &properties) {
        Some(device) => shim.accounts().pool_accounts.note_made_on(pool, device),
        None => shim.accounts().pool_accounts.note(pool, PoolLocation::Host),
    }
    Ok(())
}

/// `cuMemPoolDestroy`: its pieces stay, and are paid for, until they are freed.
pub(super) fn destroy(call: &Call<'_, CUresult>, pool: CUmemoryPool) -> Handled {
    let shim = state::managed()?;
    let location = shim.accounts().pool_accounts.location(pool).ok_or(Bypass::UnseenHandle)?;
    if let PoolLocation::Device(pool_account) = &location {
        pool_account.orphan();
    }
    let status = call.real();
    match (&location, status) {
        (_, Ok(())) => shim.accounts().pool_accounts.destroyed(pool, &location),
        (PoolLocation::Device(pool_account), Err(_)) => pool_account.undo_orphan(pool),
        _ => {}
    }
    Ok(status?)
}

/// `cuMemPoolTrimTo`: memory that the pool has given back is free for others.
pub(super) fn trim(call: &Call<'_, CUresult>, pool: CUmemoryPool, _keep_bytes: usize) -> Handled {
    let status = call.real();
    if let Some(shim) = state::get()
        && let Some(PoolLocation::Device(pool_account)) = shim.accounts().pool_accounts.location(pool)
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
    if let Some(shim) = state::get().filter(|_| pool_accounts::is_any()) {
        shim.accounts().pool_accounts.note_shrinking();
    }
    Ok(status?)
}

/// Device of a pool; `None` for a pool on the host. Managed memory is charged where it is made, wherever it lives for
/// now.
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

/// An application's request to a pool.
struct Request {
    /// Place for the address.
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: Stream,
}

/// Serves a request. The driver writes to a place of the shim's own; the application's is written only on success.
/// `relaxed`: the guard under which the pool was looked up.
///
/// No bytes are no error (docs/hardware.md, "pools' memory"). If the driver gives them an address, the pool may grow.
fn counted(
    call: &Call<'_, CUresult>,
    shim: &'static Shim,
    pool_account: &Arc<PoolAccount>,
    request: Request,
    relaxed: Relaxed,
) -> CUresult {
    let (bytes, stream) = (request.bytes as u64, request.stream);
    let before = if bytes == 0 {
        // SAFETY: the place is the application's, and was looked at; the driver may leave it as it is.
        unsafe { request.address.read_unaligned() }
    } else {
        0
    };
    let mut made = before;
    let mut ask = || {
        // SAFETY: the place is ours; the driver judges size, pool and stream itself.
        unsafe {
            real::cuMemAllocFromPoolAsync(&raw mut made, request.bytes, request.pool, stream.explicit())
        }
    };
    let is_first_managed = bytes > 0 && pool_account.is_managed() && pool_account.is_empty();
    let promise = match pool_account.promise(bytes) {
        Ok(promise) => promise,
        Err(denied) => {
            drop(relaxed);
            return Err(refused(denied));
        }
    };
    // The application's own call is made in the thread's own mode.
    drop(relaxed);
    if is_first_managed {
        // An empty pool takes all of the request from the GPU, so that the figures before and after can be compared.
        shim.accounts().overhead.watch_managed(pool_account.device, bytes, ask)?;
    } else {
        ask()?;
    }
    let is_piece = made != before && made != 0;
    if is_piece {
        shim.accounts().pool_accounts.allocated(made, bytes, pool_account);
    }
    if let Err(denied) = promise.settle()
        && is_piece
    {
        undo(shim, pool_account, made, stream);
        return Err(denied.into());
    }
    // SAFETY: where the driver would have written, of any alignment.
    unsafe { request.address.write_unaligned(made) };
    call.answered(Ok(()));
    Ok(())
}

/// Frees a piece whose pool grew beyond the limit, which could not be known before, in the order of its stream.
fn undo(shim: &Shim, pool_account: &Arc<PoolAccount>, made: CUdeviceptr, stream: Stream) {
    if let Some(block) = shim.accounts().pool_accounts.remove_block(made) {
        // SAFETY: an address of the driver's own that no other code has yet.
        let _ =
            give_back(shim, made, block, stream, || unsafe { real::cuMemFreeAsync(made, stream.explicit()) });
    }
    pool_account.trim();
}

/// Frees a piece of a pool, which was taken out, in the order of a stream. Its pool may be destroyed before the stream
/// gets there. So the stream is noted first, and the pool is examined afterwards.
pub(super) fn give_back(
    shim: &Shim,
    address: CUdeviceptr,
    block: Block,
    stream: Stream,
    free: impl FnOnce() -> CUresult,
) -> CUresult {
    let is_noted = block.pool_account.note_free_in(stream);
    if let Err(error) = free() {
        shim.accounts().pool_accounts.put_block_back(address, block);
        return Err(error);
    }
    // Another process may import it until the stream is there, and the tenant must know it then.
    if block.pool_account.is_orphan() || block.is_exported() {
        shim.accounts().pool_accounts.ordered.after(stream, DeferredFree::Block(block));
    } else if !is_noted {
        let pool = DeferredFree::Pool(Arc::clone(&block.pool_account));
        shim.accounts().pool_accounts.ordered.after(stream, pool);
    }
    shim.accounts().pool_accounts.note_shrinking();
    Ok(())
}

/// The device of a stream, and its current pool. The thread is relaxed.
#[inline]
fn pool_of_stream(shim: &'static Shim, stream: CUstream) -> Option<(&'static Device, CUmemoryPool)> {
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

/// Device of a pool that was not noted: a device's own pool, or one made unseen, which is taken to be on the current
/// device. `None` for an invalid handle, or without a context.
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
