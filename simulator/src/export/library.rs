//! Libraries and kernels (CUDA Driver API, "Library Management").

use std::sync::Arc;

use crate::base::image::Image;
use crate::export::function;
use crate::export::module::read_file;
use crate::export::prelude::*;
use crate::object::library::{Library, kernel, library};

export! {
    cuLibraryLoadData => |place, code, options, values, count, _, _, _|
        load(place, count, options, values, || Image::load(code));
    cuLibraryLoadFromFile => |place, name, options, values, count, _, _, _|
        load(place, count, options, values, || read_file(name));
    cuLibraryUnload => |handle| library(handle).map(|library| library.unload());
    cuLibraryGetKernel => get_kernel;
    // The library's module in the current context.
    cuLibraryGetModule => |place, handle| put(place, CUmodule(library(handle)?.module(&*current()?)?.handle));
    cuLibraryGetGlobal => get_global;
    // A kernel's function in the current context.
    cuKernelGetFunction => |place, handle|
        put(place, CUfunction(kernel(handle)?.function(&*current()?)?.handle));
    cuKernelGetAttribute => get_attribute;
    cuKernelSetAttribute => set_attribute;
    cuKernelSetCacheConfig => set_cache_config;
}

/// Loads a library. No context is needed, as the code is loaded into each at its first use there.
fn load(
    place: *mut CUlibrary,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    image: impl FnOnce() -> Result<Image, CUerror>,
) -> CUresult {
    process()?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::export::linker::answer_options(count, options, values)?;
    put(place, CUlibrary(Library::create(Arc::new(image()?)).handle))
}

fn get_kernel(place: *mut CUkernel, handle: CUlibrary, name: *const c_char) -> CUresult {
    let library = library(handle)?;
    let name = text(name)?.to_str().map_err(|_| CUerror::NOT_FOUND)?;
    put(place, CUkernel(library.kernel(name)?))
}

fn get_global(
    place: *mut CUdeviceptr,
    bytes: *mut usize,
    handle: CUlibrary,
    name: *const c_char,
) -> CUresult {
    let module = library(handle)?.module(&*current()?)?;
    let name = text(name)?.to_str().map_err(|_| CUerror::NOT_FOUND)?;
    let (address, length) = module.global(name).ok_or(CUerror::NOT_FOUND)?;
    put_if_wanted(place, address);
    put_if_wanted(bytes, length as usize);
    Ok(())
}

fn get_attribute(
    place: *mut c_int,
    attribute: CUfunction_attribute,
    handle: CUkernel,
    ordinal: CUdevice,
) -> CUresult {
    let kernel = kernel(handle)?;
    device(ordinal)?;
    let architecture = library(CUlibrary(kernel.library))?.image.architecture;
    put(place, function::value(attribute, &kernel.info, architecture, &kernel.settings)?)
}

/// Sets an attribute per kernel, not per device, as all simulated GPUs of a machine are alike (docs/hardware.md, "resources
/// of a kernel").
fn set_attribute(
    attribute: CUfunction_attribute,
    value: c_int,
    handle: CUkernel,
    ordinal: CUdevice,
) -> CUresult {
    let kernel = kernel(handle)?;
    device(ordinal)?;
    function::set_value(attribute, value, kernel.info.shared_bytes, &kernel.settings)?;
    for function in kernel.functions() {
        function.settings.copy_from(&kernel.settings);
    }
    Ok(())
}

fn set_cache_config(handle: CUkernel, config: CUfunc_cache, ordinal: CUdevice) -> CUresult {
    kernel(handle)?;
    device(ordinal)?;
    if config.0 > CUfunc_cache::EQUAL.0 { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
}
