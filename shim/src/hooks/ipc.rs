//! Memory of `cuMemAlloc` that is passed from process to process by handles of 64 bytes (CUDA Driver API,
//! `cuIpcGetMemHandle`).
//!
//! The exporter pays as before, and the tenant gets to know the memory; a process of the tenant that opens it pays
//! nothing. If the exporter lets go or dies first, the memory stays counted as long as a process has it open. Memory
//! from outside of the tenant is paid for by the first process that opens it, once in the tenant.

use vcuda_driver_api::prelude::*;
use vcuda_region::shared::ObjectKey;

use super::table::Handlers;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::allocations::{Allocation, Holds, Kind};
use crate::memory::charge::Charge;
use crate::memory::state;
use crate::runtime::shim::devices::{Denied, Device, current_context};
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuIpcGetMemHandle`.
pub(super) fn export(
    call: &Call<'_, CUresult>,
    handle: *mut CUipcMemHandle,
    address: CUdeviceptr,
) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    if !handle.is_null() {
        // SAFETY: the driver returned success, so it has just written a handle here.
        let handle = unsafe { handle.read() };
        exported(shim, address, key_of(&handle));
    }
    Ok(())
}

/// `cuIpcOpenMemHandle`, `_v2`.
pub(super) fn open(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    _flags: c_uint,
) -> Handled {
    imported(call, address, key_of(&handle), Kind::Opened, |address| {
        // SAFETY: closes what has just been opened; the application does not know of it yet.
        let _ = unsafe { real::cuIpcCloseMemHandle(address) };
    })
}

/// `cuIpcCloseMemHandle`: ends one of the openings.
pub(super) fn close(call: &Call<'_, CUresult>, address: CUdeviceptr) -> Handled {
    let shim = state::managed()?;
    let ended = shim.accounts().allocations.end_opened(address);
    let status = call.real();
    if status.is_err() {
        shim.accounts().allocations.undo(address, Kind::Opened, ended);
    }
    Ok(status?)
}

/// Makes the memory at an address of this process known to the tenant's other processes.
pub(super) fn exported(shim: &Shim, address: CUdeviceptr, key: ObjectKey) {
    if !shim.accounts().allocations.share(address, key)
        && let Some((base, _)) = range_of(address)
    {
        // The handle is that of the whole allocation, wherever in it the address is.
        shim.accounts().allocations.share(base, key);
    }
}

/// Opens memory of another process. Memory that the tenant knows is held before the driver is asked, since its exporter
/// may let go meanwhile. Other memory tells its size only once it is open. If that does not fit, it is closed again,
/// before the application sees it.
pub(super) fn imported(
    call: &Call<'_, CUresult>,
    place: *mut CUdeviceptr,
    key: ObjectKey,
    kind: Kind,
    close: impl Fn(CUdeviceptr),
) -> Handled {
    let shim = state::managed()?;
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    let known = Charge::join(shim, key);
    call.real()?;
    let address = kept.now();
    if shim.accounts().allocations.open_again(address, key) {
        return Ok(()); // the driver counts its openings, and so does the shim
    }
    let charge = match known.map_or_else(|| join_foreign(shim, address, key), Ok) {
        Ok(charge) => charge,
        Err(denied) => {
            close(kept.take_back());
            return Err(denied.into());
        }
    };
    let opened = Allocation::new(current_context(), kind, Holds::Charge(charge));
    drop(shim.accounts().allocations.open(address, key, opened));
    Ok(())
}

/// Counts memory that is open at an address. If the driver does not tell its size, it is refused: it would be free.
fn join_foreign(shim: &'static Shim, address: CUdeviceptr, key: ObjectKey) -> Result<Charge, Denied> {
    let (_, bytes) = range_of(address).ok_or(Denied)?;
    Charge::join_foreign(device_at(shim, address).ok_or(Denied)?, key, bytes)
}

/// Base and length (bytes) of the allocation that an address is in (CUDA Driver API, `cuMemGetAddressRange`).
pub(super) fn range_of(address: CUdeviceptr) -> Option<(CUdeviceptr, u64)> {
    let (mut base, mut bytes) = (0, 0);
    // SAFETY: the driver judges the address itself, and writes an address and a length or nothing.
    unsafe { real::cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, address) }.ok()?;
    (bytes > 0).then_some((base, bytes as u64))
}

/// The device that the memory at an address is on.
fn device_at(shim: &'static Shim, address: CUdeviceptr) -> Option<&'static Device> {
    let mut ordinal: c_int = 0;
    let attribute = CUpointer_attribute::DEVICE_ORDINAL;
    // SAFETY: the driver judges the address itself, and writes a number for this attribute or nothing.
    let asked = unsafe { real::cuPointerGetAttribute((&raw mut ordinal).cast(), attribute, address) };
    match asked {
        Ok(()) => shim.device(ordinal),
        Err(_) => shim.current_device(),
    }
}

fn key_of(handle: &CUipcMemHandle) -> ObjectKey {
    // C's `char` is signed on some machines.
    let bytes = handle.reserved.map(|byte| u8::from_ne_bytes(byte.to_ne_bytes()));
    ObjectKey::of(&bytes)
}
