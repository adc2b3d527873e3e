//! Processes on a GPU: the tenant's own, with the ledger's figures.

use vcuda_driver_api::prelude::*;

use super::array::{get_all, is_usable, put_all};
use super::{Part, Process};
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled, real};

/// An entry of a list, of either version.
pub(in super::super) trait Entry: Copy {
    /// The entry for no process.
    const NONE: Self;
    /// Process of the entry.
    fn pid(&self) -> c_uint;
    /// The entry with the figures of `process`.
    fn with_figures_of(self, process: &Process) -> Self;
}

impl Entry for nvmlProcessInfo_v1_t {
    const NONE: Self = Self { pid: 0, usedGpuMemory: 0 };
    fn pid(&self) -> c_uint {
        self.pid
    }
    fn with_figures_of(self, process: &Process) -> Self {
        Self { pid: process.pid, usedGpuMemory: process.used_bytes }
    }
}

impl Entry for nvmlProcessInfo_t {
    const NONE: Self = Self {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: NVML_NO_INSTANCE,
        computeInstanceId: NVML_NO_INSTANCE,
    };
    fn pid(&self) -> c_uint {
        self.pid
    }
    fn with_figures_of(self, process: &Process) -> Self {
        Self { pid: process.pid, usedGpuMemory: process.used_bytes, ..self }
    }
}

/// Lists the tenant's processes. NVML is not asked: if it lists no process (another PID namespace, WSL 2) the ledger
/// knows.
fn own<E: Entry>(device: nvmlDevice_t, count: *mut c_uint, infos: *mut E) -> Handled<NvmlError> {
    let part = Part::of_device(device)?;
    Bypass::BadArgument.when(!is_usable(count, infos))?;
    let entries: Vec<E> = part.processes().iter().map(|process| E::NONE.with_figures_of(process)).collect();
    Ok(put_all(count, infos, &entries)?)
}

/// Lists those of NVML's processes that are the tenant's own.
fn among<E: Entry>(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut E,
    ask: impl FnMut(*mut c_uint, *mut E) -> nvmlReturn_t,
) -> Handled<NvmlError> {
    let part = Part::of_device(device)?;
    Bypass::BadArgument.when(!is_usable(count, infos))?;
    let own = part.processes();
    let listed = get_all(E::NONE, ask)?;
    let entries: Vec<E> = listed
        .into_iter()
        .filter_map(|entry| {
            let process = own.iter().find(|process| process.pid == entry.pid())?;
            Some(entry.with_figures_of(process))
        })
        .collect();
    Ok(put_all(count, infos, &entries)?)
}

/// `nvmlDeviceGetComputeRunningProcesses`.
pub(in super::super) fn compute_v1(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Handled<NvmlError> {
    own(device, count, infos)
}

/// `nvmlDeviceGetComputeRunningProcesses_v2`, `_v3`, whose entries have one shape.
pub(in super::super) fn compute(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> Handled<NvmlError> {
    own(device, count, infos)
}

/// `nvmlDeviceGetGraphicsRunningProcesses`.
pub(in super::super) fn graphics_v1(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Handled<NvmlError> {
    among(device, count, infos, |count, infos| {
        // SAFETY: room for as many entries as it says.
        unsafe { real::nvmlDeviceGetGraphicsRunningProcesses(device, count, infos) }
    })
}

/// `nvmlDeviceGetGraphicsRunningProcesses_v2`, `_v3`.
pub(in super::super) fn graphics(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> Handled<NvmlError> {
    among(device, count, infos, |count, infos| {
        // SAFETY: as above.
        let newest = unsafe { real::nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, infos) };
        if newest != Err(NvmlError::FUNCTION_NOT_FOUND) {
            return newest;
        }
        // SAFETY: as above.
        unsafe { real::nvmlDeviceGetGraphicsRunningProcesses_v2(device, count, infos) }
    })
}

/// `nvmlDeviceGetMPSComputeRunningProcesses`.
pub(in super::super) fn mps_v1(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> Handled<NvmlError> {
    among(device, count, infos, |count, infos| {
        // SAFETY: as above.
        unsafe { real::nvmlDeviceGetMPSComputeRunningProcesses(device, count, infos) }
    })
}

/// `nvmlDeviceGetMPSComputeRunningProcesses_v2`, `_v3`.
pub(in super::super) fn mps(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> Handled<NvmlError> {
    among(device, count, infos, |count, infos| {
        // SAFETY: as above.
        let newest = unsafe { real::nvmlDeviceGetMPSComputeRunningProcesses_v3(device, count, infos) };
        if newest != Err(NvmlError::FUNCTION_NOT_FOUND) {
            return newest;
        }
        // SAFETY: as above.
        unsafe { real::nvmlDeviceGetMPSComputeRunningProcesses_v2(device, count, infos) }
    })
}

/// `nvmlDeviceGetRunningProcessDetailList`: modes 0 (compute), 1 (graphics) and 2 (MPS).
pub(in super::super) fn details(
    _call: &Call<'_, nvmlReturn_t>,
    device: nvmlDevice_t,
    list: *mut nvmlProcessDetailList_t,
) -> Handled<NvmlError> {
    const NONE: nvmlProcessDetail_v1_t = nvmlProcessDetail_v1_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: NVML_NO_INSTANCE,
        computeInstanceId: NVML_NO_INSTANCE,
        usedGpuCcProtectedMemory: 0,
    };
    let usable = |header: &nvmlProcessDetailList_t| {
        header.version == nvmlProcessDetailList_v1
            && header.mode <= 2
            && is_usable(&raw const header.numProcArrayEntries, header.procArray)
    };
    let header = peek(list.cast_const()).filter(usable);
    let mut header = header.ok_or(Bypass::BadArgument)?;
    let part = Part::of_device(device)?;
    let own = part.processes();
    let told = |entry: nvmlProcessDetail_v1_t, process: &Process| nvmlProcessDetail_v1_t {
        pid: process.pid,
        usedGpuMemory: process.used_bytes,
        ..entry
    };
    let entries: Vec<_> = if header.mode == 0 {
        own.iter().map(|process| told(NONE, process)).collect()
    } else {
        let listed = get_all(NONE, |count, array| {
            // SAFETY: `get_all` gives a number.
            let room = unsafe { count.read() };
            let mut asked = nvmlProcessDetailList_t { numProcArrayEntries: room, procArray: array, ..header };
            // SAFETY: a list of this version, with room for as many entries as it says.
            let status = unsafe { real::nvmlDeviceGetRunningProcessDetailList(device, &raw mut asked) };
            // SAFETY: as above.
            unsafe { count.write(asked.numProcArrayEntries) };
            status
        })?;
        let ours = |entry: nvmlProcessDetail_v1_t| {
            let process = own.iter().find(|process| process.pid == entry.pid)?;
            Some(told(entry, process))
        };
        listed.into_iter().filter_map(ours).collect()
    };
    let status = put_all(&raw mut header.numProcArrayEntries, header.procArray, &entries);
    // SAFETY: readable above, and NVML would write here too.
    unsafe { list.write_unaligned(header) };
    Ok(status?)
}
