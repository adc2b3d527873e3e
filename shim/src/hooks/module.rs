//! Code on the GPU, and the heaps of a context: the driver takes memory for them, which is measured when it has changed.
//! A library is loaded into a context when its module or one of its kernels is first asked for.

use vcuda_driver_api::prelude::*;

use crate::ffi::Call;
use crate::{overhead, shim, timing};

/// Nothing is limited: the driver alone is asked.
#[inline]
pub(super) fn idle() -> bool {
    shim::passes()
}

fn measured(call: &Call<'_, CUresult>) -> CUresult {
    call.real()?;
    overhead::changed();
    Ok(())
}

/// For what programs call thousands of times.
fn followed(call: &Call<'_, CUresult>) -> CUresult {
    call.real()?;
    if let Some(shim) = shim::get() {
        shim.look_if_due();
    }
    Ok(())
}

/// `cuModuleLoad`.
pub(super) fn load(call: &Call<'_, CUresult>, _module: *mut CUmodule, _path: *const c_char) -> CUresult {
    measured(call)
}

/// `cuModuleLoadData`.
pub(super) fn load_data(
    call: &Call<'_, CUresult>,
    _module: *mut CUmodule,
    _image: *const c_void,
) -> CUresult {
    measured(call)
}

/// `cuModuleLoadDataEx`.
pub(super) fn load_data_ex(
    call: &Call<'_, CUresult>,
    _module: *mut CUmodule,
    _image: *const c_void,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> CUresult {
    measured(call)
}

/// `cuModuleLoadFatBinary`.
pub(super) fn load_fat_binary(
    call: &Call<'_, CUresult>,
    _module: *mut CUmodule,
    _image: *const c_void,
) -> CUresult {
    measured(call)
}

/// `cuLibraryLoadData`.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
pub(super) fn library_load(
    call: &Call<'_, CUresult>,
    _library: *mut CUlibrary,
    _code: *const c_void,
    _jit_options: *mut CUjit_option,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut CUlibraryOption,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> CUresult {
    measured(call)
}

/// `cuLibraryLoadFromFile`.
#[expect(clippy::too_many_arguments, reason = "the driver's prototype")]
pub(super) fn library_load_file(
    call: &Call<'_, CUresult>,
    _library: *mut CUlibrary,
    _path: *const c_char,
    _jit_options: *mut CUjit_option,
    _jit_values: *mut *mut c_void,
    _jit_count: c_uint,
    _options: *mut CUlibraryOption,
    _values: *mut *mut c_void,
    _count: c_uint,
) -> CUresult {
    measured(call)
}

/// `cuLibraryGetModule`.
pub(super) fn library_module(
    call: &Call<'_, CUresult>,
    _module: *mut CUmodule,
    _library: CUlibrary,
) -> CUresult {
    followed(call)
}

/// `cuKernelGetFunction`.
pub(super) fn kernel_function(
    call: &Call<'_, CUresult>,
    _function: *mut CUfunction,
    _kernel: CUkernel,
) -> CUresult {
    followed(call)
}

/// `cuCtxSetLimit`: stacks, heaps and buffers of the device's side.
pub(super) fn set_limit(call: &Call<'_, CUresult>, _limit: CUlimit, _value: usize) -> CUresult {
    measured(call)
}

/// `cuModuleUnload`. Handles of its kernels may come back as others: what they cost is learnt anew.
pub(super) fn unload(call: &Call<'_, CUresult>, _module: CUmodule) -> CUresult {
    call.real()?;
    timing::COSTS.relearn_all();
    overhead::changed();
    Ok(())
}

/// `cuLibraryUnload`: as a module.
pub(super) fn library_unload(call: &Call<'_, CUresult>, _library: CUlibrary) -> CUresult {
    call.real()?;
    timing::COSTS.relearn_all();
    overhead::changed();
    Ok(())
}
