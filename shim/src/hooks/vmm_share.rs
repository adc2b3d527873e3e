//! Physical memory that is passed from process to process: `cuMemExportToShareableHandle` and
//! `cuMemImportFromShareableHandle`.
//!
//! The exporter pays as before, and the container gets to know the memory; importers of the container pay nothing. Memory
//! from outside is paid for by its first importer, from the moment that its size is known: when it is imported, if its
//! exporter has named it (`tag.rs`), and else when it is mapped. Memory whose last handle and mapping are gone while a
//! descriptor of it is open stays counted (`adrift.rs`).

use std::sync::Arc;

use vcuda_driver_api::prelude::*;
use vcuda_region::shared::ObjectKey;

use crate::charge::Charge;
use crate::devices::{Denied, Device, is_device};
use crate::ffi::{Call, real};
use crate::mappings::Backing;
use crate::shim::{self, Shim};
use crate::tag::{self, Tag};

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuMemExportToShareableHandle`.
pub(super) fn export(
    call: &Call<'_, CUresult>,
    shareable: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    _flags: u64,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    // Held, should another thread let go of it meanwhile.
    let backing = shim.mappings.behind(handle);
    call.real()?;
    let Some(backing) = backing.filter(|_| !shareable.is_null()) else {
        return Ok(());
    };
    match kind {
        CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR => {
            // SAFETY: the driver returned success, so it has just written a descriptor here.
            let file = unsafe { shareable.cast::<c_int>().read() };
            if let Some(tag) = tag::name(file, backing.key(), backing.bytes(), backing.is_free()) {
                backing.share(tag.key);
            }
        }
        CUmemAllocationHandleType::FABRIC => backing.share(fabric_key(shareable)),
        _ => {}
    }
    Ok(())
}

/// `cuMemImportFromShareableHandle`.
pub(super) fn import(
    call: &Call<'_, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    shareable: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    let Some(shim) = shim::get() else {
        return call.real();
    };
    if handle.is_null() {
        return call.real();
    }
    let tag = match kind {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the descriptor is passed in the pointer's place"
        )]
        #[expect(clippy::cast_possible_wrap, reason = "as above")]
        CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR => tag::read(shareable as usize as c_int),
        CUmemAllocationHandleType::FABRIC if !shareable.is_null() => Some(Tag {
            key: fabric_key(shareable),
            bytes: 0,
            is_free: false,
        }),
        _ => None,
    };
    // Held before the driver is asked: its exporter may let go meanwhile.
    let known = tag
        .filter(|tag| !tag.is_free)
        .and_then(|tag| Charge::join(shim, tag.key));
    // SAFETY: the application expects the driver to write here.
    let before = unsafe { handle.read() };
    call.real()?;
    // SAFETY: the driver returned success, so it has just written a handle here.
    let imported = unsafe { handle.read() };
    let found = match known {
        Some(charge) => Ok(Some(Backing::charged(charge))),
        None => from_outside(shim, imported, tag, || name(shareable, kind)),
    };
    match found {
        Ok(Some(backing)) => shim.mappings.retain(imported, Arc::new(backing)),
        Ok(None) => {} // not on a GPU of this process
        Err(denied) => {
            // SAFETY: gives back what has just been imported; the application does not know of it yet.
            let _ = unsafe { super::own::cuMemRelease(imported) };
            // SAFETY: as above.
            unsafe { handle.write(before) };
            return Err(denied.into());
        }
    }
    Ok(())
}

/// Memory that the container does not know.
///
/// # Errors
/// Its size is known, and does not fit.
fn from_outside(
    shim: &'static Shim,
    handle: CUmemGenericAllocationHandle,
    tag: Option<Tag>,
    name: impl Fn() -> Option<Tag>,
) -> Result<Option<Backing>, Denied> {
    if let Some(tag) = tag.filter(|tag| tag.is_free) {
        return Ok(Some(Backing::free(Some(tag.key))));
    }
    let Some(device) = device_of(shim, handle) else {
        return Ok(None);
    };
    if let Some(tag) = tag.filter(|tag| tag.bytes > 0) {
        return Charge::adopt(device, tag.key, tag.bytes).map(|charge| Some(Backing::charged(charge)));
    }
    let key = tag.or_else(name).map(|tag| tag.key);
    let key = key.or_else(|| ObjectKey::unique().ok());
    Ok(key.map(|key| Backing::of_unknown_size(device, key)))
}

/// Names memory that nobody has named, so that other processes of the container know it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the descriptor is passed in the pointer's place"
)]
fn name(shareable: *mut c_void, kind: CUmemAllocationHandleType) -> Option<Tag> {
    (kind == CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR)
        .then(|| tag::name(shareable as usize as c_int, None, 0, false))
        .flatten()
}

/// A fabric handle names its memory in all processes.
fn fabric_key(shareable: *mut c_void) -> ObjectKey {
    // SAFETY: a fabric handle has 64 bytes (`CUmemFabricHandle`), which the driver has written or is about to read.
    ObjectKey::of(&unsafe { shareable.cast::<[u8; 64]>().read_unaligned() })
}

/// Where imported memory is; nothing if it is not on a GPU, or is no memory but a multicast object.
fn device_of(shim: &'static Shim, handle: CUmemGenericAllocationHandle) -> Option<&'static Device> {
    let mut properties = core::mem::MaybeUninit::<CUmemAllocationProp>::zeroed();
    // SAFETY: the driver writes the properties or nothing.
    unsafe { real::cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), handle) }.ok()?;
    // SAFETY: zeroed, which is a valid value of each field, and filled by the driver.
    let location = unsafe { properties.assume_init() }.location;
    if is_device(location.r#type) {
        shim.device(location.id)
    } else {
        None
    }
}
