//! Memory of a GPU, as NVML's callers see it.

use vcuda_driver_api::prelude::*;
use vcuda_quota::NO_MEMORY_LIMIT;

use super::Part;
use crate::driver::saved_answer::peek;
use crate::driver::{Call, Handled, Stop, real};

/// A GPU's memory as the tenant sees it (bytes).
pub(super) struct ShownMemory {
    pub(super) total: u64,
    free: u64,
    pub(super) used: u64,
}

impl ShownMemory {
    /// The same as `nvmlDeviceGetMemoryInfo_v2` tells it.
    fn in_version_2(&self, version: c_uint) -> nvmlMemory_v2_t {
        nvmlMemory_v2_t {
            version,
            total: self.total,
            reserved: self.total.saturating_sub(self.free).saturating_sub(self.used),
            free: self.free,
            used: self.used,
        }
    }
}

/// Total and free memory of a GPU (bytes), by one version of NVML's query and the `other`. A driver that limits the process's cgroup
/// tells of it in version 2 alone: the larger total and the smaller free memory are right. Other drivers are not asked twice.
fn with_other(device: nvmlDevice_t, told: (u64, u64), other: impl FnOnce() -> (u64, u64)) -> (u64, u64) {
    // SAFETY: without a place for the answer, the driver only checks its arguments; one without the function does nothing.
    let asked = unsafe { real::nvmlDeviceGetMemoryLimits_v1(device, core::ptr::null_mut()) };
    if asked == Err(NvmlError::FUNCTION_NOT_FOUND) {
        return told;
    }
    let (total, free) = other();
    (told.0.max(total), told.1.min(free))
}

/// Memory as `cuMemGetInfo` shows it; `None` if no memory limit applies.
pub(super) fn shown_memory(device: nvmlDevice_t, gpu_total: u64, gpu_free: u64) -> Option<ShownMemory> {
    let part = Part::of_device(device).ok()?;
    let limit = part.memory_limit_bytes();
    if limit == NO_MEMORY_LIMIT {
        return None;
    }
    let used = part.grant.map_or(0, |(region, index)| region.usage.used_bytes(index));
    // Nothing granted: the GPU keeps its size, since programs divide by it.
    let total = if limit == 0 { gpu_total } else { limit.min(gpu_total) };
    Some(ShownMemory { total, free: limit.saturating_sub(used).min(gpu_free), used })
}

/// The driver's answer about the memory of a GPU. `false`: it tells none, as of a GPU that shares the processor's memory
/// (docs/hardware.md, "memory of the GPU"), and the tenant has a quota there to be told.
fn tells(call: &Call<'_, nvmlReturn_t>, device: nvmlDevice_t) -> Result<bool, Stop<NvmlError>> {
    let answer = call.real();
    let has_quota = |part: Part| !matches!(part.memory_limit_bytes(), 0 | NO_MEMORY_LIMIT);
    if answer == Err(NvmlError::NOT_SUPPORTED) && Part::of_device(device).is_ok_and(has_quota) {
        return Ok(false);
    }
    answer?;
    Ok(true)
}

/// `nvmlDeviceGetMemoryInfo`.
pub(in super::super) fn memory(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> Handled<NvmlError> {
    if tells(call, device)? {
        return answer(memory, |gpu| {
            let (total, free) = with_other(device, (gpu.total, gpu.free), || {
                let mut other = nvmlMemory_v2_t {
                    version: nvmlMemory_v2,
                    total: 0,
                    reserved: 0,
                    free: u64::MAX,
                    used: 0,
                };
                // SAFETY: a structure of this version, which NVML writes or leaves.
                let _ = unsafe { real::nvmlDeviceGetMemoryInfo_v2(device, &raw mut other) };
                (other.total, other.free)
            });
            shown_memory(device, total, free)
        });
    }
    let quota = shown_memory(device, u64::MAX, u64::MAX);
    let Some((ShownMemory { total, free, used }, _)) = quota.zip(peek(memory)) else {
        return Err(NvmlError::NOT_SUPPORTED.into());
    };
    // SAFETY: the application's structure for the answer; the kernel has found it mapped.
    unsafe { memory.write(nvmlMemory_t { total, free, used }) };
    Ok(())
}

/// `nvmlDeviceGetConfComputeProtectedMemoryUsage`, which tells the same of a GPU in confidential mode.
pub(in super::super) fn protected_memory(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_t,
) -> Handled<NvmlError> {
    call.real()?;
    answer(memory, |gpu| shown_memory(device, gpu.total, gpu.free))
}

/// Replaces NVML's answer of version 1 by what is shown.
fn answer(
    memory: *mut nvmlMemory_t,
    shown: impl FnOnce(nvmlMemory_t) -> Option<ShownMemory>,
) -> Handled<NvmlError> {
    if memory.is_null() {
        return Ok(());
    }
    // SAFETY: NVML returned success, so it has just written the structure.
    let gpu = unsafe { memory.read() };
    if let Some(ShownMemory { total, free, used }) = shown(gpu) {
        // SAFETY: as above.
        unsafe { memory.write(nvmlMemory_t { total, free, used }) };
    }
    Ok(())
}

/// `nvmlDeviceGetMemoryInfo_v2`: `total = reserved + free + used` stays true (NVML API, `nvmlMemory_v2_t`).
pub(in super::super) fn memory_v2(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    memory: *mut nvmlMemory_v2_t,
) -> Handled<NvmlError> {
    if !tells(call, device)? {
        let asked = peek(memory).filter(|asked| asked.version == nvmlMemory_v2);
        let Some((quota, asked)) = shown_memory(device, u64::MAX, u64::MAX).zip(asked) else {
            return Err(NvmlError::NOT_SUPPORTED.into());
        };
        // SAFETY: the application's structure for the answer; the kernel has found it mapped.
        unsafe { memory.write(quota.in_version_2(asked.version)) };
        return Ok(());
    }
    if memory.is_null() {
        return Ok(());
    }
    // SAFETY: NVML returned success, so it has just written the structure, which begins with its version.
    if unsafe { (*memory).version } != nvmlMemory_v2 {
        return Ok(());
    }
    // SAFETY: of this version, thus of this shape.
    let gpu = unsafe { memory.read() };
    let (total, free) = with_other(device, (gpu.total, gpu.free), || {
        let mut other = nvmlMemory_t { total: 0, free: u64::MAX, used: 0 };
        // SAFETY: a structure that NVML writes or leaves.
        let _ = unsafe { real::nvmlDeviceGetMemoryInfo(device, &raw mut other) };
        (other.total, other.free)
    });
    if let Some(told) = shown_memory(device, total, free) {
        // SAFETY: as above.
        unsafe { memory.write(told.in_version_2(gpu.version)) };
    }
    Ok(())
}

/// `nvmlDeviceGetBAR1MemoryInfo`: a window onto the memory, no larger than the quota and no fuller than it. How much of
/// the window each tenant uses is unknown.
pub(in super::super) fn bar1(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    window: *mut nvmlBAR1Memory_t,
) -> Handled<NvmlError> {
    call.real()?;
    if window.is_null() {
        return Ok(());
    }
    // SAFETY: NVML returned success, so it has just written the structure.
    let gpu = unsafe { window.read() };
    if let Some(told) = shown_memory(device, gpu.bar1Total, gpu.bar1Free) {
        let total = told.total.min(gpu.bar1Total);
        let used = told.used.min(gpu.bar1Used).min(total);
        let window_told = nvmlBAR1Memory_t { bar1Total: total, bar1Free: total - used, bar1Used: used };
        // SAFETY: as above.
        unsafe { window.write(window_told) };
    }
    Ok(())
}

/// `nvmlDeviceGetAttributes`, `_v2`: of MIG instances; where a GPU has an answer, its memory is the quota.
pub(in super::super) fn attributes(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    attributes: *mut nvmlDeviceAttributes_t,
) -> Handled<NvmlError> {
    call.real()?;
    if attributes.is_null() {
        return Ok(());
    }
    // SAFETY: NVML returned success, so it has just written the structure.
    let mut gpu = unsafe { attributes.read() };
    if let Some(told) = shown_memory(device, gpu.memorySizeMB << 20, 0) {
        gpu.memorySizeMB = told.total >> 20;
        // SAFETY: as above.
        unsafe { attributes.write(gpu) };
    }
    Ok(())
}
