//! Processes that use a device: listed once their context exists, with their memory in NVML's granularity, as far as the
//! profile's driver reports them to the caller.

use crate::answer::{get, put, put_all, version};
use crate::state::{Device, Opened, device};
use vcuda_driver_api::prelude::*;
use vcuda_machine::{
    DriverProfile, Duplicates, NamespaceBytes, ProcessLists, ProcessMemory, ProcessUse, SeenAs,
};

exports! {
    nvmlDeviceGetComputeRunningProcesses =>
        |handle, count, infos| put_v1(handle, List::Compute, count, infos);
    nvmlDeviceGetComputeRunningProcesses_v2 | nvmlDeviceGetComputeRunningProcesses_v3 => compute_v2;
    // There are no graphics processes.
    nvmlDeviceGetGraphicsRunningProcesses =>
        |handle, count, infos| put_v1(handle, List::Graphics, count, infos);
    nvmlDeviceGetGraphicsRunningProcesses_v2 | nvmlDeviceGetGraphicsRunningProcesses_v3 =>
        |handle, count, infos| put_v2(handle, List::Graphics, count, infos);
    nvmlDeviceGetMPSComputeRunningProcesses => |handle, count, infos| put_v1(handle, List::Mps, count, infos);
    nvmlDeviceGetMPSComputeRunningProcesses_v2 | nvmlDeviceGetMPSComputeRunningProcesses_v3 =>
        |handle, count, infos| put_v2(handle, List::Mps, count, infos);
    nvmlDeviceGetRunningProcessDetailList => details;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Compute,
    Graphics,
    Mps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    pid: c_uint,
    bytes: u64,
}

/// The calling process, and what the profile's driver reports to it.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    driver: &'a DriverProfile,
    /// Whether the caller is in the host's PID namespace.
    is_on_host: bool,
}

impl<'a> Caller<'a> {
    pub(crate) fn of(opened: &'a Opened) -> Caller<'a> {
        Caller { driver: &opened.machine.config().driver, is_on_host: opened.machine.is_on_host() }
    }

    /// PID of a process as reported to the caller; `None` if it is not reported.
    pub(crate) fn number(&self, seen: SeenAs) -> Option<c_uint> {
        match self.driver.nvml_lists {
            _ if self.is_on_host => seen.here,
            ProcessLists::Translated => seen.here,
            ProcessLists::Host => Some(seen.on_host),
            ProcessLists::Nothing => None,
        }
    }

    /// Memory of a process as reported to the caller (bytes).
    fn memory(&self, process: &ProcessUse) -> u64 {
        let of_namespace =
            if self.is_on_host { NamespaceBytes::Told } else { self.driver.nvml_namespace_bytes };
        match (self.driver.nvml_process_memory, of_namespace) {
            (ProcessMemory::Told, NamespaceBytes::Told) => process.memory_reported_bytes,
            (ProcessMemory::Told, NamespaceBytes::Zero) => 0,
            _ => NVML_VALUE_NOT_AVAILABLE,
        }
    }

    /// The entries of a list. Error: `NVML_ERROR_NOT_SUPPORTED` if the driver lists no processes.
    fn entries(&self, list: List, processes: &[ProcessUse]) -> Result<Vec<Entry>, NvmlError> {
        if self.driver.nvml_process_memory == ProcessMemory::NotSupported {
            return Err(NvmlError::NOT_SUPPORTED);
        }
        let is_mps = list == List::Mps;
        if list == List::Graphics || is_mps != self.driver.nvml_mps_list {
            return Ok(Vec::new());
        }
        let is_doubled = !self.is_on_host && self.driver.nvml_duplicates == Duplicates::SameNamespacePid;
        let entry = |process: &ProcessUse| {
            Some(Entry { pid: self.number(process.seen)?, bytes: self.memory(process) })
        };
        Ok(by_pid(processes.iter().filter_map(entry))
            .into_iter()
            .flat_map(|entry| std::iter::repeat_n(entry, if is_doubled { 2 } else { 1 }))
            .collect())
    }
}

/// Merges entries of a process with several clients of the driver: it is listed once, with the sum of their memory
/// (docs/hardware.md, "a process listed twice").
fn by_pid(clients: impl Iterator<Item = Entry>) -> Vec<Entry> {
    let mut listed: Vec<Entry> = Vec::new();
    for client in clients {
        match listed.iter_mut().find(|known| known.pid == client.pid) {
            Some(known) => known.bytes = known.bytes.saturating_add(client.bytes),
            None => listed.push(client),
        }
    }
    listed
}

/// Entries of a device's list for the calling process.
fn entries(device: Device, list: List) -> Result<Vec<Entry>, NvmlError> {
    let processes = device.opened.machine.processes(device.index);
    Caller::of(device.opened).entries(list, &processes)
}

/// Writes a list in version 1: PID and memory.
fn put_v1(
    handle: nvmlDevice_t,
    list: List,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_v1_t,
) -> nvmlReturn_t {
    let entries = entries(device(handle)?, list)?;
    let entry = |entry: &Entry| nvmlProcessInfo_v1_t { pid: entry.pid, usedGpuMemory: entry.bytes };
    put_all(infos, count, &entries.iter().map(entry).collect::<Vec<_>>())
}

/// Writes a list in versions 2 and 3, which add the MIG instance (none).
fn put_v2(
    handle: nvmlDevice_t,
    list: List,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    let entries = entries(device(handle)?, list)?;
    let entry = |entry: &Entry| nvmlProcessInfo_t {
        pid: entry.pid,
        usedGpuMemory: entry.bytes,
        gpuInstanceId: NVML_NO_INSTANCE,
        computeInstanceId: NVML_NO_INSTANCE,
    };
    put_all(infos, count, &entries.iter().map(entry).collect::<Vec<_>>())
}

/// Compute processes, versions 2 and 3.
pub(crate) fn compute_v2(
    handle: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    put_v2(handle, List::Compute, count, infos)
}

/// `nvmlDeviceGetRunningProcessDetailList`: mode 0 lists compute processes, 1 graphics, 2 MPS.
fn details(handle: nvmlDevice_t, list: *mut nvmlProcessDetailList_t) -> nvmlReturn_t {
    let device = device(handle)?;
    // For this structure an unknown version is documented as an invalid argument.
    version(list, nvmlProcessDetailList_v1).map_err(|_| NvmlError::INVALID_ARGUMENT)?;
    let mut header = get(list)?;
    let asked = match header.mode {
        0 => List::Compute,
        1 => List::Graphics,
        2 => List::Mps,
        _ => return Err(NvmlError::INVALID_ARGUMENT),
    };
    let entry = |entry: Entry| nvmlProcessDetail_v1_t {
        pid: entry.pid,
        usedGpuMemory: entry.bytes,
        gpuInstanceId: NVML_NO_INSTANCE,
        computeInstanceId: NVML_NO_INSTANCE,
        usedGpuCcProtectedMemory: 0,
    };
    let entries: Vec<_> = entries(device, asked)?.into_iter().map(entry).collect();
    let outcome = put_all(header.procArray, &raw mut header.numProcArrayEntries, &entries);
    put(list, header)?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use vcuda_machine::Config;

    /// Answers to a caller inside a namespace or on the host. One process is in its namespace (PID 7, host PID 700),
    /// another is not (host PID 800).
    fn told(profile: &str, is_on_host: bool, list: List) -> Result<Vec<(c_uint, u64)>, NvmlError> {
        let driver = Config::of_profile(profile).unwrap().driver;
        let process = |pid, here, on_host| ProcessUse {
            pid,
            seen: SeenAs { here, on_host },
            memory_reported_bytes: 50,
            ..ProcessUse::default()
        };
        let processes = if is_on_host {
            [process(7, Some(700), 700), process(800, Some(800), 800)]
        } else {
            [process(7, Some(7), 700), process(800, None, 800)]
        };
        let caller = Caller { driver: &driver, is_on_host };
        let entries = caller.entries(list, &processes)?;
        Ok(entries.iter().map(|entry| (entry.pid, entry.bytes)).collect())
    }

    #[test]
    fn the_host_sees_everything_by_its_own_numbers() {
        for profile in ["h200-580", "a100-535-container", "t4-470", "gb10"] {
            let all = Ok(vec![(700, 50), (800, 50)]);
            assert_eq!(told(profile, true, List::Compute), all, "{profile}");
            assert_eq!(told(profile, true, List::Mps), Ok(Vec::new()), "{profile}");
            assert_eq!(told(profile, true, List::Graphics), Ok(Vec::new()), "{profile}");
        }
        assert_eq!(told("wsl2", true, List::Compute), Err(NvmlError::NOT_SUPPORTED));
    }

    #[test]
    fn a_container_is_told_what_the_profile_says() {
        for (profile, entries) in [
            ("h200-580", vec![(7, 50)]),
            ("a100-535-container", vec![(7, 0)]),
            ("t4-470", vec![(700, 50), (800, 50)]),
            ("gb10", vec![(7, 50), (7, 50)]),
            ("mps", vec![]),
        ] {
            assert_eq!(told(profile, false, List::Compute), Ok(entries), "{profile}");
        }
        assert_eq!(told("mps", false, List::Mps), Ok(vec![(7, 50)]));
        assert_eq!(told("mps", true, List::Mps), Ok(vec![(700, 50), (800, 50)]));
    }

    #[test]
    fn what_no_profile_says_can_be_said_too() {
        let process = ProcessUse {
            seen: SeenAs { here: Some(7), on_host: 700 },
            memory_reported_bytes: 50,
            ..ProcessUse::default()
        };
        let mut driver = Config::default().driver;
        let told = |driver: &DriverProfile| {
            let caller = Caller { driver, is_on_host: false };
            caller.entries(List::Compute, std::slice::from_ref(&process)).unwrap()
        };
        driver.nvml_namespace_bytes = NamespaceBytes::NotAvailable;
        assert_eq!(told(&driver)[0].bytes, NVML_VALUE_NOT_AVAILABLE);
        driver.nvml_namespace_bytes = NamespaceBytes::Zero;
        driver.nvml_process_memory = ProcessMemory::NotAvailable;
        assert_eq!(told(&driver)[0].bytes, NVML_VALUE_NOT_AVAILABLE);
        driver.nvml_lists = ProcessLists::Nothing;
        assert!(told(&driver).is_empty());
    }
}
