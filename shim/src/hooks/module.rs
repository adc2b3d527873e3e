//! Code on the GPU, and the heaps of a context. The driver takes memory for them, which is measured when it has
//! changed; if it does not fit, the call is undone. A library is loaded into a context when its module or one of its
//! kernels is first asked for, or when a kernel is first launched.

use vcuda_driver_api::prelude::*;

use super::table::Handlers;
use crate::compute;
use crate::driver::saved_answer::SavedAnswer;
use crate::driver::{Bypass, Call, Handled, real};
use crate::memory::code;
use crate::memory::overhead::{self, DriverObject, ObjectKind};
use crate::memory::state;
use crate::runtime::shim;
use crate::runtime::shim::devices::current_context;

/// Properties of these handlers that the table needs.
pub(super) const HANDLERS: Handlers = Handlers::MOVING_MEMORY;

/// Whether no limit applies, so that the driver alone answers.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

/// Has the driver make an object in the current context, and charges it. If it does not fit, it is undone.
fn make_in_context(
    call: &Call<'_, CUresult>,
    kind: ObjectKind,
    object: impl FnOnce(CUcontext) -> DriverObject,
    unmake: impl FnOnce(),
) -> Handled {
    let shim = state::managed()?;
    let device = shim.current_device().ok_or(Bypass::NoContext)?;
    Bypass::Uncharged.when(device.grant.is_none())?;
    let bytes = overhead::make_charged(device, kind, || call.real(), unmake)?;
    let context = current_context();
    shim.accounts().overhead.note(device, context, object(context), bytes);
    Ok(())
}

/// Loads a module. One that does not fit is unloaded again, and its handle with it.
fn module(call: &Call<'_, CUresult>, place: *mut CUmodule) -> Handled {
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    make_in_context(
        call,
        ObjectKind::Code,
        |_| DriverObject::Module(kept.now()),
        || {
            // SAFETY: just loaded, and no other code uses it yet.
            let _ = unsafe { real::cuModuleUnload(kept.take_back()) };
        },
    )
}

/// Loads a library, as [`module`]. One that is loaded before there is a context takes nothing yet.
fn library(call: &Call<'_, CUresult>, place: *mut CUlibrary) -> Handled {
    let kept = SavedAnswer::at(place).ok_or(Bypass::BadArgument)?;
    make_in_context(
        call,
        ObjectKind::Code,
        |_| DriverObject::Library(kept.now()),
        || {
            // SAFETY: just loaded, and no other code uses it yet.
            let _ = unsafe { real::cuLibraryUnload(kept.take_back()) };
        },
    )
}

/// Makes a call that programs repeat thousands of times, or that cannot be undone: it is measured later.
fn measured_later(call: &Call<'_, CUresult>) -> Handled {
    Ok(code::make_with_code(|| call.real())?)
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
    measured_later(call)
}

/// `cuKernelGetFunction`.
pub(super) fn kernel_function(
    call: &Call<'_, CUresult>,
    _function: *mut CUfunction,
    _kernel: CUkernel,
) -> Handled {
    measured_later(call)
}

/// `cuFuncLoad`.
pub(super) fn function_load(call: &Call<'_, CUresult>, _function: CUfunction) -> Handled {
    measured_later(call)
}

/// `cuCtxSetLimit`: stacks, heaps and buffers on the device. A heap or a buffer that cannot fit is refused before the driver is
/// asked. The rest is known afterwards; a limit that does not fit is set back.
pub(super) fn set_limit(call: &Call<'_, CUresult>, limit: CUlimit, value: usize) -> Handled {
    let mut before = 0;
    // SAFETY: the driver writes a number or nothing.
    unsafe { real::cuCtxGetLimit(&raw mut before, limit) }.map_err(|_| Bypass::BadArgument)?;
    if value < before {
        return lowered(call, DriverObject::Limit(current_context(), limit));
    }
    // The size itself ("size in bytes of the heap", "of the FIFO": CUDA Driver API, `cuCtxSetLimit`).
    let is_size = matches!(limit, CUlimit::MALLOC_HEAP_SIZE | CUlimit::PRINTF_FIFO_SIZE);
    let most_bytes = if is_size { (value - before) as u64 } else { 0 };
    make_in_context(
        call,
        ObjectKind::Heap(most_bytes),
        |context| DriverObject::Limit(context, limit),
        || {
            // SAFETY: takes numbers only.
            let _ = unsafe { real::cuCtxSetLimit(limit, before) };
        },
    )
}

/// Lowers a limit; what that frees is known afterwards.
fn lowered(call: &Call<'_, CUresult>, limit: DriverObject) -> Handled {
    let shim = state::managed()?;
    let device = shim.current_device().ok_or(Bypass::NoContext)?;
    Bypass::Uncharged.when(device.grant.is_none())?;
    Ok(shim.accounts().overhead.lower(device, limit, || call.real())?)
}

/// `cuCtxEnablePeerAccess`: page tables on the current device.
pub(super) fn enable_peer(call: &Call<'_, CUresult>, peer: CUcontext, _flags: c_uint) -> Handled {
    make_in_context(call, ObjectKind::Code, DriverObject::Context, || {
        // SAFETY: the driver has just taken this handle.
        let _ = unsafe { real::cuCtxDisablePeerAccess(peer) };
    })
}

/// `cuModuleUnload`. Handles of its kernels may be reused: their costs are learnt anew.
pub(super) fn unload(call: &Call<'_, CUresult>, module: CUmodule) -> Handled {
    ended(call, DriverObject::Module(module))
}

/// `cuLibraryUnload`: as a module.
pub(super) fn library_unload(call: &Call<'_, CUresult>, library: CUlibrary) -> Handled {
    ended(call, DriverObject::Library(library))
}

fn ended(call: &Call<'_, CUresult>, object: DriverObject) -> Handled {
    let shim = state::managed()?;
    let device = shim.current_device().filter(|device| device.grant.is_some());
    shim.accounts().overhead.end(device, object, || call.real())?;
    compute::COSTS.relearn_all();
    Ok(())
}
