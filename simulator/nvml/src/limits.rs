//! Memory limits of cgroups, as of driver 615 (docs/hardware.md, "memory limits of cgroups").

use crate::answer::{get, put, text};
use crate::state::{Device, device, tell};
use std::path::Path;
use vcuda_driver_api::prelude::*;
use vcuda_machine::{Cgroup, MemoryLimits, NotLimited};

exports! {
    nvmlDeviceSetMemoryLimits_v1 => set;
    nvmlDeviceGetMemoryLimits_v1 => limits;
}

/// Number of `CAP_SYS_ADMIN`, which the kernel's driver asks for (nv-linux.h, `NV_IS_SUSER`).
const CAP_SYS_ADMIN: u32 = 21;

/// The device. Errors: `NVML_ERROR_FUNCTION_NOT_FOUND`, as for a library without the function, which this one is under
/// other profiles; `NVML_ERROR_NOT_SUPPORTED` in MIG mode.
fn limited(handle: nvmlDevice_t) -> Result<Device, NvmlError> {
    let device = device(handle)?;
    if device.opened.machine.config().driver.memory_limits == MemoryLimits::None {
        return Err(NvmlError::FUNCTION_NOT_FOUND);
    }
    if device.opened.faults()?.mig.contains(&device.config.uuid) {
        return Err(NvmlError::NOT_SUPPORTED);
    }
    Ok(device)
}

/// The cgroup of a "full path to the cgroup dir".
fn cgroup(path: *const c_char) -> Result<Cgroup, NvmlError> {
    Cgroup::at(Path::new(text(path)?)).ok_or(NvmlError::NOT_FOUND)
}

fn set(handle: nvmlDevice_t, limits: *const nvmlSetMemoryLimits_v1_t) -> nvmlReturn_t {
    let device = limited(handle)?;
    let limits = get(limits)?;
    if !is_privileged() {
        return Err(NvmlError::NO_PERMISSION);
    }
    let cgroup = cgroup(limits.nameSpace)?;
    let machine = &device.opened.machine;
    machine.set_memory_limits(device.index, &cgroup, limits.softLimit, limits.hardLimit).map_err(refused)
}

fn limits(handle: nvmlDevice_t, target: *mut nvmlGetMemoryLimits_v1_t) -> nvmlReturn_t {
    let device = limited(handle)?;
    let nameSpace = get(target)?.nameSpace;
    let limits = device.opened.machine.memory_limits(device.index, &cgroup(nameSpace)?).map_err(refused)?;
    put(
        target,
        nvmlGetMemoryLimits_v1_t {
            nameSpace,
            softLimit: limits.soft_bytes,
            hardLimit: limits.hard_bytes,
            currentUsed: limits.used_bytes,
        },
    )
}

/// Whether this process has `CAP_SYS_ADMIN`.
fn is_privileged() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    u64::from_str_radix(effective.trim(), 16).is_ok_and(|set| set >> CAP_SYS_ADMIN & 1 == 1)
}

/// The code of a refusal. `NVML_ERROR_NOT_FOUND` alone is documented (docs/hardware.md, "memory limits of cgroups").
fn refused(refusal: NotLimited) -> NvmlError {
    match refusal {
        NotLimited::NotFound => NvmlError::NOT_FOUND,
        NotLimited::NoFunction => NvmlError::FUNCTION_NOT_FOUND,
        NotLimited::NotSet => NvmlError::NOT_SUPPORTED,
        NotLimited::Impossible => NvmlError::INVALID_ARGUMENT,
        NotLimited::Full => {
            tell(&refusal);
            NvmlError::INSUFFICIENT_RESOURCES
        }
        _ => NvmlError::UNKNOWN,
    }
}
