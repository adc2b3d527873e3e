//! Code on the GPU, and the heaps of a context: the driver takes memory for them, which is measured when it has changed, and
//! taken back if it does not fit. A library is loaded into a context when its module or one of its kernels is first asked
//! for, or when a kernel is first launched.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::compute;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::overhead::{self, DriverObject, What};
use crate::memory::state;
use crate::runtime::devices::current_context;
use crate::runtime::shim;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// Has the driver take memory for a thing in the current context, or undo it if that does not fit.
fn taken(
    call: &Call<'_, CUresult>,
    what: What,
    thing: impl FnOnce(CUcontext) -> DriverObject,
    unmake: impl FnOnce(),
) -> Handled {
    let shim = state::managed()?;
    let device = shim.current_device().ok_or(Bypass::NoContext)?;
    Bypass::Uncharged.when(device.grant.is_none())?;
    let bytes = overhead::take(device, what, || call.real(), unmake)?;
    let context = current_context();
    shim.accounts()
        .overhead
        .note(device, context, thing(context), bytes);
    Ok(())
}

/// A module that does not fit is unloaded again, and its handle with it.
fn module(call: &Call<'_, CUresult>, place: *mut CUmodule) -> Handled {
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    taken(
        call,
        What::Code,
        |_| DriverObject::Module(kept.now()),
        || {
            // SAFETY: just loaded, and no other code uses it yet.
            let _ = unsafe { real::cuModuleUnload(kept.take_back()) };
        },
    )
}

/// A library, as a module. One that is loaded before there is a context takes nothing yet.
fn library(call: &Call<'_, CUresult>, place: *mut CUlibrary) -> Handled {
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    taken(
        call,
        What::Code,
        |_| DriverObject::Library(kept.now()),
        || {
            // SAFETY: just loaded, and no other code uses it yet.
            let _ = unsafe { real::cuLibraryUnload(kept.take_back()) };
        },
    )
}

/// For what programs call thousands of times, and what cannot be undone.
fn followed(call: &Call<'_, CUresult>) -> Handled {
    Ok(overhead::may_take(|| call.real())?)
}

/// `cuModuleLoad`.
pub(super) fn load(call: &Call<'_, CUresult>, place: *mut CUmodule, _path: *const c_char) -> Handled {
    module(call, place)
}

/// `cuModuleLoadData`, `cuModuleLoadFatBinary`.
pub(super) fn load_data(call: &Call<'_, CUresult>, place: *mut CUmodule, _image: *const c_void) -> Handled {
    module(call, place)
}

/// `cuModuleLoadDataEx`.
pub(super) fn load_data_ex(
    call: &Call<'_, CUresult>,
    place: *mut CUmodule,
    _image: *const c_void,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> Handled {
    module(call, place)
}

/// `cuLibraryLoadData`.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
pub(super) fn library_load(
    call: &Call<'_, CUresult>,
    place: *mut CUlibrary,
    _code: *const c_void,
    _jit_options: *mut CUjit_option,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut CUlibraryOption,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> Handled {
    library(call, place)
}

/// `cuLibraryLoadFromFile`.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
pub(super) fn library_load_file(
    call: &Call<'_, CUresult>,
    place: *mut CUlibrary,
    _path: *const c_char,
    _jit_options: *mut CUjit_option,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut CUlibraryOption,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> Handled {
    library(call, place)
}

/// `cuLibraryGetModule`.
pub(super) fn library_module(
    call: &Call<'_, CUresult>,
    _module: *mut CUmodule,
    _library: CUlibrary,
) -> Handled {
    followed(call)
}

/// `cuKernelGetFunction`.
pub(super) fn kernel_function(
    call: &Call<'_, CUresult>,
    _function: *mut CUfunction,
    _kernel: CUkernel,
) -> Handled {
    followed(call)
}

/// `cuFuncLoad`.
pub(super) fn function_load(call: &Call<'_, CUresult>, _function: CUfunction) -> Handled {
    followed(call)
}

/// `cuCtxSetLimit`: stacks, heaps and buffers of the device's side. What that takes is known afterwards; a limit that does
/// not fit is set back.
pub(super) fn set_limit(call: &Call<'_, CUresult>, limit: CUlimit, value: usize) -> Handled {
    let mut before = 0;
    // SAFETY: the driver writes a number or nothing.
    unsafe { real::cuCtxGetLimit(&raw mut before, limit) }.map_err(|_| Bypass::BadArgument)?;
    if value < before {
        return lowered(call, DriverObject::Limit(current_context(), limit));
    }
    taken(
        call,
        What::Heap,
        |context| DriverObject::Limit(context, limit),
        || {
            // SAFETY: takes numbers only.
            let _ = unsafe { real::cuCtxSetLimit(limit, before) };
        },
    )
}

/// A limit is lowered: what that frees is known afterwards too.
fn lowered(call: &Call<'_, CUresult>, limit: DriverObject) -> Handled {
    let shim = state::managed()?;
    let device = shim.current_device().ok_or(Bypass::NoContext)?;
    Bypass::Uncharged.when(device.grant.is_none())?;
    Ok(shim.accounts().overhead.lower(device, limit, || call.real())?)
}

/// `cuCtxEnablePeerAccess`: page tables on the current device.
pub(super) fn enable_peer(call: &Call<'_, CUresult>, peer: CUcontext, _flags: c_uint) -> Handled {
    taken(call, What::Code, DriverObject::Context, || {
        // SAFETY: the driver has just taken this handle.
        let _ = unsafe { real::cuCtxDisablePeerAccess(peer) };
    })
}

/// `cuModuleUnload`. Handles of its kernels may come back as others: what they cost is learnt anew.
pub(super) fn unload(call: &Call<'_, CUresult>, module: CUmodule) -> Handled {
    ended(call, DriverObject::Module(module))
}

/// `cuLibraryUnload`: as a module.
pub(super) fn library_unload(call: &Call<'_, CUresult>, library: CUlibrary) -> Handled {
    ended(call, DriverObject::Library(library))
}

fn ended(call: &Call<'_, CUresult>, thing: DriverObject) -> Handled {
    let shim = state::managed()?;
    let device = shim.current_device().filter(|device| device.grant.is_some());
    shim.accounts().overhead.end(device, thing, || call.real())?;
    compute::COSTS.relearn_all();
    Ok(())
}
