//! What NVML and the driver tell of memory that is taken.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;

use vcuda_driver_api::prelude::*;

use crate::devices::{Device, current_context};
use crate::ffi::{elf, real};
use crate::hooks::own as hooked;

/// Opens NVML, which the application may not have done. The CUDA driver is in use already.
pub(super) fn start_nvml() -> bool {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    const NVML: &CStr = real::Library::Nvml.soname();
    let Some(address) = elf::libc_symbol(c"dlopen") else {
        return false;
    };
    // SAFETY: dlopen(3) has this type.
    let dlopen: Dlopen = unsafe { core::mem::transmute(address) };
    // SAFETY: a C string.
    if unsafe { dlopen(NVML.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) }.is_null() {
        return false;
    }
    // SAFETY: NVML counts its users: the application's own start and shutdown keep their meaning.
    unsafe { real::nvmlInit_v2() }.is_ok()
}

/// NVML's handle of a device.
pub(super) fn handle_of(device: &Device) -> Option<nvmlDevice_t> {
    let uuid = CString::new(device.uuid.to_string()).ok()?;
    let mut handle = nvmlDevice_t::NULL;
    // SAFETY: a C string; NVML writes a handle or nothing.
    unsafe { real::nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut handle) }.ok()?;
    Some(handle)
}

/// What NVML says of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    /// So many bytes.
    Bytes(u64),
    /// It is not there.
    Not,
    /// NVML does not know, or not how much.
    Untold,
}

/// What NVML says that this process has.
pub(super) fn process_bytes(handle: nvmlDevice_t) -> Listed {
    const NOT_AVAILABLE: u64 = u64::MAX;
    let empty = nvmlProcessInfo_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let mut infos = vec![empty; 64];
    loop {
        let mut count = c_uint::try_from(infos.len()).unwrap_or(0);
        // SAFETY: room for `count` records; NVML writes as many at most and says how many there are.
        let asked = unsafe {
            hooked::nvmlDeviceGetComputeRunningProcesses_v3(handle, &raw mut count, infos.as_mut_ptr())
        };
        match asked {
            Ok(()) => infos.truncate(count as usize),
            Err(NvmlError::INSUFFICIENT_SIZE) if infos.len() < 65_536 => {
                infos.resize((count as usize).max(infos.len()) * 2, empty);
                continue;
            }
            Err(_) => return Listed::Untold,
        }
        let me = std::process::id();
        // A process may be listed more than once: each instance of the driver in it is a client of its own.
        let own: Vec<u64> = infos
            .iter()
            .filter(|info| info.pid == me)
            .map(|info| info.usedGpuMemory)
            .collect();
        return if own.is_empty() {
            Listed::Not
        } else if own.contains(&NOT_AVAILABLE) {
            Listed::Untold
        } else {
            Listed::Bytes(own.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes)))
        };
    }
}

/// What is in use on the card, by whomever (bytes): as NVML says.
pub(super) fn card_used_by_nvml(handle: nvmlDevice_t) -> Option<u64> {
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: NVML writes the structure or nothing.
    unsafe { hooked::nvmlDeviceGetMemoryInfo(handle, &raw mut memory) }.ok()?;
    Some(memory.used)
}

/// The same, as the driver says (`cuMemGetInfo`), which needs a context on that card.
pub(super) fn card_used_by_driver(context: CUcontext) -> Option<u64> {
    let is_current = current_context() == context;
    if !is_current {
        // SAFETY: the driver judges the handle; what is pushed is popped below.
        unsafe { real::cuCtxPushCurrent_v2(context) }.ok()?;
    }
    let (mut free, mut total) = (0, 0);
    // SAFETY: the driver writes two numbers or nothing.
    let asked = unsafe { hooked::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    if !is_current {
        let mut popped = CUcontext::NULL;
        // SAFETY: undoes the push above.
        let _ = unsafe { real::cuCtxPopCurrent_v2(&raw mut popped) };
    }
    asked.ok()?;
    Some(total.saturating_sub(free) as u64)
}
