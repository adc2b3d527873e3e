//! Device memory (CUDA Driver API, "Memory Management"): allocation, release, and its amount.

use crate::export::prelude::*;
use crate::object::attributes::PITCH_ALIGNMENT;
use crate::object::memory::{self, Kind};
use crate::semantics::memory::wait_for_owner;

export! {
    cuMemAlloc_v2 => alloc;
    // Memory lies above the 32-bit addresses of CUDA before 3.2 (docs/hardware.md, "old interfaces").
    cuMemAlloc => |_, _| current().and(Err(CUerror::OUT_OF_MEMORY));
    cuMemAllocPitch_v2 => alloc_pitch;
    cuMemAllocPitch => |_, _, _, _, _| current().and(Err(CUerror::OUT_OF_MEMORY));
    cuMemAllocManaged => alloc_managed;
    cuMemFree_v2 => free;
    cuMemFree => |address| free(CUdeviceptr::from(address));
    cuMemGetInfo_v2 => get_info;
    cuMemGetInfo => get_info_v1;
    cuMemGetAddressRange_v2 => get_address_range;
    cuMemGetAddressRange => |_, _, _| current().and(Err(CUerror::NOT_FOUND));
}

/// `CU_MEM_ATTACH_GLOBAL`, `CU_MEM_ATTACH_HOST`.
const ATTACH: [c_uint; 2] = [1, 2];

/// "If bytesize is 0, cuMemAlloc() returns CUDA_ERROR_INVALID_VALUE."
fn alloc(place: *mut CUdeviceptr, bytes: usize) -> CUresult {
    let context = current()?;
    if !is_possible(place) || bytes == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    put(place, memory::allocate(bytes as u64, Kind::Device, context.device, Some(&context))?)
}

/// Allocates rows padded to the texture alignment; "ElementSizeBytes may be 4, 8, or 16".
fn alloc_pitch(
    place: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> CUresult {
    let context = current()?;
    if !is_possible(place)
        || !is_possible(pitch)
        || width == 0
        || height == 0
        || ![4, 8, 16].contains(&element)
    {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    let row = width.checked_next_multiple_of(PITCH_ALIGNMENT).ok_or(CUerror::OUT_OF_MEMORY)?;
    let bytes = row.checked_mul(height).ok_or(CUerror::OUT_OF_MEMORY)?;
    let address = memory::allocate(bytes as u64, Kind::Device, context.device, Some(&context))?;
    put(pitch, row)?;
    put(place, address)
}

/// Allocates managed memory, charged in full on the current device (docs/hardware.md, "managed memory": a real driver
/// populates it when touched and may move it to the host).
fn alloc_managed(place: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> CUresult {
    let context = current()?;
    if !is_possible(place) || bytes == 0 || !ATTACH.contains(&flags) {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::semantics::capture::reject_unsafe_call()?;
    put(place, memory::allocate(bytes as u64, Kind::Managed, context.device, Some(&context))?)
}

/// Frees memory after the work of the context's streams, as `cuMemFree` is known to do (docs/hardware.md, "freeing"). A
/// null pointer has no effect, as `cudaFree` documents. Memory of a stream-ordered pool is accepted too ("Stream Ordered
/// Memory Allocator", interoperability).
fn free(address: CUdeviceptr) -> CUresult {
    process()?;
    if address == 0 {
        return Ok(());
    }
    let allocation = memory::at(address).ok_or(CUerror::INVALID_VALUE)?;
    crate::semantics::capture::reject_unsafe_call()?;
    match allocation.kind {
        Kind::Device | Kind::Managed => {
            wait_for_owner(allocation.context.1)?;
            memory::remove(address, |kind| kind == allocation.kind).ok_or(CUerror::INVALID_VALUE)?;
            memory::release(process()?, &allocation);
            Ok(())
        }
        Kind::Pool(_) | Kind::Imported(_) => {
            if let Ok(context) = current() {
                crate::semantics::stream::synchronize_context(&context)?;
            }
            crate::semantics::pool::free_now(address);
            Ok(())
        }
        Kind::External => {
            wait_for_owner(allocation.context.1)?;
            crate::object::external::free(address)
        }
        Kind::Graph => crate::object::graph_memory::free(address),
        // "Memory returned from cuIpcOpenMemHandle must be freed with cuIpcCloseMemHandle."
        Kind::Global | Kind::Ipc | Kind::Mapped(_) | Kind::Host(_) | Kind::Registered(_) => {
            Err(CUerror::INVALID_VALUE)
        }
    }
}

/// Free and total memory of the current context's device, with other processes' use counted. "Reports total and free memory
/// capped to the hard limit" of the process's cgroup (MPS, "How Limits Are Reported").
fn get_info(free: *mut usize, total: *mut usize) -> CUresult {
    let context = current()?;
    let (machine, gpu) = (&process()?.machine, context.device.gpu);
    let (total_bytes, free_bytes) = match machine.memory_shown(gpu) {
        Some(shown) => (shown.total_bytes, shown.free_bytes),
        None => {
            let memory = machine.memory(gpu);
            (memory.total_bytes, memory.total_bytes.saturating_sub(memory.used_bytes))
        }
    };
    put_if_wanted(free, free_bytes as usize);
    put_if_wanted(total, total_bytes as usize);
    Ok(())
}

fn get_info_v1(free: *mut c_uint, total: *mut c_uint) -> CUresult {
    let (mut free_bytes, mut total_bytes) = (0, 0);
    get_info(&raw mut free_bytes, &raw mut total_bytes)?;
    put_if_wanted(free, c_uint::try_from(free_bytes).unwrap_or(c_uint::MAX));
    put_if_wanted(total, c_uint::try_from(total_bytes).unwrap_or(c_uint::MAX));
    Ok(())
}

/// Base and size of an allocation, both "optional"; `CUDA_ERROR_NOT_FOUND` if the address is in none.
fn get_address_range(base: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr) -> CUresult {
    current()?;
    let allocation = memory::find(address).ok_or(CUerror::NOT_FOUND)?;
    put_if_wanted(base, allocation.base);
    put_if_wanted(bytes, allocation.bytes as usize);
    Ok(())
}
