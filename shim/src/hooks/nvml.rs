//! What NVML tools are told: the memory of a granted GPU is the quota. Other GPUs are described as they are.

use vcuda_driver_api::prelude::*;
use vcuda_region::GpuUuid;
use vcuda_region::limits::NO_MEMORY_LIMIT;

use crate::ffi::{Call, real};
use crate::shim;

/// Nothing is limited: NVML alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `nvmlDeviceGetMemoryInfo`.
pub(super) fn memory(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> nvmlReturn_t {
    call.real()?;
    if memory.is_null() {
        return Ok(());
    }
    // SAFETY: NVML returned success, so it has just written the structure.
    let card = unsafe { memory.read() };
    if let Some(quota) = quota(device, card.total, card.free) {
        let told = nvmlMemory_t {
            total: quota.total_bytes,
            free: quota.free_bytes,
            used: quota.used_bytes,
        };
        // SAFETY: as above.
        unsafe { memory.write(told) };
    }
    Ok(())
}

/// `nvmlDeviceGetMemoryInfo_v2`: `total = reserved + free + used` stays true (NVML API, `nvmlMemory_v2_t`).
pub(super) fn memory_v2(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    /// Size and version of the structure as NVML writes them: another version has another shape.
    const VERSION_2: c_uint = 0x0200_0028;
    call.real()?;
    if memory.is_null() {
        return Ok(());
    }
    // SAFETY: NVML returned success, so it has just written the structure, which begins with its version.
    if unsafe { (*memory).version } != VERSION_2 {
        return Ok(());
    }
    // SAFETY: of this version, thus of this shape.
    let card = unsafe { memory.read() };
    if let Some(quota) = quota(device, card.total, card.free) {
        let told = nvmlMemory_v2_t {
            version: card.version,
            total: quota.total_bytes,
            reserved: quota
                .total_bytes
                .saturating_sub(quota.free_bytes)
                .saturating_sub(quota.used_bytes),
            free: quota.free_bytes,
            used: quota.used_bytes,
        };
        // SAFETY: as above.
        unsafe { memory.write(told) };
    }
    Ok(())
}

struct Quota {
    total_bytes: u64,
    free_bytes: u64,
    used_bytes: u64,
}

/// The quota of a GPU: as `cuMemGetInfo` tells it. Nothing for a GPU without a memory limit of ours.
fn quota(device: nvmlDevice_t, card_total_bytes: u64, card_free_bytes: u64) -> Option<Quota> {
    let shim = shim::get()?;
    let region = shim.region()?;
    let index = region.limits.find(&uuid_of(device)?)?;
    let limit_bytes = region.memory_limit_bytes(index);
    if limit_bytes == NO_MEMORY_LIMIT {
        return None;
    }
    shim.look_if_due();
    let total_bytes = limit_bytes.min(card_total_bytes);
    let used_bytes = region.usage.used_bytes(index);
    let free_bytes = total_bytes.saturating_sub(used_bytes).min(card_free_bytes);
    Some(Quota {
        total_bytes,
        free_bytes,
        used_bytes,
    })
}

/// A GPU's UUID from NVML, which writes it as we do.
fn uuid_of(device: nvmlDevice_t) -> Option<GpuUuid> {
    let mut text: [c_char; 96] = [0; 96];
    // SAFETY: room for 96 characters; NVML writes a C string within them or nothing.
    unsafe { real::nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96) }.ok()?;
    // SAFETY: NVML returned success, so the array holds a C string.
    let text = unsafe { core::ffi::CStr::from_ptr(text.as_ptr()) };
    text.to_str().ok()?.parse().ok()
}
