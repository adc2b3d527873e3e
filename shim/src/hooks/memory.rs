//! Linear device memory: allocated and managed.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled, Stop, real};
use crate::memory::allocations::{Allocation, Holds, Kind};
use crate::memory::overhead::{ManagedCharge, WatchedAllocation};
use crate::memory::reserve::Reserved;
use crate::memory::state;
use crate::runtime::capture;
use crate::runtime::shim::devices::{Denied, Device, current_context};
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemAlloc`. Reserves first, so that no two callers pass the limit together (I7).
pub(super) fn alloc(call: &Call<'_, CUresult>, address: *mut CUdeviceptr, bytes: usize) -> Handled {
    counted(call, address, bytes as u64)
}

/// `cuMemAlloc` before CUDA 3.2.
pub(super) fn alloc_v1(call: &Call<'_, CUresult>, address: *mut CUdeviceptr_v1, bytes: c_uint) -> Handled {
    counted(call, address, u64::from(bytes))
}

/// `cuMemAllocManaged`: charged in full on the current device, where it lives until it migrates.
pub(super) fn managed(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    bytes: usize,
    _flags: c_uint,
) -> Handled {
    let (shim, device, context) = paying(address, bytes as u64)?;
    let reserved = reserve(device, bytes as u64)?;
    shim.accounts().overhead.watch_managed(device, bytes as u64, || call.real())?;
    // SAFETY: the driver returned success, so it has just written an address here.
    let address = unsafe { address.read() };
    let holds = Holds::Managed(ManagedCharge::new(reserved.into()));
    drop(shim.accounts().allocations.insert(address, Allocation::new(context, Kind::Linear, holds)));
    Ok(())
}

/// An address or a length, in whichever width the function has it.
pub(super) trait Word: Copy {
    /// The value in 64 bits.
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

/// The device that pays for `bytes`, and the context that they will live in.
///
/// # Errors
/// No place for the address, no byte, or no context: the driver says what is wrong.
#[inline(always)]
fn paying<A>(address: *mut A, bytes: u64) -> Result<(&'static Shim, &'static Device, CUcontext), Bypass> {
    let shim = state::managed()?;
    Bypass::BadArgument.when(address.is_null() || bytes == 0)?;
    let context = current_context();
    let device = shim.devices().of_current(shim, context);
    Ok((shim, device.ok_or(Bypass::NoContext)?, context))
}

/// Counts `bytes` for an allocation of a kind that a capture may forbid.
///
/// # Errors
/// The driver's answer if a capture does; else they do not fit.
#[inline(always)]
pub(super) fn reserve(device: &'static Device, bytes: u64) -> Result<Reserved, CUerror> {
    device.reserve(bytes).map_err(refused)
}

/// The answer to an allocation, of a kind that a capture may forbid, that does not fit: the driver's if a capture does.
#[cold]
pub(super) fn refused(denied: Denied) -> CUerror {
    capture::forbids_allocation().unwrap_or(denied.into())
}

#[inline]
fn counted<A: Word>(call: &Call<'_, CUresult>, address: *mut A, bytes: u64) -> Handled {
    let (shim, device, context) = paying(address, bytes)?;
    let reserved = match shim.accounts().overhead.expected_bytes(device, bytes) {
        Some(expected_bytes) => {
            let reserved = reserve(device, expected_bytes)?;
            call.real()?;
            reserved
        }
        None => watched(call, shim, device, address, bytes)?,
    };
    // SAFETY: the driver returned success, so it has just written an address here.
    let address = unsafe { address.read() }.wide();
    keep(shim, reserved, address, context, Kind::Linear);
    Ok(())
}

/// Makes an allocation, and looks at what it takes if that can be seen.
#[cold]
fn watched<A: Word>(
    call: &Call<'_, CUresult>,
    shim: &'static Shim,
    device: &'static Device,
    address: *mut A,
    bytes: u64,
) -> Result<Reserved, Stop<CUerror>> {
    let watched = shim.accounts().overhead.watch_allocation(shim, bytes);
    // Only then, as the kernel may be asked to read there.
    let watched = watched.and_then(|watched| Some((watched, SavedAnswer::at(address)?)));
    let reserved = reserve(device, bytes)?;
    call.real()?;
    Ok(match watched {
        Some((watched, kept)) => count_taken(shim, reserved, &watched, &kept)?,
        None => reserved,
    })
}

/// Corrects the count to what an allocation was seen to take.
///
/// # Errors
/// The memory does not fit: the allocation is undone.
#[cold]
fn count_taken<A: Word>(
    shim: &'static Shim,
    mut reserved: Reserved,
    watched: &WatchedAllocation,
    kept: &SavedAnswer<A>,
) -> Result<Reserved, CUerror> {
    let taken_bytes = shim.accounts().overhead.taken_bytes(shim, watched);
    if taken_bytes != reserved.bytes() && reserved.resize(taken_bytes).is_err() {
        // SAFETY: just allocated, and no other code uses it yet.
        let _ = unsafe { real::cuMemFree_v2(kept.take_back().wide()) };
        return Err(CUerror::OUT_OF_MEMORY);
    }
    Ok(reserved)
}

/// Ends the allocation of an address, an array or a mipmapped array.
pub(super) fn freed_as(call: &Call<'_, CUresult>, name: u64, kind: Kind) -> Handled {
    Ok(ended(state::managed()?, call, name, kind)?)
}

/// Takes the record out before the driver frees, since the address may be handed out again at once.
#[inline(always)]
pub(super) fn ended(shim: &Shim, call: &Call<'_, CUresult>, name: u64, kind: Kind) -> CUresult {
    let ended = shim.accounts().allocations.end(name, kind);
    let status = call.real();
    if status.is_err() {
        shim.accounts().allocations.undo(name, kind, ended);
    }
    status
}

/// Commits a reservation and notes what it was for.
#[inline(always)]
pub(super) fn keep(shim: &Shim, reserved: Reserved, name: u64, context: CUcontext, kind: Kind) {
    let allocation = Allocation::new(context, kind, Holds::Charge(reserved.into()));
    drop(shim.accounts().allocations.insert(name, allocation));
}
