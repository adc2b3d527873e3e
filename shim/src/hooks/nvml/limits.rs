//! Memory limits of cgroups (docs/hardware.md, "memory limits of cgroups"). A tenant is told its quota for its own cgroup, and
//! nothing of others, whose figures are its neighbours'. It sets none: the manager's limit stands behind the quota.

use core::ffi::CStr;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use vcuda_driver_api::prelude::*;

use super::Part;
use super::memory::shown_memory;
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::state;

/// `nvmlDeviceSetMemoryLimits_v1`: refused, as to any caller without the right. Of a cgroup that the driver cannot tell of, its
/// answer stays.
pub(in super::super) fn set_limits(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    limits: *const nvmlSetMemoryLimits_v1_t,
) -> Handled<NvmlError> {
    state::managed()?;
    let cgroup = peek(limits).ok_or(Bypass::BadArgument)?.nameSpace;
    let mut told = nvmlGetMemoryLimits_v1_t { nameSpace: cgroup, softLimit: 0, hardLimit: 0, currentUsed: 0 };
    // SAFETY: the application's path, and a place for the answer.
    unsafe { real::nvmlDeviceGetMemoryLimits_v1(device, &raw mut told) }?;
    Err(NvmlError::NO_PERMISSION.into())
}

/// `nvmlDeviceGetMemoryLimits_v1`. What the driver refuses stays its answer.
pub(in super::super) fn limits(
    call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    limits: *mut nvmlGetMemoryLimits_v1_t,
) -> Handled<NvmlError> {
    Part::of_device(device)?;
    let before = peek(limits.cast_const()).ok_or(Bypass::BadArgument)?;
    Bypass::BadArgument.when(before.nameSpace.is_null())?;
    call.real()?;
    // SAFETY: NVML returned success, so it has read a C string there.
    let cgroup = unsafe { CStr::from_ptr(before.nameSpace) };
    if !is_own(cgroup) {
        // SAFETY: readable before; NVML has written another cgroup's figures here.
        unsafe { limits.write(before) };
        return Err(NvmlError::NO_PERMISSION.into());
    }
    let Some(shown) = shown_memory(device, u64::MAX, u64::MAX) else {
        return Ok(());
    };
    // SAFETY: NVML returned success, so it has just written the structure.
    let told = unsafe { limits.read() };
    let hard_bytes = told.hardLimit.min(shown.total);
    let soft_bytes = told.softLimit.min(hard_bytes);
    // SAFETY: as above.
    unsafe { (*limits).hardLimit = hard_bytes };
    // SAFETY: as above.
    unsafe { (*limits).softLimit = soft_bytes };
    // SAFETY: as above.
    unsafe { (*limits).currentUsed = shown.used };
    Ok(())
}

/// Whether the directory is that of this process's own cgroup: it lists the process.
fn is_own(cgroup: &CStr) -> bool {
    let path = Path::new(OsStr::from_bytes(cgroup.to_bytes()));
    let Ok(listed) = std::fs::read_to_string(path.join("cgroup.procs")) else {
        return false;
    };
    let own = std::process::id().to_string();
    listed.lines().any(|pid| pid == own)
}
