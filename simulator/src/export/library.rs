//! Libraries and kernels (CUDA Driver API, "Library Management").

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::base::ffi::{is_possible, put, put_at, put_if_wanted, text};
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
    cuLibraryGetKernelCount => get_kernel_count;
    cuLibraryEnumerateKernels => enumerate_kernels;
    cuLibraryGetModule => get_module;
    cuLibraryGetGlobal => get_global;
    cuLibraryGetManaged => get_managed;
    cuLibraryGetUnifiedFunction => get_unified_function;
    cuKernelGetFunction => get_function;
    cuKernelGetLibrary => get_library;
    cuKernelGetName => get_name;
    cuKernelGetAttribute => get_attribute;
    cuKernelSetAttribute => set_attribute;
    cuKernelSetCacheConfig => set_cache_config;
    cuKernelGetParamInfo => get_parameter_info;
    cuKernelGetParamCount => get_parameter_count;
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

fn get_kernel_count(place: *mut c_uint, handle: CUlibrary) -> CUresult {
    put(place, library(handle)?.image.kernels.len() as c_uint)
}

fn enumerate_kernels(kernels: *mut CUkernel, count: c_uint, handle: CUlibrary) -> CUresult {
    let library = library(handle)?;
    if kernels.is_null() && count > 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    for (index, kernel) in library.image.kernels.iter().take(count as usize).enumerate() {
        put_at(kernels, index, CUkernel(library.kernel(&kernel.name)?));
    }
    Ok(())
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

/// A managed variable; images do not mark them, so none is found.
fn get_managed(
    _place: *mut CUdeviceptr,
    _bytes: *mut usize,
    handle: CUlibrary,
    _name: *const c_char,
) -> CUresult {
    library(handle)?;
    Err(CUerror::NOT_FOUND)
}

/// The address of a unified function; there is no device code here.
fn get_unified_function(_place: *mut *mut c_void, handle: CUlibrary, _symbol: *const c_char) -> CUresult {
    library(handle)?;
    Err(CUerror::NOT_FOUND)
}

/// A kernel's function in the current context.
fn get_function(place: *mut CUfunction, handle: CUkernel) -> CUresult {
    let kernel = kernel(handle)?;
    put(place, CUfunction(kernel.function(&*current()?)?.handle))
}

fn get_library(place: *mut CUlibrary, handle: CUkernel) -> CUresult {
    put(place, CUlibrary(kernel(handle)?.library))
}

/// The string lives as long as the kernel.
fn get_name(place: *mut *const c_char, handle: CUkernel) -> CUresult {
    put(place, kernel(handle)?.name.as_ptr())
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

fn get_parameter_info(handle: CUkernel, index: usize, offset: *mut usize, size: *mut usize) -> CUresult {
    function::put_parameter(&kernel(handle)?.info, index, offset, size)
}

fn get_parameter_count(handle: CUkernel, place: *mut usize) -> CUresult {
    put(place, kernel(handle)?.info.parameters.as_ref().map_or(0, Vec::len))
}
