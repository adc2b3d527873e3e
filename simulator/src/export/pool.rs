//! Stream-ordered allocator.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use crate::export::prelude::*;
use crate::export::vmm::only_descriptors;
use crate::object::device::Device;
use crate::object::graph_memory::GraphBlock;
use crate::object::memory::{self, Kind, READ_WRITE};
use crate::object::pool::{POOLS, Pool, current_pool, default_pool, pool};
use crate::semantics::work::Work;

export! {
    cuMemAllocAsync / cuMemAllocAsync_ptsz => alloc_async;
    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz => alloc_from_pool_async;
    cuMemFreeAsync / cuMemFreeAsync_ptsz => free_async;
    cuMemPoolCreate => create;
    cuMemPoolDestroy => destroy;
    cuMemPoolTrimTo => trim_to;
    cuMemPoolSetAttribute => set_attribute;
    cuMemPoolGetAttribute => get_attribute;
    cuMemPoolSetAccess => set_access;
    cuMemPoolGetAccess => get_access;
    cuDeviceGetDefaultMemPool => |place, ordinal| put(place, CUmemoryPool(default_pool(ordinal)?.handle));
    cuDeviceGetMemPool => |place, ordinal| put(place, CUmemoryPool(current_pool(ordinal)?.handle));
    cuDeviceSetMemPool => set_current;
}

/// Allocates from the current pool of the stream's device.
fn alloc_async(null: Null, place: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    let stream = resolve(stream, null)?;
    allocate(place, bytes, &current_pool(stream.ordinal)?, &stream)
}

/// Allocates from a pool, whose device may differ from the stream's.
fn alloc_from_pool_async(
    null: Null,
    place: *mut CUdeviceptr,
    bytes: usize,
    from: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let stream = resolve(stream, null)?;
    allocate(place, bytes, &pool(from)?, &stream)
}

/// Allocates. During capture it becomes an allocation node: the address is fixed now, the memory comes at launch. No bytes
/// are no error (seen on an H200, 580.159.04), and are a piece like one byte (docs/hardware.md, "pools' memory"). Elsewhere
/// than in a capture it is a potentially unsafe call (seen there too).
fn allocate(
    place: *mut CUdeviceptr,
    bytes: usize,
    from: &Arc<Pool>,
    stream: &crate::object::stream::Stream,
) -> CUresult {
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    let bytes = bytes.max(1);
    if crate::semantics::capture::intercept(stream)?.is_some() {
        let block = GraphBlock::reserve(from.device, bytes as u64)?;
        let address = block.address();
        crate::semantics::work::enqueue(stream, Work::Alloc(block))?;
        return put(place, address);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    // Memory of completed frees of this process may be reused.
    crate::semantics::effects::settle();
    put(place, from.allocate(bytes as u64)?)
}

/// "The allocation must not be accessed after stream execution reaches the free." Memory of `cuMemAlloc` may be
/// freed here too (CUDA C++ Programming Guide, "Stream Ordered Memory Allocator": `cudaFreeAsync` of memory of
/// `cudaMalloc`); managed memory likewise (docs/hardware.md, "freeing"). A null pointer is `CUDA_ERROR_INVALID_VALUE`
/// (docs/hardware.md, "freeing").
fn free_async(null: Null, address: CUdeviceptr, stream: CUstream) -> CUresult {
    let stream = resolve(stream, null)?;
    if crate::semantics::capture::intercept(&stream)?.is_none() {
        let range = memory::at(address).ok_or(CUerror::INVALID_VALUE)?;
        if !matches!(
            range.kind,
            Kind::Pool(_) | Kind::Imported(_) | Kind::Graph | Kind::Device | Kind::Managed
        ) {
            return Err(CUerror::INVALID_VALUE);
        }
    }
    crate::semantics::work::enqueue(&stream, Work::Free(address))
}

/// Creates a pool of pinned memory on a device, or of managed memory. Pools on the host are not supported
/// (`CUDA_ERROR_NOT_SUPPORTED`).
fn create(place: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> CUresult {
    process()?;
    let properties = get(properties)?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = match properties.allocType {
        CUmemAllocationType::PINNED => place_of_pinned(properties.location)?,
        CUmemAllocationType::MANAGED => place_of_managed(properties.location)?,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    if properties.handleTypes != CUmemAllocationHandleType::NONE {
        // No handles of managed memory, as of `cuMemAllocManaged`.
        if properties.allocType == CUmemAllocationType::MANAGED {
            return Err(CUerror::NOT_SUPPORTED);
        }
        // `CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES` has file descriptors alone.
        only_descriptors(properties.handleTypes)?;
    }
    put(place, CUmemoryPool(Pool::create(device, &properties).handle))
}

/// The device of a pool of pinned memory.
fn place_of_pinned(location: CUmemLocation) -> Result<&'static Device, CUerror> {
    match location.r#type {
        CUmemLocationType::DEVICE => device(location.id).map_err(|_| CUerror::INVALID_VALUE),
        CUmemLocationType::HOST | CUmemLocationType::HOST_NUMA => Err(CUerror::NOT_SUPPORTED),
        // "Specifying CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT ... will result in CUDA_ERROR_INVALID_VALUE."
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// The device of a pool of managed memory: the preferred one, else the current one, as for `cuMemAllocManaged`. "When the
/// allocation type is CU_MEM_ALLOCATION_TYPE_MANAGED, the location type can also be CU_MEM_LOCATION_TYPE_NONE".
fn place_of_managed(location: CUmemLocation) -> Result<&'static Device, CUerror> {
    match location.r#type {
        CUmemLocationType::DEVICE => device(location.id).map_err(|_| CUerror::INVALID_VALUE),
        CUmemLocationType::NONE | CUmemLocationType::HOST | CUmemLocationType::HOST_NUMA => {
            current().map_or_else(|_| device(0), |context| Ok(context.device))
        }
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Destroys a pool. "If any pointers obtained from this pool haven't been freed, cuMemPoolDestroy will return immediately
/// and the resources will be released once there are no more outstanding allocations." If it is current, the default pool
/// becomes current. A default pool cannot be destroyed, nor an imported one before what was imported from it is freed (seen
/// on an H200, 580.159.04).
fn destroy(handle: CUmemoryPool) -> CUresult {
    let pool = pool(handle)?;
    let mut pools = pool.device.pools.lock();
    if pools.default == handle.0 || pool.imports.load(Ordering::Relaxed) > 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if pools.current == handle.0 {
        pools.current = 0;
    }
    drop(pools);
    POOLS.remove(handle.0).ok_or(CUerror::INVALID_VALUE)?;
    pool.trim(0);
    Ok(())
}

fn trim_to(handle: CUmemoryPool, keep: usize) -> CUresult {
    let pool = pool(handle)?;
    crate::semantics::effects::settle();
    pool.trim(keep as u64);
    Ok(())
}

fn set_attribute(handle: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> CUresult {
    use CUmemPool_attribute as A;
    let pool = pool(handle)?;
    match attribute {
        A::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | A::REUSE_ALLOW_OPPORTUNISTIC
        | A::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let index = (attribute.0 - A::REUSE_FOLLOW_EVENT_DEPENDENCIES.0) as usize;
            pool.reuse[index].store(get(value.cast::<c_int>())? != 0, Ordering::Relaxed);
        }
        A::RELEASE_THRESHOLD => pool.threshold.store(get(value.cast::<u64>())?, Ordering::Relaxed),
        // "High watermark: may only be set to 0."
        A::RESERVED_MEM_HIGH | A::USED_MEM_HIGH if get(value.cast::<u64>())? == 0 => {
            pool.reserve.reset_marks(attribute == A::USED_MEM_HIGH, attribute == A::RESERVED_MEM_HIGH);
        }
        _ => return Err(CUerror::INVALID_VALUE),
    }
    Ok(())
}

fn get_attribute(handle: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) -> CUresult {
    use CUmemPool_attribute as A;
    let pool = pool(handle)?;
    crate::semantics::effects::settle();
    let counts = pool.reserve.counts();
    match attribute {
        A::REUSE_FOLLOW_EVENT_DEPENDENCIES
        | A::REUSE_ALLOW_OPPORTUNISTIC
        | A::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let index = (attribute.0 - A::REUSE_FOLLOW_EVENT_DEPENDENCIES.0) as usize;
            put(value.cast::<c_int>(), c_int::from(pool.reuse[index].load(Ordering::Relaxed)))
        }
        A::RELEASE_THRESHOLD => put(value.cast::<u64>(), pool.threshold.load(Ordering::Relaxed)),
        A::RESERVED_MEM_CURRENT => put(value.cast::<u64>(), counts.reserved),
        A::RESERVED_MEM_HIGH => put(value.cast::<u64>(), counts.reserved_high),
        A::USED_MEM_CURRENT => put(value.cast::<u64>(), counts.used),
        A::USED_MEM_HIGH => put(value.cast::<u64>(), counts.used_high),
        A::ALLOCATION_TYPE => put(value.cast::<c_uint>(), pool.kind.0),
        A::EXPORT_HANDLE_TYPES => put(value.cast::<c_uint>(), pool.handle_types.0),
        A::LOCATION_ID => put(value.cast::<c_int>(), pool.device.ordinal),
        A::LOCATION_TYPE => put(value.cast::<c_uint>(), pool.location.0),
        A::MAX_POOL_SIZE => put(value.cast::<u64>(), if pool.limit == u64::MAX { 0 } else { pool.limit }),
        A::HW_DECOMPRESS_ENABLED => put(value.cast::<c_int>(), 0),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Sets access. That of the owning device cannot be removed (`CUDA_ERROR_INVALID_VALUE`, "revoking access from the location
/// where the pool resides").
fn set_access(handle: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) -> CUresult {
    let pool = pool(handle)?;
    let map = get_array(map, count)?;
    for entry in &map {
        let is_own = entry.location.id == pool.device.ordinal;
        if entry.location.r#type != CUmemLocationType::DEVICE || (is_own && entry.flags.0 != READ_WRITE) {
            return Err(CUerror::INVALID_VALUE);
        }
        device(entry.location.id)?;
    }
    let mut access = pool.access.lock();
    access.extend(map.iter().map(|entry| (entry.location.id, entry.flags.0)));
    Ok(())
}

fn get_access(flags: *mut CUmemAccess_flags, handle: CUmemoryPool, location: *mut CUmemLocation) -> CUresult {
    let pool = pool(handle)?;
    let location = get(location)?;
    if location.r#type != CUmemLocationType::DEVICE {
        return Err(CUerror::INVALID_VALUE);
    }
    let ordinal = device(location.id)?.ordinal;
    let own = if ordinal == pool.device.ordinal { READ_WRITE } else { 0 };
    put(flags, CUmemAccess_flags(pool.access.lock().get(&ordinal).copied().unwrap_or(own)))
}

/// "The memory pool must be local to the specified device"; "imported memory pools may not be used".
fn set_current(ordinal: CUdevice, handle: CUmemoryPool) -> CUresult {
    let device = device(ordinal)?;
    let pool = pool(handle)?;
    if pool.device.ordinal != ordinal || pool.is_imported {
        return Err(CUerror::INVALID_VALUE);
    }
    device.pools.lock().current = handle.0;
    Ok(())
}
