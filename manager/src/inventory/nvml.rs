//! NVML's answers as plain data: some are read at each opening, some at each look.

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, Utilization};
use nvml_wrapper::{Device, Nvml};
use vcuda_driver_open::{MemoryLimits, memory_limits, set_memory_limits};
use vcuda_region::GpuUuid;

use super::owner::Limited;
use super::tracker::{Facts, Load, Opened};
use super::{Settings, topology};
use crate::gpu::{Gpu, Health, MigInstance, Sensors};

#[derive(Debug)]
pub(super) struct DeviceHandle<'nvml> {
    pub(super) uuid: GpuUuid,
    pub(super) device: Device<'nvml>,
}

/// Reads all facts that stay while NVML is open, and opens the GPUs' handles.
///
/// `by_index` has the GPUs by NVML's index at the opening before, and then those of this one.
pub(super) fn open<'nvml>(
    nvml: &'nvml Nvml,
    settings: &Settings,
    by_index: &mut Vec<Option<GpuUuid>>,
) -> Result<(Opened, Vec<DeviceHandle<'nvml>>), NvmlError> {
    let mut opened = Opened {
        driver_version: nvml.sys_driver_version()?,
        cuda_version: cuda_version(nvml),
        ..Opened::default()
    };
    let mut handles = Vec::new();
    let count = nvml.device_count()?;
    // With another number of GPUs, the indexes have moved.
    let before = std::mem::take(by_index);
    let is_same = u32::try_from(before.len()) == Ok(count);
    let before = before.into_iter().filter(|_| is_same).chain(std::iter::repeat(None));
    for (index, before) in (0..count).zip(before) {
        let identified = nvml.device_by_index(index).and_then(|device| identify(device));
        by_index.push(identified.as_ref().map_or(before, |handle| Some(handle.uuid)));
        match identified {
            Ok(handle) => match facts(&handle, settings) {
                Ok(facts) => {
                    opened.gpus.push(facts);
                    handles.push(handle);
                }
                Err(why) => opened.missing.push(format!("{} cannot be asked: {why}", handle.uuid)),
            },
            Err(error) => {
                let uuid = before.map_or_else(String::new, |uuid| format!(" ({uuid})"));
                opened.missing.push(format!("NVML's GPU {index}{uuid} cannot be opened: {error}"));
            }
        }
    }
    link(&mut opened.gpus, &handles);
    opened.has_memory_limits = handles.first().map(has_memory_limits);
    opened.mig_instances = mig_instances(&opened.gpus, &handles);
    Ok((opened, handles))
}

/// The newest CUDA version that the driver supports, such as `12.8`; empty if NVML does not tell.
fn cuda_version(nvml: &Nvml) -> String {
    nvml.sys_cuda_driver_version()
        .map(|number| format!("{}.{}", number / 1000, number % 1000 / 10))
        .unwrap_or_default()
}

fn identify(device: Device<'_>) -> Result<DeviceHandle<'_>, NvmlError> {
    let uuid = device.uuid()?.parse().map_err(|_| NvmlError::NotFound)?;
    Ok(DeviceHandle { uuid, device })
}

struct Memory {
    total_bytes: u64,
    reserved_bytes: u64,
    used_bytes: u64,
}

/// The reason why a GPU's facts are not known.
#[derive(Debug, thiserror::Error)]
enum FactsError {
    #[error(transparent)]
    Nvml(#[from] NvmlError),
    /// Neither NVML nor the CUDA driver tells the memory.
    #[error("NVML does not tell how much memory it has, and the CUDA driver neither: {0}")]
    Memory(String),
}

/// Memory as NVML tells it. If it does not (GB10), the total is the CUDA driver's and the used part NVML's sum over the
/// processes.
fn memory(handle: &DeviceHandle<'_>, cuda: Option<&Path>) -> Result<Memory, FactsError> {
    if let Some(told) = optional(handle.device.memory_info())? {
        return Ok(Memory { total_bytes: told.total, reserved_bytes: told.reserved, used_bytes: told.used });
    }
    let gpus =
        vcuda_driver_open::memory_of_gpus(cuda).map_err(|problem| FactsError::Memory(problem.to_string()))?;
    let own = gpus.iter().find(|gpu| gpu.uuid == *handle.uuid.as_bytes());
    let own = own.ok_or_else(|| FactsError::Memory("it shows no such GPU".to_owned()))?;
    Ok(Memory { total_bytes: own.total_bytes, reserved_bytes: 0, used_bytes: used_by_processes(handle)? })
}

pub(super) fn memory_used(handle: &DeviceHandle<'_>) -> Result<u64, NvmlError> {
    match optional(handle.device.memory_info())? {
        Some(memory) => Ok(memory.used),
        None => used_by_processes(handle),
    }
}

/// NVML's sum of the memory of the processes on a GPU (bytes).
fn used_by_processes(handle: &DeviceHandle<'_>) -> Result<u64, NvmlError> {
    let processes = optional(processes(handle))?.unwrap_or_default();
    Ok(processes.iter().filter_map(|(_, bytes)| *bytes).sum())
}

/// Whether the driver has memory limits of cgroups, by its answer about any.
fn has_memory_limits(handle: &DeviceHandle<'_>) -> bool {
    let answer = memory_limits(&handle.device, Path::new("/sys/fs/cgroup"));
    answer != Err(vcuda_driver_api::NvmlError::FUNCTION_NOT_FOUND)
}

/// Sets the driver's memory limits of a cgroup, if any are given, and reads what holds.
pub(super) fn limits(handle: &DeviceHandle<'_>, cgroup: &Path, limits: Option<MemoryLimits>) -> Limited {
    limits.map_or(Ok(()), |limits| set_memory_limits(&handle.device, cgroup, limits))?;
    memory_limits(&handle.device, cgroup)
}

fn facts(handle: &DeviceHandle<'_>, settings: &Settings) -> Result<Facts, FactsError> {
    let device = &handle.device;
    let sysfs = settings.sysfs.as_path();
    let memory = memory(handle, settings.cuda_library.as_deref())?;
    let pci_bus_id = topology::sysfs_name(&device.pci_info()?.bus_id);
    let capability = optional(device.cuda_compute_capability())?
        .and_then(|known| Some((u32::try_from(known.major).ok()?, u32::try_from(known.minor).ok()?)));
    let gpu = Gpu {
        uuid: handle.uuid,
        name: device.name()?,
        memory_total_bytes: memory.total_bytes,
        memory_reserved_bytes: memory.reserved_bytes,
        memory_used_bytes: memory.used_bytes,
        utilization_percent: None,
        sensors: Sensors::default(),
        is_persistent: None,
        multiprocessors: multiprocessors(device, capability)?,
        compute_capability: capability,
        numa_node: numa_node(device, sysfs, &pci_bus_id)?,
        pci_root: topology::pci_root(sysfs, &pci_bus_id).unwrap_or_default(),
        pci_bus_id,
        minor_number: optional(device.minor_number())?,
        nvlinks: Vec::new(),
        health: Health::Healthy,
    };
    let is_mig = optional(device.mig_mode())?.is_some_and(|mode| mode.current != 0);
    Ok(Facts { gpu, is_mig })
}

/// The answer, or `None` if the GPU, driver or NVML does not support the query.
fn optional<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        Ok(known) => Ok(Some(known)),
        Err(
            NvmlError::NotSupported
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_)
            | NvmlError::NoPermission
            | NvmlError::UnexpectedVariant(_),
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

fn multiprocessors(device: &Device<'_>, capability: Option<(u32, u32)>) -> Result<Option<u32>, NvmlError> {
    if let Some(attributes) = optional(device.attributes())? {
        return Ok(Some(attributes.multiprocessor_count));
    }
    let lanes = capability.and_then(topology::cores_per_multiprocessor);
    Ok(lanes.zip(optional(device.num_cores())?).map(|(lanes, cores)| cores / lanes))
}

/// NUMA node from `/sys`, else from NVML (up to 1024 nodes).
fn numa_node(device: &Device<'_>, sysfs: &Path, bus_id: &str) -> Result<Option<u32>, NvmlError> {
    /// `NVML_AFFINITY_SCOPE_NODE`.
    const NODE: u32 = 0;
    if let Some(node) = topology::numa_node(sysfs, bus_id) {
        return Ok(Some(node));
    }
    let nodes = optional(device.memory_affinity(16, NODE))?;
    Ok(nodes.and_then(|nodes| topology::lowest(&nodes)))
}

/// Fills in the NVLinks of each GPU; GPUs at one switch are peers of each other.
fn link(gpus: &mut [Facts], handles: &[DeviceHandle<'_>]) {
    for (facts, handle) in gpus.iter_mut().zip(handles) {
        let others = handles.iter().filter(|other| other.uuid != handle.uuid);
        let linked = others.filter(|other| {
            let status = handle.device.p2p_status(&other.device, P2pCapabilitiesIndex::NvLink);
            matches!(status, Ok(P2pStatus::Ok))
        });
        facts.gpu.nvlinks = linked.map(|other| other.uuid).collect();
    }
}

fn mig_instances(gpus: &[Facts], handles: &[DeviceHandle<'_>]) -> Vec<MigInstance> {
    let divided = gpus.iter().zip(handles).filter(|(facts, _)| facts.is_mig);
    divided
        .flat_map(|(_, handle)| {
            let places = handle.device.mig_device_count().unwrap_or(0);
            // A MIG slot without an instance answers "not found".
            (0..places).filter_map(|place| {
                let instance = handle.device.mig_device_by_index(place).ok()?;
                Some(MigInstance {
                    uuid: instance.uuid().ok()?,
                    gpu: handle.uuid,
                    name: instance.name().unwrap_or_default(),
                    memory_total_bytes: instance.memory_info().map_or(0, |memory| memory.total),
                })
            })
        })
        .collect()
}

/// Current load of a GPU.
pub(super) fn look(handle: &DeviceHandle<'_>) -> Result<Load, NvmlError> {
    let rates = optional(handle.device.utilization_rates())?;
    Ok(Load {
        memory_used_bytes: memory_used(handle)?,
        utilization_percent: rates.as_ref().map(|rates| rates.gpu.min(100)),
        sensors: sensors(&handle.device, rates.as_ref()),
        is_persistent: handle.device.is_in_persistent_mode().ok(),
        is_slowed_by_heat: is_slowed_by_heat(&handle.device),
    })
}

/// Whether the hardware has reduced the clocks because of the temperature (`nvmlClocksEventReasonHwThermalSlowdown`). `false` where
/// NVML does not tell.
fn is_slowed_by_heat(device: &Device<'_>) -> bool {
    let reasons = device.current_throttle_reasons();
    reasons.is_ok_and(|reasons| reasons.contains(ThrottleReasons::HW_THERMAL_SLOWDOWN))
}

/// Readings of the sensors. A failure is no sign of ill health: it only means that a reading is not known.
fn sensors(device: &Device<'_>, rates: Option<&Utilization>) -> Sensors {
    Sensors {
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        power_draw_mw: device.power_usage().ok(),
        power_limit_mw: device.enforced_power_limit().ok(),
        memory_utilization_percent: rates.map(|rates| rates.memory.min(100)),
    }
}

/// Processes on a GPU by host PID, each once.
pub(super) fn processes(handle: &DeviceHandle<'_>) -> Result<Vec<(u32, Option<u64>)>, NvmlError> {
    let device = &handle.device;
    let compute = device.running_compute_processes()?;
    let graphics = optional(device.running_graphics_processes())?.unwrap_or_default();
    let clients_of_mps = optional(device.mps_running_compute_processes())?.unwrap_or_default();
    Ok(once_each([compute, graphics, clients_of_mps].into_iter().flatten()))
}

/// Age of a process's sample beside the newest one of all from which on it tells nothing of now (microseconds).
const OLD_US: u64 = 3_000_000;

/// Utilisation of each process that had work lately, by host PID (percent): its largest sample.
pub(super) fn utilization(handle: &DeviceHandle<'_>) -> Result<Vec<(u32, u32)>, NvmlError> {
    let device = &handle.device;
    let samples = match device.process_utilization_stats(None) {
        // There is no sample; that no process had work says the GPU's own figure.
        Err(NvmlError::NotFound) if device.utilization_rates()?.gpu == 0 => Vec::new(),
        samples => samples?,
    };
    let newest_us = samples.iter().map(|sample| sample.timestamp).max().unwrap_or(0);
    let mut percent_of: BTreeMap<u32, u32> = BTreeMap::new();
    for sample in samples {
        if sample.timestamp.saturating_add(OLD_US) >= newest_us {
            let percent = percent_of.entry(sample.pid).or_default();
            *percent = (*percent).max(sample.sm_util);
        }
    }
    Ok(percent_of.into_iter().collect())
}

/// Merges the entries of a process. It may be in several lists, and twice in one, each time with all of its memory on a MIG
/// instance: per instance the largest figure counts, and instances add up.
fn once_each(processes: impl Iterator<Item = ProcessInfo>) -> Vec<(u32, Option<u64>)> {
    let mut of_instances = BTreeMap::new();
    for process in processes {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let instance = (process.pid, process.gpu_instance_id, process.compute_instance_id);
        let known: &mut Option<u64> = of_instances.entry(instance).or_default();
        *known = (*known).max(bytes);
    }
    let mut bytes_of: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for ((pid, _, _), bytes) in of_instances {
        let sum = bytes_of.entry(pid).or_insert(Some(0));
        *sum = sum.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
    }
    bytes_of.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_two_lists_counts_once() {
        let process = |pid, used_gpu_memory| ProcessInfo {
            pid,
            used_gpu_memory,
            gpu_instance_id: None,
            compute_instance_id: None,
        };
        let lists = [
            process(2, UsedGpuMemory::Used(5)),
            process(1, UsedGpuMemory::Unavailable),
            process(2, UsedGpuMemory::Used(5)),
            process(1, UsedGpuMemory::Used(0)),
            process(3, UsedGpuMemory::Unavailable),
        ];
        assert_eq!(once_each(lists.into_iter()), [(1, Some(0)), (2, Some(5)), (3, None)]);
    }

    #[test]
    fn what_a_process_has_on_several_instances_adds_up() {
        let process = |instance, bytes| ProcessInfo {
            pid: 7,
            used_gpu_memory: UsedGpuMemory::Used(bytes),
            gpu_instance_id: Some(instance),
            compute_instance_id: Some(0),
        };
        let lists = [process(1, 480), process(1, 480), process(2, 30)];
        assert_eq!(once_each(lists.into_iter()), [(7, Some(510))]);
    }
}
