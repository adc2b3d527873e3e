//! Memory of other interfaces (CUDA Driver API, "External Resource Interoperability"), and handles of address ranges for
//! other drivers.
//!
//! External memory is a descriptor exported by this driver, or any file that can be mapped, such as one of `memfd_create`.
//! A file's bytes are taken from the device that is current at its first import. All importers share one object of the
//! machine.

use std::os::fd::IntoRawFd;

use crate::export::prelude::*;
use crate::object::array::{MIPMAPS, Mipmap};
use crate::object::external;
use crate::object::memory::{self, Kind};
use crate::object::sharing::Sort;
use crate::semantics::memory::share;

export! {
    cuImportExternalMemory => import;
    cuExternalMemoryGetMappedBuffer => get_buffer;
    cuExternalMemoryGetMappedMipmappedArray => get_mipmap;
    cuDestroyExternalMemory => external::destroy;
    cuMemGetHandleForAddressRange => get_range_handle;
}

/// `CUDA_EXTERNAL_MEMORY_DEDICATED`.
const DEDICATED: c_uint = 1;
/// `CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`.
const MAPPING_TYPE_PCIE: u64 = 1;
/// Unit of addresses and sizes of handles for other drivers (bytes), the host's page.
const PAGE: u64 = 4096;

/// Imports a descriptor, which then belongs to the driver: "performing any operations on the file descriptor after it is
/// imported results in undefined behavior". A descriptor that is no memory is `CUDA_ERROR_UNKNOWN`, and closed too (seen on
/// an H200, 580.159.04); after another failure it stays the caller's. One of less memory is `CUDA_ERROR_INVALID_VALUE`.
/// Handles of Windows and NvSciBuf, and dma-bufs, which only Tegra accepts, are `CUDA_ERROR_NOT_SUPPORTED`
/// (docs/hardware.md, "external memory").
fn import(place: *mut CUexternalMemory, description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> CUresult {
    use CUexternalMemoryHandleType as T;
    let context = current()?;
    let description = get(description)?;
    match description.r#type {
        T::OPAQUE_FD => {}
        CUexternalMemoryHandleType(2..=9) => return Err(CUerror::NOT_SUPPORTED),
        _ => return Err(CUerror::INVALID_VALUE),
    }
    if !is_possible(place) || description.flags & !DEDICATED != 0 || description.size == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: all members of the union are plain data, and the type says that this one counts.
    let descriptor = unsafe { description.handle.fd };
    let imported = external::import(descriptor, description.size, &context);
    if descriptor >= 0 && matches!(imported, Ok(_) | Err(CUerror::UNKNOWN)) {
        // By number, as it may be none. SAFETY: the caller gives the descriptor away with this call.
        unsafe { libc::close(descriptor) };
    }
    put(place, CUexternalMemory(imported?))
}

/// Maps a buffer, which "must be freed using cuMemFree"; "flags must be zero". It keeps the memory even after the end of
/// the external object (docs/hardware.md, "external memory").
fn get_buffer(
    place: *mut CUdeviceptr,
    handle: CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> CUresult {
    let external = external::external(handle)?;
    let description = get(description)?;
    if !is_possible(place) || description.flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, external::show(&external, description.offset, description.size)?)
}

/// Maps a mipmapped array, which "must be freed using cuMipmappedArrayDestroy". Levels are consecutive, as in all mipmapped
/// arrays here.
fn get_mipmap(
    place: *mut CUmipmappedArray,
    handle: CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
) -> CUresult {
    let external = external::external(handle)?;
    let description = get(description)?;
    let context = current()?;
    if !is_possible(place) || description.numLevels == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let show = |bytes| external::show(&external, description.offset, bytes);
    let mipmap = Mipmap::external(&description.arrayDesc, description.numLevels, &context, show)?;
    put(place, CUmipmappedArray(MIPMAPS.insert(mipmap)))
}

/// Exports an "address range obtained by a prior call to either cuMemAlloc or cuMemAddressReserve". The latter "must also
/// be fully mapped", here by one mapping of shareable memory (else `CUDA_ERROR_NOT_SUPPORTED`). The descriptor stands for a
/// dma-buf and only keeps the memory.
fn get_range_handle(
    place: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    kind: CUmemRangeHandleType,
    flags: u64,
) -> CUresult {
    current()?;
    let is_whole = address.is_multiple_of(PAGE) && (bytes as u64).is_multiple_of(PAGE) && bytes != 0;
    if !is_possible(place)
        || kind != CUmemRangeHandleType::DMA_BUF_FD
        || flags & !MAPPING_TYPE_PCIE != 0
        || !is_whole
    {
        return Err(CUerror::INVALID_VALUE);
    }
    let range = memory::find(address).ok_or(CUerror::INVALID_VALUE)?;
    let end = range.base + range.bytes.next_multiple_of(PAGE);
    if address.checked_add(bytes as u64).is_none_or(|last| last > end) {
        return Err(CUerror::INVALID_VALUE);
    }
    // "On a supported platform."
    if flags & MAPPING_TYPE_PCIE != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let descriptor = match range.kind {
        Kind::Device => share(&range, Sort::Linear as u64)?.export_range()?,
        Kind::Mapped(handle) => {
            crate::object::vmm::mapped(handle).ok_or(CUerror::INVALID_VALUE)?.export_range()?
        }
        _ => return Err(CUerror::INVALID_VALUE),
    };
    put(place.cast::<c_int>(), descriptor.into_raw_fd())
}
