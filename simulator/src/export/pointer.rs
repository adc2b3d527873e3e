//! Attributes of addresses (CUDA Driver API, "Unified Addressing").

use core::sync::atomic::Ordering;

use crate::export::prelude::*;
use crate::object::memory::{self, Allocation, Kind};

export! {
    cuPointerGetAttribute => get_attribute;
    cuPointerGetAttributes => get_attributes;
    cuPointerSetAttribute => set_attribute;
}

/// "CUDA_ERROR_INVALID_VALUE if ptr is not valid": unknown to CUDA.
fn get_attribute(data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr) -> CUresult {
    process()?;
    if data.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    let allocation = memory::find(address).ok_or(CUerror::INVALID_VALUE)?;
    answer(data, attribute, address, &allocation)
}

/// "Unlike cuPointerGetAttribute, this function will not return an error when the ptr encountered is not a
/// valid CUDA pointer. Instead, the attributes are assigned default NULL values"; memory types 0.
fn get_attributes(
    count: c_uint,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> CUresult {
    process()?;
    let attributes = get_array(attributes, count as usize)?;
    let places = get_array(data, count as usize)?;
    let allocation = memory::find(address);
    for (attribute, place) in attributes.into_iter().zip(places) {
        if place.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        match &allocation {
            None => answer_unknown(place, attribute)?,
            Some(allocation) => match answer(place, attribute, address, allocation) {
                // An attribute that does not apply to this kind of memory gets its default too.
                Err(CUerror::INVALID_VALUE) => answer_unknown(place, attribute)?,
                other => other?,
            },
        }
    }
    Ok(())
}

/// Sets an attribute; only `SYNC_MEMOPS` can be set.
fn set_attribute(value: *const c_void, attribute: CUpointer_attribute, address: CUdeviceptr) -> CUresult {
    process()?;
    let allocation = memory::find(address).ok_or(CUerror::INVALID_VALUE)?;
    if attribute != CUpointer_attribute::SYNC_MEMOPS || allocation.kind.is_host() {
        return Err(CUerror::INVALID_VALUE);
    }
    allocation.is_synchronous.store(get(value.cast::<c_uint>())? != 0, Ordering::Relaxed);
    Ok(())
}

fn answer(
    data: *mut c_void,
    attribute: CUpointer_attribute,
    address: CUdeviceptr,
    of: &Allocation,
) -> CUresult {
    use CUpointer_attribute as A;
    let is_host = of.kind.is_host();
    let byte = |value: bool| put(data.cast::<u8>(), u8::from(value));
    match attribute {
        // Pools and mappings belong to no context: null, as the documentation says of such memory.
        A::CONTEXT => put(data.cast::<usize>(), of.context.1),
        A::MEMORY_TYPE => {
            let kind = if is_host { CUmemorytype::HOST } else { CUmemorytype::DEVICE };
            put(data.cast::<c_uint>(), kind.0)
        }
        A::DEVICE_POINTER => put(data.cast::<u64>(), address),
        // "The host pointer ... for host and managed memory."
        A::HOST_POINTER if is_host || of.kind == Kind::Managed => put(data.cast::<u64>(), address),
        A::SYNC_MEMOPS => byte(of.is_synchronous.load(Ordering::Relaxed)),
        A::BUFFER_ID | A::MEMORY_BLOCK_ID => put(data.cast::<u64>(), of.id),
        A::IS_MANAGED => byte(of.kind == Kind::Managed),
        A::DEVICE_ORDINAL => put(data.cast::<c_int>(), of.device.ordinal),
        A::RANGE_START_ADDR | A::MAPPING_BASE_ADDR => put(data.cast::<u64>(), of.base),
        A::RANGE_SIZE | A::MAPPING_SIZE => put(data.cast::<usize>(), of.bytes as usize),
        A::MAPPED => byte(true),
        A::ALLOWED_HANDLE_TYPES => put(data.cast::<u64>(), crate::object::vmm::handle_types(of)),
        // "Whether the pointer points to an allocation that is suitable for cudaIpcGetMemHandle."
        A::IS_LEGACY_CUDA_IPC_CAPABLE => byte(of.kind == Kind::Device),
        // Direct access by other devices is not simulated.
        A::IS_GPU_DIRECT_RDMA_CAPABLE => byte(false),
        A::ACCESS_FLAGS => put(data.cast::<c_uint>(), of.access.load(Ordering::Relaxed)),
        A::MEMPOOL_HANDLE => {
            let pool = if let Kind::Pool(handle) | Kind::Imported(handle) = of.kind { handle } else { 0 };
            put(data.cast::<usize>(), pool)
        }
        A::IS_HW_DECOMPRESS_CAPABLE => byte(false),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Writes the default of an attribute, in its own size.
fn answer_unknown(data: *mut c_void, attribute: CUpointer_attribute) -> CUresult {
    use CUpointer_attribute as A;
    match attribute {
        A::MEMORY_TYPE | A::ACCESS_FLAGS => put(data.cast::<c_uint>(), 0),
        // "CU_DEVICE_INVALID" where there is no device.
        A::DEVICE_ORDINAL => put(data.cast::<c_int>(), CU_DEVICE_INVALID),
        A::SYNC_MEMOPS
        | A::IS_MANAGED
        | A::IS_LEGACY_CUDA_IPC_CAPABLE
        | A::MAPPED
        | A::IS_GPU_DIRECT_RDMA_CAPABLE
        | A::IS_HW_DECOMPRESS_CAPABLE => put(data.cast::<u8>(), 0),
        A::CONTEXT
        | A::DEVICE_POINTER
        | A::HOST_POINTER
        | A::BUFFER_ID
        | A::RANGE_START_ADDR
        | A::RANGE_SIZE
        | A::ALLOWED_HANDLE_TYPES
        | A::MEMPOOL_HANDLE
        | A::MAPPING_SIZE
        | A::MAPPING_BASE_ADDR
        | A::MEMORY_BLOCK_ID => put(data.cast::<u64>(), 0),
        _ => Err(CUerror::INVALID_VALUE),
    }
}
