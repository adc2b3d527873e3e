//! Pitched memory: the driver pads each row, and tells the padding only with the memory.

use vcuda_driver_api::prelude::*;

pub(super) use super::memory::idle;
use super::memory::{Word, keep, reserve};
use super::table::Handlers;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::allocations::Kind;
use crate::memory::state;
use crate::runtime::shim::devices::{Device, current_context};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Unit to which rows are padded on every GPU so far (bytes).
const USUAL_UNIT: u64 = 512;

/// `cuMemAllocPitch`: reserved with the usual padding of rows, and corrected to the driver's.
pub(super) fn pitch(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width_bytes: usize,
    height: usize,
    _element_bytes: c_uint,
) -> Handled {
    pitched(call, (address, pitch), width_bytes as u64, height as u64)
}

/// `cuMemAllocPitch` before CUDA 3.2.
pub(super) fn pitch_v1(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr_v1,
    pitch: *mut c_uint,
    width_bytes: c_uint,
    height: c_uint,
    _element_bytes: c_uint,
) -> Handled {
    pitched(call, (address, pitch), u64::from(width_bytes), u64::from(height))
}

fn pitched<A: Word, P: Word>(
    call: &Call<'_, CUresult>,
    (address, pitch): (*mut A, *mut P),
    width_bytes: u64,
    height: u64,
) -> Handled {
    let shim = state::managed()?;
    Bypass::BadArgument.when(width_bytes == 0 || height == 0)?;
    let kept = SavedAnswer::at(address).zip(SavedAnswer::at(pitch));
    let (kept_address, kept_pitch) = kept.ok_or(Bypass::BadArgument)?;
    let device = shim.current_device().ok_or(Bypass::NoContext)?;
    let context = current_context();
    let bytes = |unit: u64| {
        let row = width_bytes.checked_next_multiple_of(unit);
        row.unwrap_or(u64::MAX).saturating_mul(height)
    };
    let mut reserved = match device.reserve_if_it_fits(bytes(USUAL_UNIT)) {
        Some(reserved) => reserved,
        // The usual unit is a guess: it must not refuse an allocation.
        None => reserve(device, bytes(unit_of(device)))?,
    };
    call.real()?;
    let (name, row) = (kept_address.now().wide(), kept_pitch.now().wide());
    let taken_bytes = shim.accounts().overhead.rounded(row.saturating_mul(height));
    if let Err(denied) = reserved.resize(taken_bytes) {
        if !give_back(name) {
            // No code will ever free it.
            let _ = device.charge_taken(taken_bytes);
        }
        let _ = (kept_address.take_back(), kept_pitch.take_back());
        return Err(denied.into());
    }
    keep(shim, reserved, name, context, Kind::Linear);
    Ok(())
}

/// Unit to which this device's driver pads rows (bytes), measured once with a row of 16 bytes. The usual unit if there
/// is no room even for that.
#[cold]
fn unit_of(device: &'static Device) -> u64 {
    let ask = || {
        let mut reserved = device.reserve_if_it_fits(USUAL_UNIT).ok_or(())?;
        let (mut address, mut pitch) = (0, 0);
        let (address_place, pitch_place) = (&raw mut address, &raw mut pitch);
        // SAFETY: both places are ours.
        let made = unsafe { real::cuMemAllocPitch_v2(address_place, pitch_place, 16, 1, 16) };
        made.map_err(drop)?;
        if !give_back(address) {
            // No code will ever free it.
            let _ = reserved.resize(pitch as u64);
            reserved.commit();
        }
        Ok::<_, ()>((pitch as u64).max(1))
    };
    *device.pitch_unit.get_or_try_init(ask).unwrap_or(&USUAL_UNIT)
}

/// Frees an address that no other code has yet. The first answer may be that of earlier work (CUDA Driver API,
/// `cuMemFree`: "may also return error codes from previous, asynchronous launches").
fn give_back(address: CUdeviceptr) -> bool {
    // SAFETY: the address is the driver's own, and no other code uses it.
    let free = || unsafe { real::cuMemFree_v2(address) }.is_ok();
    free() || free()
}
