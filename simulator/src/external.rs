//! Memory of other interfaces (CUDA Driver API, "External Resource Interoperability"), and handles of address ranges for
//! other drivers.
//!
//! What Vulkan would export is, here, a descriptor that this driver exported or any file that can be mapped, such as one
//! of `memfd_create`. The bytes of such a file are taken from the device that is current at its first import; it is one
//! object of the machine for all that import it.

use core::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::array::{MIPMAPS, Mipmap};
use crate::current::current;
use crate::device::Device;
use crate::ffi::{export, get, put};
use crate::memory::{self, Kind};
use crate::process::process;
use crate::sharing::{self, Shared, Sort};
use crate::table::{Kind as HandleKind, Table};

export! {
    cuImportExternalMemory => import;
    cuExternalMemoryGetMappedBuffer => get_buffer;
    cuExternalMemoryGetMappedMipmappedArray => get_mipmap;
    cuDestroyExternalMemory => destroy;
    cuMemGetHandleForAddressRange => get_range_handle;
}

/// `CUDA_EXTERNAL_MEMORY_DEDICATED`.
const DEDICATED: c_uint = 1;
/// `CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`.
const MAPPING_TYPE_PCIE: u64 = 1;
/// Addresses and sizes of handles for other drivers are multiples of the host's page.
const PAGE: u64 = 4096;

/// All imported memory.
static EXTERNALS: Table<External> = Table::new(HandleKind::ExternalMemory);

/// Imported memory.
#[derive(Debug)]
struct External {
    shared: Arc<Shared>,
    /// As the program described it.
    bytes: u64,
    /// `Context::unique` of the context that imported it.
    context: u64,
}

/// The import owns the descriptor: "performing any operations on the file descriptor after it is imported results in
/// undefined behavior"; where it fails, the descriptor stays the caller's. A descriptor that is none, or of memory of
/// fewer bytes, is `CUDA_ERROR_INVALID_VALUE` (docs/hardware.md, "external memory"). Handles of Windows, NvSciBuf,
/// and dma-bufs, which only Tegra takes, are `CUDA_ERROR_NOT_SUPPORTED` (docs/hardware.md, "external memory").
fn import(place: *mut CUexternalMemory, description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> CUresult {
    use CUexternalMemoryHandleType as T;
    let context = current()?;
    let description = get(description)?;
    match description.r#type {
        T::OPAQUE_FD => {}
        CUexternalMemoryHandleType(2..=9) => return Err(CUerror::NOT_SUPPORTED),
        _ => return Err(CUerror::INVALID_VALUE),
    }
    if place.is_null() || description.flags & !DEDICATED != 0 || description.size == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: all members of the union are plain data, and the type says that this one counts.
    let descriptor = unsafe { description.handle.fd };
    let shared = hold(descriptor, description.size, context.device)?;
    // SAFETY: the caller gives the descriptor away with this call.
    drop(unsafe { File::from_raw_fd(descriptor) });
    let external = External {
        shared: Arc::new(shared),
        bytes: description.size,
        context: context.unique,
    };
    put(place, CUexternalMemory(EXTERNALS.insert(external)))
}

/// Memory behind a descriptor, which stays as it is.
fn hold(descriptor: c_int, bytes: u64, device: &'static Device) -> Result<Shared, CUerror> {
    let Ok(object) = sharing::object_of(descriptor) else {
        let file = sharing::duplicate(descriptor)?;
        let length = file.metadata().map_err(|_| CUerror::INVALID_VALUE)?.len();
        return if length < bytes {
            Err(CUerror::INVALID_VALUE)
        } else {
            Shared::foreign(device, bytes, file)
        };
    };
    let shared = Shared::hold(object, None, Sort::Physical).map_err(|error| match error {
        CUerror::INVALID_HANDLE => CUerror::INVALID_VALUE,
        other => other,
    })?;
    if shared.bytes < bytes {
        Err(CUerror::INVALID_VALUE)
    } else {
        Ok(shared)
    }
}

fn external(handle: CUexternalMemory) -> Result<Arc<External>, CUerror> {
    process()?;
    EXTERNALS.get(handle.0).ok_or(CUerror::INVALID_HANDLE)
}

/// Shows a part of imported memory.
fn show(external: &External, offset: u64, bytes: u64) -> Result<u64, CUerror> {
    let context = current()?;
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= external.bytes);
    if bytes == 0 || !is_inside {
        return Err(CUerror::INVALID_VALUE);
    }
    let base = sharing::show(&external.shared, offset, bytes)?;
    memory::insert(
        base,
        bytes,
        Kind::External,
        external.shared.device,
        Some(&context),
    );
    Ok(base)
}

/// "Must be freed using cuMemFree"; "flags must be zero". A buffer keeps the memory: also after the end of the object
/// that it was mapped onto, when it must no longer be used (docs/hardware.md, "external memory").
fn get_buffer(
    place: *mut CUdeviceptr,
    handle: CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> CUresult {
    let external = external(handle)?;
    let description = get(description)?;
    if place.is_null() || description.flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, show(&external, description.offset, description.size)?)
}

/// "Must be freed using cuMipmappedArrayDestroy". Levels lie one behind the other, as in any mipmapped array here.
fn get_mipmap(
    place: *mut CUmipmappedArray,
    handle: CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
) -> CUresult {
    let external = external(handle)?;
    let description = get(description)?;
    let context = current()?;
    if place.is_null() || description.numLevels == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let show = |bytes| show(&external, description.offset, bytes);
    let mipmap = Mipmap::external(&description.arrayDesc, description.numLevels, &context, show)?;
    put(place, CUmipmappedArray(MIPMAPS.insert(mipmap)))
}

fn destroy(handle: CUexternalMemory) -> CUresult {
    process()?;
    EXTERNALS
        .remove(handle.0)
        .map(drop)
        .ok_or(CUerror::INVALID_HANDLE)
}

/// Ends a buffer.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where there is none.
pub(crate) fn free(address: u64) -> CUresult {
    memory::remove(address, |kind| kind == Kind::External).ok_or(CUerror::INVALID_VALUE)?;
    sharing::end(address);
    Ok(())
}

/// A context has ended and what it imported with it.
pub(crate) fn forget_context(unique: u64) {
    for handle in EXTERNALS.handles(|external| external.context == unique) {
        EXTERNALS.remove(handle);
    }
}

/// "Address range obtained by a prior call to either cuMemAlloc or cuMemAddressReserve"; the latter "must also be fully
/// mapped", here by one mapping of memory that was made to be shared (else `CUDA_ERROR_NOT_SUPPORTED`). The descriptor
/// stands for a dma-buf: it holds the memory, and nothing here can do anything else with it.
fn get_range_handle(
    place: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    kind: CUmemRangeHandleType,
    flags: u64,
) -> CUresult {
    current()?;
    let is_whole = address.is_multiple_of(PAGE) && (bytes as u64).is_multiple_of(PAGE) && bytes != 0;
    if place.is_null()
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
        Kind::Device => {
            sharing::share(range.device, range.base, range.bytes, Sort::Linear as u64)?.export()?
        }
        Kind::Mapped(handle) => crate::vmm::mapped(handle)
            .ok_or(CUerror::INVALID_VALUE)?
            .export()
            .map_err(|_| CUerror::NOT_SUPPORTED)?,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    put(place.cast::<c_int>(), descriptor.into_raw_fd())
}
