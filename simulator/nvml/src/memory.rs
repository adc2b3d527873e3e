//! Memory of a device over all processes, in NVML's granularity.

use crate::answer::{put, version};
use crate::state::{Device, device};
use vcuda_driver_api::prelude::*;
use vcuda_machine::{DeviceMemory, GpuMemory};

exports! {
    nvmlDeviceGetMemoryInfo => info;
    nvmlDeviceGetMemoryInfo_v2 => info_v2;
    nvmlDeviceGetBAR1MemoryInfo => bar1;
}

/// Memory of a device. Error: `NVML_ERROR_NOT_SUPPORTED` if the profile's driver does not report it.
fn memory(device: Device) -> Result<GpuMemory, NvmlError> {
    let machine = &device.opened.machine;
    match machine.config().driver.nvml_device_memory {
        DeviceMemory::Told => Ok(machine.memory(device.index)),
        DeviceMemory::NotSupported => Err(NvmlError::NOT_SUPPORTED),
    }
}

/// Version 1, where reserved memory counts as used. The machine reserves none, so both versions agree.
pub(crate) fn info(handle: nvmlDevice_t, target: *mut nvmlMemory_t) -> nvmlReturn_t {
    let memory = memory(device(handle)?)?;
    let (total, used) = (memory.total_bytes, memory.reported_bytes);
    put(target, nvmlMemory_t { total, free: total.saturating_sub(used), used })
}

/// Version 2: total = reserved + free + used. Under a memory limit of the caller's cgroup it is about that ("Modified to
/// account for cgroup memory partitions"); in MIG mode it is not ("How Limits Are Reported").
pub(crate) fn info_v2(handle: nvmlDevice_t, target: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    let device = device(handle)?;
    version(target, nvmlMemory_v2)?;
    let memory = memory(device)?;
    let (total, used) = (memory.total_bytes, memory.reported_bytes);
    let free = total.saturating_sub(used);
    let told = nvmlMemory_v2_t { version: nvmlMemory_v2, total, reserved: 0, free, used };
    let is_mig = device.opened.faults()?.mig.contains(&device.config.uuid);
    let Some(shown) = device.opened.machine.memory_shown(device.index).filter(|_| !is_mig) else {
        return put(target, told);
    };
    let (total, used) = (shown.total_bytes, shown.used_bytes.min(shown.total_bytes));
    let free = shown.free_bytes.min(free).min(total - used);
    put(target, nvmlMemory_v2_t { total, used, free, reserved: total - used - free, ..told })
}

/// BAR1: a window over the whole memory, with one granule in use (docs/hardware.md, "constants of NVML").
fn bar1(handle: nvmlDevice_t, target: *mut nvmlBAR1Memory_t) -> nvmlReturn_t {
    let device = device(handle)?;
    let total = device.config.memory_bytes.next_power_of_two();
    let used = device.opened.machine.config().granularity_bytes.min(total);
    put(target, nvmlBAR1Memory_t { bar1Total: total, bar1Free: total - used, bar1Used: used })
}
