//! Libraries and kernels (CUDA Driver API, "Library Management").

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{is_possible, put, put_if_wanted, text};
use crate::base::image::Image;
use crate::export::function;
use crate::object::current::current;
use crate::object::library::{Library, kernel, library};
use crate::object::process::{device, process};

export! {
    cuLibraryLoadData => load_data;
    cuLibraryLoadFromFile => load_from_file;
    cuLibraryUnload => unload;
    cuLibraryGetKernel => get_kernel;
    cuLibraryGetModule => get_module;
    cuLibraryGetGlobal => get_global;
    cuKernelGetFunction => get_function;
    cuKernelGetAttribute => get_attribute;
    cuKernelSetAttribute => set_attribute;
    cuKernelSetCacheConfig => set_cache_config;
}

fn keep(place: *mut CUlibrary, image: Image) -> CUresult {
    put(place, CUlibrary(Library::create(Arc::new(image)).handle))
}

/// Loads a library. No context is needed, as the code is loaded into each at its first use there.
#[expect(clippy::too_many_arguments, reason = "the API's prototype")]
fn load_data(
    place: *mut CUlibrary,
    code: *const c_void,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> CUresult {
    process()?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::export::linker::answer_options(count, options, values)?;
    keep(place, Image::load(code)?)
}

#[expect(clippy::too_many_arguments, reason = "the API's prototype")]
fn load_from_file(
    place: *mut CUlibrary,
    name: *const c_char,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> CUresult {
    process()?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    crate::export::linker::answer_options(count, options, values)?;
    keep(place, crate::export::module::read_file(name)?)
}

fn unload(handle: CUlibrary) -> CUresult {
    library(handle)?.unload();
    Ok(())
}

fn get_kernel(place: *mut CUkernel, handle: CUlibrary, name: *const c_char) -> CUresult {
    let library = library(handle)?;
    let name = text(name)?.to_str().map_err(|_| CUerror::NOT_FOUND)?;
    put(place, CUkernel(library.kernel(name)?))
}

/// The library's module in the current context.
fn get_module(place: *mut CUmodule, handle: CUlibrary) -> CUresult {
    let library = library(handle)?;
    put(place, CUmodule(library.module(&*current()?)?.handle))
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

/// A kernel's function in the current context.
fn get_function(place: *mut CUfunction, handle: CUkernel) -> CUresult {
    let kernel = kernel(handle)?;
    put(place, CUfunction(kernel.function(&*current()?)?.handle))
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
