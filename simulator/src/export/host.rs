//! Page-locked host memory (CUDA Driver API, "Memory Management": `cuMemHostAlloc`, `cuMemHostRegister` and relatives).
//! With unified addressing its device address is its host address.

use crate::export::prelude::*;
use crate::object::host::{map, unmap};
use crate::object::memory::{self, Kind};
use crate::semantics::memory::wait_for_owner;

export! {
    cuMemAllocHost_v2 => |place, bytes| alloc(place, bytes, 0);
    cuMemHostAlloc => alloc;
    cuMemFreeHost => free;
    cuMemHostGetDevicePointer_v2 => get_device_pointer;
    cuMemHostGetFlags => get_flags;
    cuMemHostRegister | cuMemHostRegister_v2 => register;
    cuMemHostUnregister => unregister;
}

/// Flags `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP`, `_WRITECOMBINED`.
const ALLOC_FLAGS: c_uint =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
/// Flags `CU_MEMHOSTREGISTER_*`.
const REGISTER_FLAGS: c_uint = CU_MEMHOSTREGISTER_PORTABLE
    | CU_MEMHOSTREGISTER_DEVICEMAP
    | CU_MEMHOSTREGISTER_IOMEMORY
    | CU_MEMHOSTREGISTER_READ_ONLY;

fn alloc(place: *mut *mut c_void, bytes: usize, flags: c_uint) -> CUresult {
    let context = current()?;
    if place.is_null() || bytes == 0 || flags & !ALLOC_FLAGS != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    put(place, map(bytes, flags, &context)?)
}

/// Frees host memory after the work of the owner's context, as pending copies may read it.
fn free(address: *mut c_void) -> CUresult {
    process()?;
    if address.is_null() {
        return Ok(());
    }
    let allocation = memory::at(address as u64).ok_or(CUerror::INVALID_VALUE)?;
    if !matches!(allocation.kind, Kind::Host(_)) {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    wait_for_owner(allocation.context.1)?;
    let removed = memory::remove(address as u64, |kind| matches!(kind, Kind::Host(_)));
    unmap(&*removed.ok_or(CUerror::INVALID_VALUE)?);
    Ok(())
}

/// "Flags provides for future releases. For now, it must be set to 0."
fn get_device_pointer(place: *mut CUdeviceptr, address: *mut c_void, flags: c_uint) -> CUresult {
    current()?;
    let is_pinned = memory::find(address as u64).is_some_and(|range| range.kind.is_host());
    if flags != 0 || !is_pinned {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, address as u64)
}

/// "Fails if the pointer does not reside in an allocation performed by cuMemAllocHost() or cuMemHostAlloc()."
fn get_flags(place: *mut c_uint, address: *mut c_void) -> CUresult {
    current()?;
    match memory::find(address as u64).map(|range| range.kind) {
        Some(Kind::Host(flags) | Kind::Registered(flags)) => put(place, flags),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Registers host memory. `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` if any part is pinned already; I/O memory is not
/// simulated (`CUDA_ERROR_NOT_SUPPORTED`).
fn register(address: *mut c_void, bytes: usize, flags: c_uint) -> CUresult {
    let context = current()?;
    if address.is_null() || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if flags & CU_MEMHOSTREGISTER_IOMEMORY != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    if !memory::overlapping(address as u64, bytes as u64).is_empty() {
        return Err(CUerror::HOST_MEMORY_ALREADY_REGISTERED);
    }
    let flags = flags | CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    memory::insert(address as u64, bytes as u64, Kind::Registered(flags), context.device, Some(&context));
    Ok(())
}

fn unregister(address: *mut c_void) -> CUresult {
    current()?;
    let allocation = memory::at(address as u64).ok_or(CUerror::HOST_MEMORY_NOT_REGISTERED)?;
    wait_for_owner(allocation.context.1)?;
    let removed = memory::remove(address as u64, |kind| matches!(kind, Kind::Registered(_)));
    removed.map(drop).ok_or(CUerror::HOST_MEMORY_NOT_REGISTERED)
}
