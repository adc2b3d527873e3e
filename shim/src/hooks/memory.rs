//! Linear device memory: allocated, managed, freed.

use vcuda_driver_api::prelude::*;

use super::own as hooked;
use crate::driver::Call;
use crate::driver::saved_answer::SavedAnswer;
use crate::memory::allocations::{Allocation, Ended, Holds, Kind};
use crate::memory::overhead::{Look, ManagedCharge};
use crate::runtime::devices::{Device, Reserved, current_context};
use crate::runtime::shim::{self, Shim};

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemAlloc`. Reserves first, so that no two callers pass the limit together (I7).
pub(super) fn alloc(call: &Call<'_, CUresult>, address: *mut CUdeviceptr, bytes: usize) -> CUresult {
    counted(call, address, bytes as u64)
}

/// `cuMemAlloc` before CUDA 3.2.
pub(super) fn alloc_v1(call: &Call<'_, CUresult>, address: *mut CUdeviceptr_v1, bytes: c_uint) -> CUresult {
    counted(call, address, u64::from(bytes))
}

/// `cuMemAllocManaged`: charged in full on the current device, where it lives until it migrates.
pub(super) fn managed(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    _flags: c_uint,
) -> CUresult {
    let Some((shim, device)) = paying(address, bytes as u64) else {
        return call.real();
    };
    let context = current_context();
    let reserved = device.reserve(bytes as u64)?;
    shim.overhead
        .watch_managed(device, bytes as u64, || call.real())?;
    // SAFETY: the driver returned success, so it has just written an address here.
    let address = unsafe { address.read() };
    let holds = Holds::Managed(ManagedCharge::new(reserved.into()));
    drop(
        shim.allocations
            .insert(address, Allocation::new(context, Kind::Linear, holds)),
    );
    Ok(())
}

/// `cuMemFree`.
pub(super) fn free(call: &Call<'_, CUresult>, address: CUdeviceptr) -> CUresult {
    freed(call, address)
}

/// `cuMemFree` before CUDA 3.2.
pub(super) fn free_v1(call: &Call<'_, CUresult>, address: CUdeviceptr_v1) -> CUresult {
    freed(call, u64::from(address))
}

/// An address or a length, in whichever width the function has it.
pub(super) trait Word: Copy {
    /// In 64 bits.
    fn wide(self) -> u64;
}

impl Word for u64 {
    fn wide(self) -> u64 {
        self
    }
}

impl Word for u32 {
    fn wide(self) -> u64 {
        u64::from(self)
    }
}

impl Word for usize {
    fn wide(self) -> u64 {
        self as u64
    }
}

/// The device that pays for so many bytes; nothing where the driver's answer is the answer.
#[inline]
fn paying<A>(address: *mut A, bytes: u64) -> Option<(&'static Shim, &'static Device)> {
    let shim = shim::get()?;
    // No place or no bytes: the driver says what is wrong. No context: likewise.
    if address.is_null() || bytes == 0 {
        return None;
    }
    Some((shim, shim.current_device()?))
}

#[inline]
fn counted<A: Word>(call: &Call<'_, CUresult>, address: *mut A, bytes: u64) -> CUresult {
    let Some((shim, device)) = paying(address, bytes) else {
        return call.real();
    };
    let context = current_context();
    let (expected_bytes, look) = shim.overhead.expect_allocation(device, bytes);
    // Only then: the kernel is asked to read there.
    let look = look.and_then(|look| Some((look, SavedAnswer::at(address)?)));
    let mut reserved = device.reserve(expected_bytes)?;
    call.real()?;
    if let Some((look, kept)) = look {
        reserved = count_taken(shim, reserved, &look, &kept)?;
    }
    // SAFETY: the driver returned success, so it has just written an address here.
    let address = unsafe { address.read() }.wide();
    keep(shim, reserved, address, context, Kind::Linear);
    Ok(())
}

/// Counts what an allocation was seen to take.
///
/// # Errors
/// It does not fit: the allocation is undone.
#[cold]
fn count_taken<A: Word>(
    shim: &'static Shim,
    mut reserved: Reserved,
    look: &Look,
    kept: &SavedAnswer<A>,
) -> Result<Reserved, CUerror> {
    let taken_bytes = shim.overhead.taken_bytes(look);
    if taken_bytes != reserved.bytes() && reserved.resize(taken_bytes).is_err() {
        // SAFETY: just allocated, and nobody uses it yet.
        let _ = unsafe { hooked::cuMemFree_v2(kept.take_back().wide()) };
        return Err(CUerror::OUT_OF_MEMORY);
    }
    Ok(reserved)
}

/// Takes the record out before the driver frees, since the address may be handed out again at once.
pub(super) fn freed(call: &Call<'_, CUresult>, address: u64) -> CUresult {
    match super::pool::freed_now(call, address) {
        Some(status) => status,
        None => freed_as(call, address, Kind::Linear),
    }
}

/// A free whose time its stream decides: `leave` gets what stays counted until then.
pub(super) fn freed_after(
    call: &Call<'_, CUresult>,
    address: u64,
    leave: impl FnOnce(Allocation),
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let ended = shim.allocations.end(address, Kind::Linear);
    match (call.real(), ended) {
        (Ok(()), Ended::All(allocation)) => leave(allocation),
        (Ok(()), Ended::Unknown | Ended::Opening) => {}
        (Err(error), ended) => {
            shim.allocations.undo(address, Kind::Linear, ended);
            return Err(error);
        }
    }
    Ok(())
}

/// The end of an address, an array or a mipmapped array.
pub(super) fn freed_as(call: &Call<'_, CUresult>, name: u64, kind: Kind) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    let ended = shim.allocations.end(name, kind);
    let status = call.real();
    if status.is_err() {
        shim.allocations.undo(name, kind, ended);
    }
    status
}

/// Commits a reservation and notes what it was for.
#[inline]
pub(super) fn keep(shim: &Shim, reserved: Reserved, name: u64, context: CUcontext, kind: Kind) {
    let allocation = Allocation::new(context, kind, Holds::Charge(reserved.into()));
    drop(shim.allocations.insert(name, allocation));
}
