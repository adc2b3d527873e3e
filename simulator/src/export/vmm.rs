//! Virtual memory management.

use std::os::fd::IntoRawFd;

use crate::export::prelude::*;
use crate::object::memory::READ_WRITE;
use crate::object::vmm::{self, GRANULARITY, Physical, mapping, physical};

export! {
    cuMemAddressReserve => reserve;
    cuMemAddressFree => |base, bytes| process().and_then(|_| mapping::free(base, bytes as u64));
    cuMemCreate => create;
    cuMemRelease => vmm::release;
    cuMemMap => map;
    cuMemUnmap => |base, bytes| process().and_then(|_| mapping::unmap(base, bytes as u64));
    cuMemSetAccess => set_access;
    cuMemExportToShareableHandle => export_handle;
    cuMemImportFromShareableHandle => import_handle;
    cuMemGetAllocationGranularity => get_granularity;
    cuMemGetAllocationPropertiesFromHandle => |place, handle| put(place, physical(handle)?.properties);
    cuMemRetainAllocationHandle => retain;
}

fn is_whole(bytes: usize) -> bool {
    bytes != 0 && (bytes as u64).is_multiple_of(GRANULARITY)
}

/// Checks for pinned memory on a visible device. Errors: `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_INVALID_DEVICE`;
/// `CUDA_ERROR_NOT_SUPPORTED` for memory of the host, and handle types other than file descriptors.
fn check(properties: &CUmemAllocationProp) -> CUresult {
    if properties.r#type != CUmemAllocationType::PINNED {
        return Err(CUerror::INVALID_VALUE);
    }
    match properties.location.r#type {
        CUmemLocationType::DEVICE => drop(device(properties.location.id)?),
        CUmemLocationType::HOST | CUmemLocationType::HOST_NUMA | CUmemLocationType::HOST_NUMA_CURRENT => {
            return Err(CUerror::NOT_SUPPORTED);
        }
        _ => return Err(CUerror::INVALID_VALUE),
    }
    let only_files = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR.0;
    if properties.requestedHandleTypes.0 & !only_files != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    Ok(())
}

/// "size must be a multiple of the host page size"; here of the granularity (docs/hardware.md, "mapped memory": the
/// same for both).
fn reserve(
    place: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: u64,
) -> CUresult {
    process()?;
    let is_aligned = alignment == 0 || alignment.is_power_of_two();
    if !is_possible(place) || flags != 0 || !is_whole(bytes) || !is_aligned {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, mapping::reserve(bytes as u64, alignment as u64, hint)?)
}

/// "size must be a multiple of the granularity"; flags must be 0.
fn create(
    place: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    properties: *const CUmemAllocationProp,
    flags: u64,
) -> CUresult {
    process()?;
    let properties = get(properties)?;
    if !is_possible(place) || flags != 0 || !is_whole(bytes) {
        return Err(CUerror::INVALID_VALUE);
    }
    check(&properties)?;
    let device = device(properties.location.id)?;
    put(place, Physical::create(device, bytes as u64, properties)? as u64)
}

/// "offset: must be zero"; "no access flags are set".
fn map(
    base: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> CUresult {
    let physical = physical(handle)?;
    if flags != 0 || offset != 0 || !is_whole(bytes) || !base.is_multiple_of(GRANULARITY) {
        return Err(CUerror::INVALID_VALUE);
    }
    if let Some(team) = &physical.team {
        team.wait_for_all();
    }
    mapping::map(base, bytes as u64, &physical)
}

fn set_access(
    base: CUdeviceptr,
    bytes: usize,
    descriptions: *const CUmemAccessDesc,
    count: usize,
) -> CUresult {
    process()?;
    let descriptions = get_array(descriptions, count)?;
    let flags = [0, CUmemAccess_flags::READ.0, READ_WRITE];
    for description in &descriptions {
        if description.location.r#type != CUmemLocationType::DEVICE || !flags.contains(&description.flags.0) {
            return Err(CUerror::INVALID_VALUE);
        }
        device(description.location.id)?;
    }
    for description in &descriptions {
        mapping::set_access(base, bytes as u64, description.location.id, description.flags.0)?;
    }
    Ok(())
}

/// "If requestedHandleTypes did not contain the type, the export fails" (`CUDA_ERROR_INVALID_VALUE`).
fn export_handle(
    place: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    let physical = physical(handle)?;
    // File descriptors are the only type that can have been requested, see `check`.
    let is_requested = physical.properties.requestedHandleTypes.0 & kind.0 == kind.0;
    if flags != 0 || !is_possible(place) || kind == CUmemAllocationHandleType::NONE || !is_requested {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place.cast::<c_int>(), physical.export()?.into_raw_fd())
}

/// Imports a descriptor. It is passed as the pointer argument, and stays the caller's.
fn import_handle(
    place: *mut CUmemGenericAllocationHandle,
    handle: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    process()?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    only_descriptors(kind)?;
    put(place, vmm::import(handle as usize as c_int)? as u64)
}

/// Checks that the handle type is a file descriptor. "If the current process cannot support the memory described by
/// this shareable handle, this API will error as CUDA_ERROR_NOT_SUPPORTED": handles of Windows and of a fabric. Errors:
/// `CUDA_ERROR_NOT_SUPPORTED`; `CUDA_ERROR_INVALID_VALUE` for an unknown type.
pub(crate) fn only_descriptors(kind: CUmemAllocationHandleType) -> CUresult {
    use CUmemAllocationHandleType as T;
    match kind {
        T::POSIX_FILE_DESCRIPTOR => Ok(()),
        T::WIN32 | T::WIN32_KMT | T::FABRIC => Err(CUerror::NOT_SUPPORTED),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Granularity: the minimum and the recommended one are equal.
fn get_granularity(
    place: *mut usize,
    properties: *const CUmemAllocationProp,
    option: CUmemAllocationGranularity_flags,
) -> CUresult {
    process()?;
    check(&get(properties)?)?;
    if option.0 > CUmemAllocationGranularity_flags::RECOMMENDED.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, GRANULARITY as usize)
}

/// "The handle is guaranteed to be the same handle value used to map the memory."
fn retain(place: *mut CUmemGenericAllocationHandle, address: *mut c_void) -> CUresult {
    process()?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, mapping::retain_at(address as u64)? as u64)
}
