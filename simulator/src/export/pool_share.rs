//! Pools shared between processes (CUDA Driver API, "Stream Ordered Memory Allocator").
//!
//! A shareable pool becomes an object without bytes when it is exported, which others import. A block becomes an object of
//! its own when its pointer is exported; its bytes stay the pool's until it is freed.

use core::sync::atomic::Ordering;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use crate::export::prelude::*;
use crate::export::vmm::only_descriptors;
use crate::object::ipc::Handle;
use crate::object::memory::{self, Kind};
use crate::object::pool::{Pool, pool};
use crate::object::sharing::{self, Shared, Sort, as_invalid_value};
use crate::semantics::memory::share;

export! {
    cuMemPoolExportToShareableHandle => export_pool;
    cuMemPoolImportFromShareableHandle => import_pool;
    cuMemPoolExportPointer => export_pointer;
    cuMemPoolImportPointer => import_pointer;
}

/// "To create an IPC capable mempool, create a mempool with a CUmemAllocationHandleType other than
/// CU_MEM_HANDLE_TYPE_NONE"; another type than that, and an imported pool: `CUDA_ERROR_INVALID_VALUE`.
fn export_pool(
    place: *mut c_void,
    from: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    let pool = pool(from)?;
    let is_asked_for = kind != CUmemAllocationHandleType::NONE && pool.handle_types == kind;
    if !is_possible(place) || flags != 0 || !is_asked_for || pool.is_imported {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut object = pool.object.lock();
    let shared = match &*object {
        Some(shared) => Arc::clone(shared),
        None => {
            let made = Shared::make(pool.device, 0, Sort::Pool as u64)?;
            Arc::clone(object.insert(Arc::new(made)))
        }
    };
    put(place.cast::<c_int>(), shared.export()?.into_raw_fd())
}

/// Imports a pool. The descriptor is passed as the pointer argument, and stays the caller's.
fn import_pool(
    place: *mut CUmemoryPool,
    handle: *mut c_void,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    process()?;
    if !is_possible(place) || flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    only_descriptors(kind)?;
    let object = sharing::object_of(handle as usize as c_int)?;
    let shared = Shared::hold(object, None, Sort::Pool).map_err(as_invalid_value)?;
    put(place, CUmemoryPool(Pool::import(shared).handle))
}

/// Exports a pointer as returned by an allocation "from an already shared memory pool"; any other pool or pointer is
/// `CUDA_ERROR_INVALID_VALUE` (docs/hardware.md, "pools' memory").
fn export_pointer(place: *mut CUmemPoolPtrExportData, address: CUdeviceptr) -> CUresult {
    process()?;
    let range = memory::at(address).ok_or(CUerror::INVALID_VALUE)?;
    let pool = crate::object::pool::of_block(address).ok_or(CUerror::INVALID_VALUE)?;
    let object = pool.object.lock().as_ref().map(|shared| shared.id);
    let (Some(object), false) = (object, !is_possible(place)) else {
        return Err(CUerror::INVALID_VALUE);
    };
    let tag = Sort::PoolBlock as u64 | object.number() << 8;
    let shared = share(&range, tag)?;
    let handle = Handle { object: shared.id, maker: process()?.client.id(), sort: Sort::PoolBlock };
    put(place, CUmemPoolPtrExportData { reserved: handle.write()? })
}

/// Imports a pointer; each import has its own address (docs/hardware.md, "pools' memory"). Data of another pool is
/// `CUDA_ERROR_INVALID_VALUE`.
fn import_pointer(
    place: *mut CUdeviceptr,
    from: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> CUresult {
    let pool = pool(from)?;
    let handle = Handle::read(&get(data)?.reserved, Sort::PoolBlock)?;
    if !is_possible(place) || !pool.is_imported {
        return Err(CUerror::INVALID_VALUE);
    }
    let shared =
        Shared::hold(handle.object, Some(handle.maker), Sort::PoolBlock).map_err(as_invalid_value)?;
    let object = pool.object.lock().as_ref().map(|shared| shared.id.number());
    if object != Some(shared.tag >> 8) {
        return Err(CUerror::INVALID_VALUE);
    }
    let (device, bytes) = (shared.device, shared.bytes);
    let base = sharing::import(shared)?;
    pool.imports.fetch_add(1, Ordering::Relaxed);
    memory::insert(base, bytes, Kind::Imported(pool.handle), device, None);
    put(place, base)
}
