//! Managed memory: advice, prefetch and range attributes (CUDA Driver API, "Unified Addressing"; CUDA C++ Programming
//! Guide, "Unified Memory Programming").
//!
//! Managed memory stays on its device here: a prefetch has no effect, and advice is only checked.

use core::ffi::{c_int, c_uint, c_void};

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{get_array, put, put_at};
use crate::object::memory::{self, Kind};
use crate::object::process::{device, process};
use crate::semantics::stream::{Null, resolve};

export! {
    cuMemAdvise => advise_v1;
    cuMemAdvise_v2 => advise;
    cuMemPrefetchAsync => prefetch_v1::<false>;
    cuMemPrefetchAsync_ptsz => prefetch_v1::<true>;
    cuMemPrefetchAsync_v2 => prefetch::<false>;
    cuMemPrefetchAsync_v2_ptsz => prefetch::<true>;
    cuMemRangeGetAttribute => get_attribute;
    cuMemRangeGetAttributes => get_attributes;
}

/// Checks a range of managed memory.
fn check_range(address: u64, bytes: usize) -> CUresult {
    let is_managed = memory::find(address).is_some_and(|range| range.kind == Kind::Managed);
    if bytes == 0 || !is_managed || !memory::is_usable(address, bytes as u64) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(())
}

/// Checks that a location is an existing device or the host.
pub(crate) fn check_location(location: CUmemLocation) -> CUresult {
    match location.r#type {
        CUmemLocationType::DEVICE => device(location.id).map(drop),
        CUmemLocationType::HOST | CUmemLocationType::HOST_NUMA | CUmemLocationType::HOST_NUMA_CURRENT => {
            Ok(())
        }
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Location in the first forms, where `CU_DEVICE_CPU` stands for the host.
fn location_of(ordinal: CUdevice) -> CUmemLocation {
    let kind = if ordinal == CU_DEVICE_CPU { CUmemLocationType::HOST } else { CUmemLocationType::DEVICE };
    CUmemLocation { r#type: kind, id: ordinal }
}

fn advise_v1(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, ordinal: CUdevice) -> CUresult {
    advise(address, bytes, advice, location_of(ordinal))
}

/// Gives advice. The location is checked only for advice that uses it.
fn advise(address: CUdeviceptr, bytes: usize, advice: CUmem_advise, location: CUmemLocation) -> CUresult {
    process()?;
    check_range(address, bytes)?;
    match advice {
        CUmem_advise::SET_READ_MOSTLY
        | CUmem_advise::UNSET_READ_MOSTLY
        | CUmem_advise::UNSET_PREFERRED_LOCATION => Ok(()),
        CUmem_advise::SET_PREFERRED_LOCATION
        | CUmem_advise::SET_ACCESSED_BY
        | CUmem_advise::UNSET_ACCESSED_BY => check_location(location),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

fn prefetch_v1<const PER_THREAD: bool>(
    address: CUdeviceptr,
    bytes: usize,
    ordinal: CUdevice,
    stream: CUstream,
) -> CUresult {
    prefetch::<PER_THREAD>(address, bytes, location_of(ordinal), 0, stream)
}

/// Prefetches; "flags ... must be 0". Not in a capturing stream (docs/hardware.md, "states of a capture": there is no node
/// kind for it).
fn prefetch<const PER_THREAD: bool>(
    address: CUdeviceptr,
    bytes: usize,
    location: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> CUresult {
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    check_range(address, bytes)?;
    check_location(location)?;
    if flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::semantics::capture::reject_if_capturing(&stream)
}

fn get_attribute(
    data: *mut c_void,
    size: usize,
    attribute: CUmem_range_attribute,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    use CUmem_range_attribute as A;
    process()?;
    check_range(address, bytes)?;
    match attribute {
        A::READ_MOSTLY if size == 4 => put(data.cast::<c_int>(), 0),
        // "CU_DEVICE_INVALID if the pages have no preferred location, or were never prefetched".
        A::PREFERRED_LOCATION | A::LAST_PREFETCH_LOCATION if size == 4 => {
            put(data.cast::<c_int>(), CU_DEVICE_INVALID)
        }
        A::ACCESSED_BY if size != 0 && size.is_multiple_of(4) => {
            for index in 0..size / 4 {
                put_at(data.cast::<c_int>(), index, CU_DEVICE_INVALID);
            }
            Ok(())
        }
        A::PREFERRED_LOCATION_TYPE | A::LAST_PREFETCH_LOCATION_TYPE if size == 4 => {
            put(data.cast::<c_uint>(), CUmemLocationType::INVALID.0)
        }
        A::PREFERRED_LOCATION_ID | A::LAST_PREFETCH_LOCATION_ID if size == 4 => put(data.cast::<c_int>(), 0),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

fn get_attributes(
    data: *mut *mut c_void,
    sizes: *mut usize,
    attributes: *mut CUmem_range_attribute,
    count: usize,
    address: CUdeviceptr,
    bytes: usize,
) -> CUresult {
    process()?;
    let sizes = get_array(sizes, count)?;
    let attributes = get_array(attributes, count)?;
    for ((data, size), attribute) in get_array(data, count)?.into_iter().zip(sizes).zip(attributes) {
        get_attribute(data, size, attribute, address, bytes)?;
    }
    Ok(())
}
