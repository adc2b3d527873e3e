//! Memory of `cuMemAlloc` for other processes (CUDA Driver API, "Memory Management": `cuIpc*MemHandle`).

use crate::export::prelude::*;
use crate::object::ipc::{Handle, close_one, open};
use crate::object::memory::{self, Kind};
use crate::object::sharing::Sort;
use crate::semantics::memory::share;

export! {
    cuIpcGetMemHandle => get_handle;
    cuIpcOpenMemHandle | cuIpcOpenMemHandle_v2 => open_handle;
    cuIpcCloseMemHandle => close_handle;
}

/// Handle of a whole allocation of `cuMemAlloc`, by its base or, beyond the documentation, by a pointer into it
/// (docs/hardware.md, "IPC handles": UCX passes such). "May be called multiple times on an allocation": the handle is the
/// same. Memory of pools, mapped memory and memory opened by a handle is refused.
fn get_handle(place: *mut CUipcMemHandle, address: CUdeviceptr) -> CUresult {
    current()?;
    let range = memory::find(address).ok_or(CUerror::INVALID_VALUE)?;
    if !is_possible(place) || range.kind != Kind::Device {
        return Err(CUerror::INVALID_VALUE);
    }
    let shared = share(&range, Sort::Linear as u64)?;
    let handle = Handle { object: shared.id, maker: process()?.client.id(), sort: Sort::Linear };
    put(place, CUipcMemHandle { reserved: handle.write()?.map(|byte| byte as c_char) })
}

/// "If the memory handle has already been opened by the current context, the reference count on the handle is
/// incremented by 1 and the existing device pointer is returned"; by another context of the device:
/// `CUDA_ERROR_INVALID_CONTEXT` (docs/hardware.md, "IPC handles"), as for a handle of this process. The one flag is needed,
/// and others beside it are ignored (seen on an H200, 580.159.04).
fn open_handle(place: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> CUresult {
    let context = current()?;
    if !is_possible(place) || flags & CUipcMem_flags::LAZY_ENABLE_PEER_ACCESS.0 == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let handle = Handle::read(&handle.reserved.map(|byte| byte as u8), Sort::Linear)?;
    if handle.maker == process()?.client.id() {
        return Err(CUerror::INVALID_CONTEXT);
    }
    put(place, open(handle, &context)?)
}

/// Closes a handle, after the work of the memory's owner.
fn close_handle(address: CUdeviceptr) -> CUresult {
    current()?;
    let range = memory::at(address).filter(|range| range.kind == Kind::Ipc);
    let range = range.ok_or(CUerror::INVALID_VALUE)?;
    crate::semantics::memory::wait_for_owner(range.context.1)?;
    close_one(address)
}
