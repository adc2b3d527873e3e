//! Memory of other interfaces, such as Vulkan (CUDA Driver API, "External Resource Interoperability"). It is charged
//! when it is imported, with the size that the application names, on the device of the current context. What is mapped
//! from it holds it, and costs nothing more.
//!
//! The descriptor may also be one that a process of the tenant has exported (`cuMemExportToShareableHandle`): then it
//! is paid for already.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use super::memory::freed_as;
use super::table::Handlers;
use crate::driver::saved_answer::peek;
use crate::driver::{Bypass, Call, Handled};
use crate::memory::allocations::{Allocation, Holds, Kind};
use crate::memory::charge::Charge;
use crate::memory::state;
use crate::runtime::ofd_key;
use crate::runtime::shim;
use crate::runtime::shim::devices::current_context;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// `cuImportExternalMemory`.
pub(super) fn import(
    call: &Call<'_, CUresult>,
    memory: *mut CUexternalMemory,
    description: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> Handled {
    let shim = state::managed()?;
    Bypass::BadArgument.when(memory.is_null())?;
    let description = peek(description).ok_or(Bypass::BadArgument)?;
    let device = shim.current_device().ok_or(Bypass::NoContext)?;
    Bypass::BadArgument.when(!is_plausible(&description))?;
    let context = current_context();
    // After success the descriptor belongs to the driver, so it is read before.
    let key = file_of(&description)
        .and_then(|file| ofd_key::assign(file, None, description.size, false))
        .map(|tag| tag.key);
    let known = key.and_then(|key| Charge::join(shim, key));
    let charge = match (known, key) {
        (Some(charge), _) => charge,
        (None, Some(key)) => Charge::join_foreign(device, key, description.size)?,
        (None, None) => device.reserve(description.size)?.into(),
    };
    call.real()?;
    // SAFETY: the driver returned success, so it has just written a handle here.
    let memory = unsafe { memory.read() };
    let imported = Allocation::new(context, Kind::External, Holds::Part(Arc::new(charge)));
    drop(shim.accounts().allocations.insert(memory.0 as u64, imported));
    Ok(())
}

/// `cuExternalMemoryGetMappedBuffer`: ends by `cuMemFree`.
pub(super) fn buffer(
    call: &Call<'_, CUresult>,
    address: *mut CUdeviceptr,
    memory: CUexternalMemory,
    _description: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> Handled {
    mapped(call, address, memory, Kind::Linear, |address| address)
}

/// `cuExternalMemoryGetMappedMipmappedArray`: ends by `cuMipmappedArrayDestroy`.
pub(super) fn mipmap(
    call: &Call<'_, CUresult>,
    mipmap: *mut CUmipmappedArray,
    memory: CUexternalMemory,
    _description: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
) -> Handled {
    mapped(call, mipmap, memory, Kind::Mipmap, |mipmap| mipmap.0 as u64)
}

/// `cuDestroyExternalMemory`: what is mapped from it is freed by itself ("must be explicitly freed").
pub(super) fn destroy(call: &Call<'_, CUresult>, memory: CUexternalMemory) -> Handled {
    freed_as(call, memory.0 as u64, Kind::External)
}

fn mapped<H: Copy>(
    call: &Call<'_, CUresult>,
    place: *mut H,
    memory: CUexternalMemory,
    kind: Kind,
    name: impl Fn(H) -> u64,
) -> Handled {
    let shim = state::managed()?;
    let whole = shim.accounts().allocations.external(memory.0 as u64);
    call.real()?;
    if let Some(whole) = whole.filter(|_| !place.is_null()) {
        // SAFETY: the driver returned success, so it has just written an address or a handle here.
        let name = name(unsafe { place.read() });
        let part = Allocation::new(current_context(), kind, Holds::Part(whole));
        drop(shim.accounts().allocations.insert(name, part));
    }
    Ok(())
}

/// The descriptor, if the memory comes as one.
fn file_of(description: &CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> Option<c_int> {
    use CUexternalMemoryHandleType as Type;
    // SAFETY: the kind says that this member was filled; any number is valid.
    matches!(description.r#type, Type::OPAQUE_FD | Type::DMABUF_FD).then(|| unsafe { description.handle.fd })
}

/// Whether the driver may find memory by this description: a known kind, some size, and an open descriptor. Otherwise
/// the driver reports what is wrong, whatever the size.
fn is_plausible(description: &CUDA_EXTERNAL_MEMORY_HANDLE_DESC) -> bool {
    let known = CUexternalMemoryHandleType::OPAQUE_FD.0..=CUexternalMemoryHandleType::DMABUF_FD.0;
    // SAFETY: asks for the flags of a descriptor, which may be any number.
    let is_open = |file| unsafe { libc::fcntl(file, libc::F_GETFD) } >= 0;
    description.size > 0 && known.contains(&description.r#type.0) && file_of(description).is_none_or(is_open)
}
