//! Connections of devices: PCIe, and NVLinks and NUMA nodes from `machine.toml`. Each device has a PCI root of its own.

use crate::answer::{get, put, put_all};
use crate::state::{Device, device, opened};
use vcuda_driver_api::prelude::*;

exports! {
    nvmlSystemGetTopologyGpuSet => near_cpu;
    nvmlDeviceGetTopologyCommonAncestor => |one, other, target|
        put(target, level(device(one)?, device(other)?));
    nvmlDeviceGetTopologyNearestGpus => nearest;
    nvmlDeviceGetP2PStatus => peer_status;
    nvmlDeviceGetCpuAffinity => cpu_affinity;
    nvmlDeviceGetCpuAffinityWithinScope => cpu_affinity_within;
    nvmlDeviceGetMemoryAffinity => memory_affinity;
}

fn level(one: Device, other: Device) -> nvmlGpuTopologyLevel_t {
    if one.index == other.index {
        nvmlGpuTopologyLevel_t::INTERNAL
    } else if one.config.numa_node == other.config.numa_node {
        nvmlGpuTopologyLevel_t::NODE
    } else {
        nvmlGpuTopologyLevel_t::SYSTEM
    }
}

/// The other devices at a level.
pub(crate) fn nearest(
    handle: nvmlDevice_t,
    wanted: nvmlGpuTopologyLevel_t,
    count: *mut c_uint,
    array: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let device = device(handle)?;
    let others = device.opened.devices().filter(|other| other.index != device.index);
    let near: Vec<_> = others.filter(|other| level(device, *other) == wanted).map(Device::handle).collect();
    put_devices(count, array, &near)
}

/// The devices near a CPU: all, as the computer's processors do not belong to the simulated nodes.
fn near_cpu(_cpu: c_uint, count: *mut c_uint, array: *mut nvmlDevice_t) -> nvmlReturn_t {
    let all: Vec<_> = opened()?.devices().map(Device::handle).collect();
    put_devices(count, array, &all)
}

/// Writes devices to the caller's array. A count of 0 queries their number.
fn put_devices(count: *mut c_uint, array: *mut nvmlDevice_t, devices: &[nvmlDevice_t]) -> nvmlReturn_t {
    let room = usize::try_from(get(count)?).unwrap_or(usize::MAX);
    if room == 0 {
        return put(count, c_uint::try_from(devices.len()).unwrap_or(c_uint::MAX));
    }
    put_all(array, count, devices.get(..room).unwrap_or(devices))
}

/// Peer access works over PCIe and NVLink, atomics only over NVLink.
pub(crate) fn peer_status(
    one: nvmlDevice_t,
    other: nvmlDevice_t,
    kind: nvmlGpuP2PCapsIndex_t,
    target: *mut nvmlGpuP2PStatus_t,
) -> nvmlReturn_t {
    let (one, other) = (device(one)?, device(other)?);
    let pairs = &one.opened.machine.config().nvlinks;
    let joins = |pair: &(usize, usize)| [*pair, (pair.1, pair.0)].contains(&(one.index, other.index));
    let status = match kind {
        nvmlGpuP2PCapsIndex_t::READ | nvmlGpuP2PCapsIndex_t::WRITE | nvmlGpuP2PCapsIndex_t::PCI => {
            nvmlGpuP2PStatus_t::OK
        }
        nvmlGpuP2PCapsIndex_t::NVLINK | nvmlGpuP2PCapsIndex_t::ATOMICS if pairs.iter().any(joins) => {
            nvmlGpuP2PStatus_t::OK
        }
        nvmlGpuP2PCapsIndex_t::NVLINK | nvmlGpuP2PCapsIndex_t::ATOMICS => nvmlGpuP2PStatus_t::NOT_SUPPORTED,
        _ => return Err(NvmlError::INVALID_ARGUMENT),
    };
    put(target, status)
}

/// All processors of the computer, as a bit set.
fn cpu_affinity(handle: nvmlDevice_t, words: c_uint, set: *mut u64) -> nvmlReturn_t {
    device(handle)?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    put_bits(set, words, 0..processors)
}

fn cpu_affinity_within(handle: nvmlDevice_t, words: c_uint, set: *mut u64, scope: c_uint) -> nvmlReturn_t {
    if scope > 1 {
        device(handle)?;
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    cpu_affinity(handle, words, set)
}

fn memory_affinity(handle: nvmlDevice_t, words: c_uint, set: *mut u64, scope: c_uint) -> nvmlReturn_t {
    let node = usize::try_from(device(handle)?.config.numa_node).unwrap_or(usize::MAX);
    if scope > 1 {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    put_bits(set, words, node..node + 1)
}

/// Sets these bits in a set of `words` words, and clears all others.
fn put_bits(set: *mut u64, words: c_uint, bits: std::ops::Range<usize>) -> nvmlReturn_t {
    if set.is_null() || words == 0 {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    for word in 0..usize::try_from(words).unwrap_or(0) {
        // Mask of this word's bits below `end`.
        let below = |end: usize| {
            let here = end.saturating_sub(word * 64).min(64);
            u64::MAX.checked_shr(u32::try_from(64 - here).unwrap_or(64)).unwrap_or(0)
        };
        // SAFETY: the caller says that the set has `words` words.
        let target = unsafe { set.add(word) };
        put(target, below(bits.end) & !below(bits.start))?;
    }
    Ok(())
}
