//! Physical memory that is passed from process to process: `cuMemExportToShareableHandle` and
//! `cuMemImportFromShareableHandle`.
//!
//! The exporter pays as before, and the tenant gets to know the memory; importers of the tenant pay nothing. Memory
//! from outside is paid for by its first importer, once its size is known: when it is imported, if its exporter has
//! named it (`ofd_key.rs`), and else when it is mapped. Memory whose last handle and mapping are gone stays counted
//! while a descriptor of it is open, also when its exporter has ended (`exported.rs`).

use std::sync::Arc;

use vcuda_driver_api::prelude::*;
use vcuda_region::shared::{ObjectKey, Outlives};

use super::table::Handlers;
use crate::driver::saved_answer::{SavedAnswer, peek};
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::charge::Charge;
use crate::memory::mappings::Backing;
use crate::memory::state;
use crate::runtime::ofd_key::{self, OfdKey};
use crate::runtime::shim::devices::{Denied, Device, is_device};
use crate::runtime::shim::{self, Shim};

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
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
) -> Handled {
    let shim = state::managed()?;
    Bypass::BadArgument.when(shareable.is_null())?;
    // Held, should another thread let go of it meanwhile.
    let backing = shim.accounts().mappings.by_handle(handle);
    match (kind, backing) {
        (CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR, Some(backing)) => {
            export_descriptor(call, shareable.cast(), |file| name_exported(shim, &backing, file))
        }
        (CUmemAllocationHandleType::FABRIC, Some(backing)) => {
            call.real()?;
            // SAFETY: the driver returned success, so it has just written a handle here, of any alignment.
            backing.share(fabric_key(&unsafe { shareable.cast::<FabricHandle>().read_unaligned() }));
            Ok(())
        }
        _ => Err(Bypass::Uncharged.into()),
    }
}

/// `cuMemGetHandleForAddressRange`: a dma-buf of memory of `cuMemAlloc`, or of what is mapped there. It keeps memory that is
/// freed, which counts as long as it is open (docs/hardware.md, "descriptors of address ranges").
pub(super) fn export_range(
    call: &Call<'_, CUresult>,
    place: *mut c_void,
    address: CUdeviceptr,
    _bytes: usize,
    _kind: CUmemRangeHandleType,
    _flags: u64,
) -> Handled {
    let shim = state::managed()?;
    Bypass::BadArgument.when(place.is_null())?;
    if let Some(backing) = shim.accounts().mappings.mapped_at(address) {
        return export_descriptor(call, place.cast(), |file| name_exported(shim, &backing, file));
    }
    let (base, bytes) = super::ipc::range_of(address).ok_or(Bypass::BadArgument)?;
    let known = shim.accounts().allocations.key(base).ok_or(Bypass::Uncharged)?;
    export_descriptor(call, place.cast(), |file| {
        let named = ofd_key::assign(file, known, bytes, false);
        let (key, keeper) = key_and_keeper(shim, named, file)?;
        shim.accounts().allocations.note_export(base, key, keeper)
    })
}

/// Has the driver make a descriptor of memory, and calls `note` for it. If that fails, the descriptor is closed again,
/// before the application sees it.
fn export_descriptor(
    call: &Call<'_, CUresult>,
    place: *mut c_int,
    note: impl FnOnce(c_int) -> Result<(), Denied>,
) -> Handled {
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    call.real()?;
    note(kept.now()).map_err(|denied| {
        // SAFETY: closes what has just been made; the application does not know of it yet.
        unsafe { libc::close(kept.take_back()) };
        denied.into()
    })
}

/// The descriptor carries the memory's key, and the memory counts as long as it is open anywhere.
///
/// # Errors
/// The tenant has no place for one more object that may outlive its process.
fn name_exported(shim: &Shim, backing: &Backing, file: c_int) -> Result<(), Denied> {
    let named = ofd_key::assign(file, backing.key(), backing.bytes(), backing.is_multicast());
    let (key, keeper) = key_and_keeper(shim, named, file)?;
    backing.note_export(key, keeper)
}

/// The key under which memory is exported as a descriptor, and the descriptors that keep it from then on.
fn key_and_keeper(shim: &Shim, named: Option<OfdKey>, file: c_int) -> Result<(ObjectKey, Outlives), Denied> {
    match named {
        Some(named) => Ok((named.key, shim.accounts().exported.keeper(file, named.key))),
        // A file without locks: no process can tell whether it is open.
        None => ObjectKey::unique().map(|key| (key, Outlives::UNPROVABLE)).map_err(|_| Denied),
    }
}

/// `cuMemImportFromShareableHandle`.
pub(super) fn import(
    call: &Call<'_, CUresult>,
    handle: *mut CUmemGenericAllocationHandle,
    shareable: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> Handled {
    let shim = state::managed()?;
    let kept = SavedAnswer::at(handle).ok_or(Bypass::BadArgument)?;
    let tag = match kind {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the descriptor is passed in the pointer's place"
        )]
        #[expect(clippy::cast_possible_wrap, reason = "as above")]
        CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR => ofd_key::read(shareable as usize as c_int),
        CUmemAllocationHandleType::FABRIC => peek(shareable.cast_const().cast()).map(|handle| OfdKey {
            key: fabric_key(&handle),
            bytes: 0,
            is_multicast: false,
        }),
        _ => None,
    };
    // Held before the driver is asked: its exporter may let go meanwhile.
    let known = tag.filter(|tag| !tag.is_multicast).and_then(|tag| Charge::join(shim, tag.key));
    call.real()?;
    let imported = kept.now();
    let found = match known {
        Some(charge) => Ok(Some(Backing::charged(charge))),
        None => from_outside(shim, imported, tag, || name(shareable, kind)),
    };
    match found {
        Ok(Some(backing)) => shim.accounts().mappings.retain(imported, Arc::new(backing)),
        Ok(None) => {} // not on a GPU of this process
        Err(denied) => {
            // SAFETY: gives back what has just been imported; the application does not know of it yet.
            let _ = unsafe { real::cuMemRelease(kept.take_back()) };
            return Err(denied.into());
        }
    }
    Ok(())
}

/// The backing of memory that the tenant does not know.
///
/// # Errors
/// Its size is known, and does not fit.
fn from_outside(
    shim: &'static Shim,
    handle: CUmemGenericAllocationHandle,
    tag: Option<OfdKey>,
    name: impl Fn() -> Option<OfdKey>,
) -> Result<Option<Backing>, Denied> {
    if let Some(tag) = tag.filter(|tag| tag.is_multicast) {
        return Ok(Some(Backing::multicast(Some(tag.key))));
    }
    let Some(device) = device_of(shim, handle) else {
        return Ok(None);
    };
    if let Some(tag) = tag.filter(|tag| tag.bytes > 0) {
        return Charge::join_foreign(device, tag.key, tag.bytes).map(|charge| Some(Backing::charged(charge)));
    }
    let key = tag.or_else(name).map(|tag| tag.key);
    let key = key.or_else(|| ObjectKey::unique().ok());
    Ok(key.map(|key| Backing::of_unknown_size(device, key)))
}

/// Names memory that has no name yet, so that other processes of the tenant know it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the descriptor is passed in the pointer's place"
)]
fn name(shareable: *mut c_void, kind: CUmemAllocationHandleType) -> Option<OfdKey> {
    (kind == CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR)
        .then(|| ofd_key::assign(shareable as usize as c_int, None, 0, false))
        .flatten()
}

/// The bytes of a `CUmemFabricHandle`.
type FabricHandle = [u8; 64];

/// A fabric handle names its memory in all processes.
fn fabric_key(handle: &FabricHandle) -> ObjectKey {
    ObjectKey::of(handle)
}

/// Device of imported memory; `None` if it is not on a GPU, or is a multicast object.
fn device_of(shim: &'static Shim, handle: CUmemGenericAllocationHandle) -> Option<&'static Device> {
    let mut properties = core::mem::MaybeUninit::<CUmemAllocationProp>::zeroed();
    // SAFETY: the driver writes the properties or nothing.
    unsafe { real::cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), handle) }.ok()?;
    // SAFETY: zeroed, which is a valid value of each field, and filled by the driver.
    let location = unsafe { properties.assume_init() }.location;
    if is_device(location.r#type) { shim.device(location.id) } else { None }
}
