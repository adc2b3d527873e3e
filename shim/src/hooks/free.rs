//! Frees memory at an address: a piece of a pool, or an allocation of its own.

use vcuda_driver_api::prelude::*;

use super::memory::ended;
use super::pool::give_back;
use super::table::Handlers;
use crate::driver::{Bypass, Call, Handled};
use crate::memory::allocations::{Allocation, Ended, Kind};
use crate::memory::pool_accounts::{self, DeferredFree};
use crate::memory::state;
use crate::runtime::capture;
use crate::runtime::shim::{self, Shim};
use crate::runtime::stream::Stream;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemFree`.
pub(super) fn free(call: &Call<'_, CUresult>, address: CUdeviceptr) -> Handled {
    freed(call, address)
}

/// `cuMemFree` before CUDA 3.2.
pub(super) fn free_v1(call: &Call<'_, CUresult>, address: CUdeviceptr_v1) -> Handled {
    freed(call, u64::from(address))
}

#[inline(always)]
fn freed(call: &Call<'_, CUresult>, address: u64) -> Handled {
    let shim = state::managed()?;
    Ok(match freed_now(shim, call, address) {
        Some(status) => status,
        None => ended(shim, call, address, Kind::Linear),
    }?)
}

/// Frees a piece of a pool; `None` if the address is none.
#[inline]
fn freed_now(shim: &Shim, call: &Call<'_, CUresult>, address: CUdeviceptr) -> Option<CUresult> {
    if pool_accounts::is_any() { freed_from_pool(shim, call, address) } else { None }
}

fn freed_from_pool(shim: &Shim, call: &Call<'_, CUresult>, address: CUdeviceptr) -> Option<CUresult> {
    let block = shim.accounts().pool_accounts.remove_block(address)?;
    let status = call.real();
    if status.is_ok() {
        block.pool_account.recount();
        shim.accounts().pool_accounts.note_shrinking();
    } else {
        shim.accounts().pool_accounts.put_block_back(address, block);
    }
    Some(status)
}

/// `cuMemFreeAsync`.
///
/// In a capture this is a node of the graph: the memory lives on until the graph runs, if it is not the graph's own.
/// The record is taken out before the driver frees, since the address may be handed out again at once.
pub(super) fn free_after(call: &Call<'_, CUresult>, address: CUdeviceptr, stream: CUstream) -> Handled {
    let stream = Stream::of_call(call, stream);
    let shim = state::managed()?;
    Bypass::Capturing.when(capture::is_capturing(stream.handle, stream.default))?;
    if let Some(block) = shim.accounts().pool_accounts.remove_block(address) {
        return Ok(give_back(shim, address, block, stream, || call.real())?);
    }
    freed_after(call, address, |allocation| {
        shim.accounts().pool_accounts.ordered.after(stream, DeferredFree::Linear(allocation));
        shim.accounts().pool_accounts.note_shrinking();
    })
}

/// Frees in the order of a stream. `leave` gets what stays counted until the stream is there.
fn freed_after(call: &Call<'_, CUresult>, address: u64, leave: impl FnOnce(Allocation)) -> Handled {
    let shim = state::managed()?;
    let ended = shim.accounts().allocations.end(address, Kind::Linear);
    match (call.real(), ended) {
        (Ok(()), Ended::All(allocation)) => leave(allocation),
        (Ok(()), Ended::Unknown) if pool_accounts::is_any() => {
            // It may be a piece of no bytes, for which the pool has grown.
            shim.accounts().pool_accounts.note_shrinking();
        }
        (Ok(()), Ended::Unknown | Ended::Opening) => {}
        (Err(error), ended) => {
            shim.accounts().allocations.undo(address, Kind::Linear, ended);
            return Err(error.into());
        }
    }
    Ok(())
}
