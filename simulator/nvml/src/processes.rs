//! Which processes use a device: each is listed once its context exists, with its memory in NVML's granularity.

use crate::answer::{get, put, put_all, version};
use crate::state::device;
use std::ffi::c_uint;
use vcuda_driver_api::nvml::{
    NVML_NO_INSTANCE, nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_t,
    nvmlProcessDetailList_v1, nvmlProcessInfo_t, nvmlProcessInfo_v1_t,
};
use vcuda_driver_api::{NvmlError, nvmlReturn_t};
use vcuda_machine::ProcessUse;

fn processes(handle: nvmlDevice_t) -> Result<Vec<ProcessUse>, NvmlError> {
    let device = device(handle)?;
    Ok(device.opened.machine.processes(device.index))
}

/// Version 1: process and memory.
pub(crate) fn compute(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> nvmlReturn_t {
    let entry = |process: &ProcessUse| nvmlProcessInfo_v1_t {
        pid: process.pid,
        usedGpuMemory: process.memory_reported_bytes,
    };
    put_all(
        infos,
        count,
        &processes(handle)?.iter().map(entry).collect::<Vec<_>>(),
    )
}

/// Versions 2 and 3: with the MIG instance, which is none.
pub(crate) fn compute_v2(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    let entry = |process: &ProcessUse| nvmlProcessInfo_t {
        pid: process.pid,
        usedGpuMemory: process.memory_reported_bytes,
        gpuInstanceId: NVML_NO_INSTANCE,
        computeInstanceId: NVML_NO_INSTANCE,
    };
    put_all(
        infos,
        count,
        &processes(handle)?.iter().map(entry).collect::<Vec<_>>(),
    )
}

/// Graphics and MPS processes, version 1: there are none.
pub(crate) fn none(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> nvmlReturn_t {
    device(handle)?;
    put_all(infos, count, &[])
}

/// Graphics and MPS processes, versions 2 and 3: there are none.
pub(crate) fn none_v2(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    device(handle)?;
    put_all(infos, count, &[])
}

/// `nvmlDeviceGetRunningProcessDetailList`: mode 0 lists compute processes, 1 graphics, 2 MPS.
pub(crate) fn details(handle: nvmlDevice_t, list: *mut nvmlProcessDetailList_t) -> nvmlReturn_t {
    let device = device(handle)?;
    // Here an unknown version is documented as an invalid argument.
    version(list, nvmlProcessDetailList_v1).map_err(|_| NvmlError::INVALID_ARGUMENT)?;
    let mut header = get(list)?;
    let processes = match header.mode {
        0 => device.opened.machine.processes(device.index),
        1 | 2 => Vec::new(),
        _ => return Err(NvmlError::INVALID_ARGUMENT),
    };
    let entry = |process: &ProcessUse| nvmlProcessDetail_v1_t {
        pid: process.pid,
        usedGpuMemory: process.memory_reported_bytes,
        gpuInstanceId: NVML_NO_INSTANCE,
        computeInstanceId: NVML_NO_INSTANCE,
        usedGpuCcProtectedMemory: 0,
    };
    let entries: Vec<_> = processes.iter().map(entry).collect();
    let outcome = put_all(header.procArray, &raw mut header.numProcArrayEntries, &entries);
    put(list, header)?;
    outcome
}
