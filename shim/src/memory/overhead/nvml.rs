//! Questions to NVML in this process, once it is started ([`super::nvml_start`]).

use std::ffi::CString;

use vcuda_driver_api::prelude::*;

use crate::driver::real;
use crate::runtime::shim::devices::Device;

/// NVML's handle of a device.
pub(super) fn handle_of(device: &Device) -> Option<nvmlDevice_t> {
    let uuid = CString::new(device.uuid.to_string()).ok()?;
    let mut handle = nvmlDevice_t::NULL;
    // SAFETY: a C string; NVML writes a handle or nothing.
    unsafe { real::nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut handle) }.ok()?;
    Some(handle)
}

/// NVML's entry for this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    /// Its memory in bytes, not 0.
    Bytes(u64),
    /// NVML does not list the process.
    Not,
    /// NVML does not tell, or not how much.
    Unknown,
}

/// NVML's entry for this process, among compute processes and among clients of MPS.
pub(super) fn process_bytes(handle: nvmlDevice_t) -> Listed {
    let compute = list(&|count, infos| {
        // SAFETY: room for `count` records; NVML writes as many at most and says how many there are.
        let newest = unsafe { real::nvmlDeviceGetComputeRunningProcesses_v3(handle, count, infos) };
        if newest != Err(NvmlError::FUNCTION_NOT_FOUND) {
            return newest;
        }
        // SAFETY: as above; the records of drivers before 510 have the same shape.
        unsafe { real::nvmlDeviceGetComputeRunningProcesses_v2(handle, count, infos) }
    });
    let clients_of_mps = list(&|count, infos| {
        // SAFETY: as above.
        let newest = unsafe { real::nvmlDeviceGetMPSComputeRunningProcesses_v3(handle, count, infos) };
        if newest != Err(NvmlError::FUNCTION_NOT_FOUND) {
            return newest;
        }
        // SAFETY: as above.
        unsafe { real::nvmlDeviceGetMPSComputeRunningProcesses_v2(handle, count, infos) }
    });
    match (compute, clients_of_mps) {
        (None, None) => Listed::Unknown,
        (compute, clients) => {
            let listed = compute.iter().chain(&clients).flatten();
            entry_of(std::process::id(), listed)
        }
    }
}

/// A question to NVML for a list: room for so many records, and the records.
type Ask<'a> = dyn Fn(*mut c_uint, *mut nvmlProcessInfo_t) -> nvmlReturn_t + 'a;

/// A whole list; `None` if NVML does not tell it.
fn list(ask: &Ask<'_>) -> Option<Vec<nvmlProcessInfo_t>> {
    let empty = nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
    let mut infos = vec![empty; 64];
    loop {
        let mut count = c_uint::try_from(infos.len()).unwrap_or(0);
        match ask(&raw mut count, infos.as_mut_ptr()) {
            Ok(()) => {
                infos.truncate(count as usize);
                return Some(infos);
            }
            Err(NvmlError::INSUFFICIENT_SIZE) if infos.len() < 65_536 => {
                infos.resize((count as usize).max(infos.len()) * 2, empty);
            }
            Err(_) => return None,
        }
    }
}

/// The entry for one process in the lists. An entry has all that the process has on an instance of the GPU, as the
/// resource manager sums by PID (open-gpu-kernel-modules, `gpu_rmapi.c`). Of entries for one instance the largest
/// counts; several instances add up. A listed process has a context, so 0 bytes mean that NVML does not tell.
fn entry_of<'i>(pid: c_uint, listed: impl Iterator<Item = &'i nvmlProcessInfo_t>) -> Listed {
    const NOT_AVAILABLE: u64 = u64::MAX;
    let mut of_instances: Vec<((c_uint, c_uint), u64)> = Vec::new();
    for info in listed.filter(|info| info.pid == pid) {
        let instance = (info.gpuInstanceId, info.computeInstanceId);
        match of_instances.iter_mut().find(|(known, _)| *known == instance) {
            Some((_, bytes)) => *bytes = (*bytes).max(info.usedGpuMemory),
            None => of_instances.push((instance, info.usedGpuMemory)),
        }
    }
    if of_instances.is_empty() {
        return Listed::Not;
    }
    let mut bytes = of_instances.iter().map(|(_, bytes)| *bytes);
    if bytes.clone().any(|bytes| matches!(bytes, 0 | NOT_AVAILABLE)) {
        return Listed::Unknown;
    }
    Listed::Bytes(bytes.try_fold(0, u64::checked_add).unwrap_or(u64::MAX))
}

/// Memory in use on the GPU, by all processes (bytes); `None` if NVML does not tell (GB10).
pub(super) fn gpu_used_bytes(handle: nvmlDevice_t) -> Option<u64> {
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: NVML writes the structure or nothing.
    unsafe { real::nvmlDeviceGetMemoryInfo(handle, &raw mut memory) }.ok()?;
    Some(memory.used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: c_uint, bytes: u64, instance: c_uint) -> nvmlProcessInfo_t {
        nvmlProcessInfo_t {
            pid,
            usedGpuMemory: bytes,
            gpuInstanceId: instance,
            computeInstanceId: NVML_NO_INSTANCE,
        }
    }

    #[test]
    fn zero_bytes_and_not_available_are_no_figures() {
        let listed = [entry(1, 0, 0), entry(2, u64::MAX, 0), entry(3, 7, 0)];
        assert_eq!(entry_of(1, listed.iter()), Listed::Unknown);
        assert_eq!(entry_of(2, listed.iter()), Listed::Unknown);
        assert_eq!(entry_of(3, listed.iter()), Listed::Bytes(7));
        assert_eq!(entry_of(4, listed.iter()), Listed::Not);
    }

    #[test]
    fn entries_of_one_instance_are_one_and_those_of_several_add_up() {
        let listed = [entry(1, 480, 1), entry(2, 9, 1), entry(1, 480, 1), entry(1, 20, 2)];
        assert_eq!(entry_of(1, listed.iter()), Listed::Bytes(500));
    }
}
