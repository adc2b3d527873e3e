//! Page-locked memory of the host.

use vcuda_driver_api::prelude::*;

use crate::object::context::Context;
use crate::object::memory::{self, Allocation, Kind};

/// Allocates page-locked memory.
pub(crate) fn map(bytes: usize, flags: c_uint, context: &Context) -> Result<*mut c_void, CUerror> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
    let address = unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, kind, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(CUerror::OUT_OF_MEMORY);
    }
    // "All host memory allocated in all contexts using cuMemAllocHost() and cuMemHostAlloc() is always
    // directly accessible from all contexts" with unified addressing: portable and mapped.
    let flags = flags | CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    memory::insert(address as u64, bytes as u64, Kind::Host(flags), context.device, Some(context));
    Ok(address)
}

/// Unmaps an allocation that was removed from the list.
pub(crate) fn unmap(allocation: &Allocation) {
    // SAFETY: the mapping made by `map`; the remover of the allocation is the only one to unmap it.
    unsafe { libc::munmap(allocation.base as *mut c_void, allocation.bytes as usize) };
}
