//! Multicast objects (CUDA Driver API, "Multicast Object Management").
//!
//! A multicast object has no memory of its own: the memory bound to it is charged as usual, and held while bound, as by a
//! mapping. To `cuMemMap` and `cuMemRelease` it is an allocation. docs/hardware.md, "multicast": it ends with its last
//! handle and mapping, and then releases the bound memory; both granularities are that of memory; binding a bound part
//! again is `CUDA_ERROR_INVALID_VALUE`. Objects are not passed to other processes.

use std::sync::Arc;

use crate::export::prelude::*;
use crate::object::memory::{self, Kind};
use crate::object::multicast::Team;
use crate::object::vmm::{GRANULARITY, Hold, Physical, mapping, physical};

export! {
    cuMulticastCreate => create;
    cuMulticastAddDevice => add_device;
    cuMulticastBindMem => |handle, offset, memory, at, bytes, flags|
        bind_memory(handle, physical(memory)?.device.ordinal, offset, memory, at, bytes, flags);
    cuMulticastBindMem_v2 => bind_memory;
    cuMulticastBindAddr => bind_address_v1;
    cuMulticastBindAddr_v2 => bind_address;
    cuMulticastUnbind => unbind;
    cuMulticastGetGranularity => get_granularity;
}

fn object(handle: CUmemGenericAllocationHandle) -> Result<Arc<Physical>, CUerror> {
    let object = physical(handle)?;
    object.team.is_some().then_some(object).ok_or(CUerror::INVALID_VALUE)
}

fn team(object: &Physical) -> Result<&Team, CUerror> {
    object.team.as_ref().ok_or(CUerror::INVALID_VALUE)
}

/// "size must be a multiple of" the minimum granularity; flags are for the future. Errors: `CUDA_ERROR_INVALID_VALUE`;
/// `CUDA_ERROR_NOT_SUPPORTED` without a capable visible device, and for handles for other processes.
fn check(properties: &CUmulticastObjectProp) -> CUresult {
    let known = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR.0 | CUmemAllocationHandleType::FABRIC.0;
    if properties.numDevices == 0
        || properties.flags != 0
        || properties.size == 0
        || !(properties.size as u64).is_multiple_of(GRANULARITY)
    {
        return Err(CUerror::INVALID_VALUE);
    }
    let is_able = |device: &crate::object::device::Device| device.config.capability().0 >= 9;
    if !process()?.devices.iter().any(is_able) || properties.handleTypes & !u64::from(known) != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    Ok(())
}

fn create(place: *mut CUmemGenericAllocationHandle, properties: *const CUmulticastObjectProp) -> CUresult {
    process()?;
    let properties = get(properties)?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    check(&properties)?;
    let team = Team::new(properties.numDevices as usize);
    put(place, Physical::create_unpaid(properties.size as u64, team)? as u64)
}

/// Adds a device. "CUDA_ERROR_INVALID_DEVICE if the device does not belong to the same clique"; a repeated or surplus
/// device is `CUDA_ERROR_INVALID_VALUE` (docs/hardware.md, "multicast").
fn add_device(handle: CUmemGenericAllocationHandle, ordinal: CUdevice) -> CUresult {
    let object = object(handle)?;
    let team = team(&object)?;
    if device(ordinal)?.config.capability().0 < 9 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    team.add(ordinal)
}

fn is_aligned(values: &[u64]) -> bool {
    values.iter().all(|value| value.is_multiple_of(GRANULARITY))
}

fn bind(object: &Physical, ordinal: i32, offset: usize, bytes: usize, hold: Option<Hold>) -> CUresult {
    let (offset, bytes) = (offset as u64, bytes as u64);
    let end = offset.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
    if bytes == 0 || !is_aligned(&[offset, bytes]) || end > object.bytes {
        return Err(CUerror::INVALID_VALUE);
    }
    team(object)?.bind(ordinal, offset, bytes, hold)
}

/// Binds memory. "The memory allocation must have been created on one of the devices that was added"; here on the named
/// device.
fn bind_memory(
    handle: CUmemGenericAllocationHandle,
    ordinal: CUdevice,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> CUresult {
    let object = object(handle)?;
    let memory = physical(memory)?;
    device(ordinal)?;
    let end = memory_offset.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
    let is_within = end as u64 <= memory.bytes && is_aligned(&[memory_offset as u64]);
    if flags != 0 || memory.team.is_some() || memory.device.ordinal != ordinal || !is_within {
        return Err(CUerror::INVALID_VALUE);
    }
    bind(&object, ordinal, offset, bytes, Some(Hold::new(memory)))
}

fn bind_address_v1(
    handle: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> CUresult {
    process()?;
    let ordinal = memory::find(address).ok_or(CUerror::INVALID_VALUE)?.device.ordinal;
    bind_address(handle, ordinal, offset, address, bytes, flags)
}

/// "The memory must have been allocated via cuMemCreate or cudaMallocAsync."
fn bind_address(
    handle: CUmemGenericAllocationHandle,
    ordinal: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    bytes: usize,
    flags: u64,
) -> CUresult {
    let object = object(handle)?;
    device(ordinal)?;
    let range = memory::find(address).ok_or(CUerror::INVALID_VALUE)?;
    let is_within = (address - range.base).checked_add(bytes as u64).is_some_and(|end| end <= range.bytes);
    let is_pool = matches!(range.kind, Kind::Pool(_));
    if flags != 0 || range.device.ordinal != ordinal || !is_within || (!is_pool && !is_aligned(&[address])) {
        return Err(CUerror::INVALID_VALUE);
    }
    let hold = match range.kind {
        Kind::Pool(_) => None,
        Kind::Mapped(_) => {
            let memory = mapping::physical_at(address)?;
            if memory.team.is_some() {
                return Err(CUerror::INVALID_VALUE);
            }
            Some(Hold::new(memory))
        }
        _ => return Err(CUerror::INVALID_VALUE),
    };
    bind(&object, ordinal, offset, bytes, hold)
}

/// Unbinds memory. "The mcOffset and the size must match the corresponding values specified during the bind call": else
/// `CUDA_ERROR_INVALID_VALUE` (docs/hardware.md, "multicast"; documented as undefined).
fn unbind(handle: CUmemGenericAllocationHandle, ordinal: CUdevice, offset: usize, bytes: usize) -> CUresult {
    let object = object(handle)?;
    device(ordinal)?;
    team(&object)?.unbind(ordinal, offset as u64, bytes as u64)
}

fn get_granularity(
    place: *mut usize,
    properties: *const CUmulticastObjectProp,
    option: CUmulticastGranularity_flags,
) -> CUresult {
    process()?;
    let properties = get(properties)?;
    // Any size is accepted, as programs query here what it must be a multiple of.
    check(&CUmulticastObjectProp { size: GRANULARITY as usize, ..properties })?;
    if option.0 > CUmulticastGranularity_flags::RECOMMENDED.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, GRANULARITY as usize)
}
