//! Memory of a GPU as the application sees it: the quota looks like the whole GPU.

use vcuda_driver_api::prelude::*;
use vcuda_quota::NO_MEMORY_LIMIT;

use super::memory::Word;
use super::table::Handlers;
use crate::driver::saved_answer::are_there;
use crate::driver::{Call, Handled, real};
use crate::memory::state;
use crate::runtime::shim;
use crate::runtime::shim::devices::Device;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_NOTHING;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemGetInfo`: total = limit, free = what is left of it and of the GPU.
pub(super) fn mem_info(call: &Call<'_, CUresult>, free: *mut usize, total: *mut usize) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    let Some(device) = shim.current_device() else {
        return Ok(());
    };
    device.notice_contexts();
    shim.refresh_if_due();
    answer_info(device, free, total, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// `cuMemGetInfo` before CUDA 3.2: a value that does not fit 32 bits becomes the largest number.
pub(super) fn mem_info_v1(call: &Call<'_, CUresult>, free: *mut c_uint, total: *mut c_uint) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    let Some(device) = shim.current_device() else {
        return Ok(());
    };
    device.notice_contexts();
    shim.refresh_if_due();
    answer_info(device, free, total, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// `cuDeviceTotalMem`.
pub(super) fn total(call: &Call<'_, CUresult>, bytes: *mut usize, ordinal: CUdevice) -> Handled {
    answer_total(call, bytes, ordinal, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// `cuDeviceTotalMem` before CUDA 3.2.
pub(super) fn total_v1(call: &Call<'_, CUresult>, bytes: *mut c_uint, ordinal: CUdevice) -> Handled {
    answer_total(call, bytes, ordinal, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// `cuDeviceGetAttribute`: a GPU that shares the processor's memory looks like one with memory of its own where a memory limit
/// applies, as programs otherwise take the node's free memory for the GPU's (docs/hardware.md, "memory of the GPU").
pub(super) fn attribute(
    call: &Call<'_, CUresult>,
    value: *mut c_int,
    attribute: CUdevice_attribute,
    ordinal: CUdevice,
) -> Handled {
    call.real()?;
    if attribute != CUdevice_attribute::INTEGRATED || value.is_null() {
        return Ok(());
    }
    let shim = state::managed()?;
    // SAFETY: the driver returned success, so it has just written here.
    let is_integrated = unsafe { value.read() } != 0;
    let is_limited = |device: &Device| device.memory_limit_bytes() != NO_MEMORY_LIMIT;
    if is_integrated && shim.device(ordinal).is_some_and(is_limited) {
        // SAFETY: as above.
        unsafe { value.write(0) };
    }
    Ok(())
}

#[inline(always)]
fn answer_info<W: Word>(device: &Device, free: *mut W, total: *mut W, narrow: impl Fn(u64) -> W) -> Handled {
    // The driver may leave such a place alone.
    if !are_there(free, total) {
        return Ok(());
    }
    let limit = device.memory_limit_bytes();
    if limit == NO_MEMORY_LIMIT {
        return Ok(());
    }
    // SAFETY: the driver returned success, so it has just written here.
    let gpu_free = unsafe { free.read() }.wide();
    // SAFETY: and here.
    let gpu_total = unsafe { total.read() }.wide();
    let is_within = (1..=gpu_total).contains(&limit);
    let shown = if is_within { limit } else { shown_total(gpu_bytes(device, gpu_total), limit) };
    let left = limit.saturating_sub(device.used_bytes());
    // SAFETY: as above.
    unsafe { free.write(narrow(left.min(gpu_free))) };
    // SAFETY: as above.
    unsafe { total.write(narrow(shown)) };
    Ok(())
}

/// Memory of the GPU (bytes). A driver that limits the process's cgroup tells that limit instead, which may be rounded down
/// (docs/hardware.md, "memory limits of cgroups"): the quota is shown all the same.
#[cold]
#[inline(never)]
fn gpu_bytes(device: &Device, told_bytes: u64) -> u64 {
    let mut all_bytes = 0;
    // SAFETY: the driver writes a number there, or nothing.
    let _ = unsafe { real::cuDeviceTotalMem_v2(&raw mut all_bytes, device.ordinal) };
    told_bytes.max(all_bytes as u64)
}

/// Total memory that the application sees (bytes): the quota. If nothing is granted, the GPU keeps its size, as
/// programs divide by the total.
fn shown_total(gpu_bytes: u64, limit_bytes: u64) -> u64 {
    if limit_bytes == 0 { gpu_bytes } else { gpu_bytes.min(limit_bytes) }
}

fn answer_total<W: Word>(
    call: &Call<'_, CUresult>,
    bytes: *mut W,
    ordinal: CUdevice,
    narrow: impl Fn(u64) -> W,
) -> Handled {
    let shim = state::managed()?;
    call.real()?;
    let Some(device) = shim.device(ordinal) else {
        return Ok(());
    };
    if bytes.is_null() {
        return Ok(());
    }
    // SAFETY: the driver returned success, so it has just written here.
    let gpu = unsafe { bytes.read() }.wide();
    // SAFETY: as above.
    unsafe { bytes.write(narrow(shown_total(gpu, device.memory_limit_bytes()))) };
    Ok(())
}
