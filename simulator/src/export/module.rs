//! Modules (CUDA Driver API, "Module Management").

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::base::image::Image;
use crate::export::prelude::*;
use crate::object::module::{Module, module};

export! {
    cuModuleLoad => |place, name| load_image(place, || read_file(name));
    cuModuleLoadData => load_data;
    cuModuleLoadDataEx => load_data_ex;
    cuModuleLoadFatBinary => load_data;
    cuModuleUnload => unload;
    cuModuleGetFunction => get_function;
    cuModuleGetGlobal_v2 => get_global;
}

/// Reads an image from a file. Error: `CUDA_ERROR_FILE_NOT_FOUND`, and those of [`Image::parse`].
pub(crate) fn read_file(name: *const c_char) -> Result<Image, CUerror> {
    let path = Path::new(OsStr::from_bytes(text(name)?.to_bytes()));
    Image::parse(&std::fs::read(path).map_err(|_| CUerror::FILE_NOT_FOUND)?)
}

/// Loads a module into the current context.
fn load_image(place: *mut CUmodule, image: impl FnOnce() -> Result<Image, CUerror>) -> CUresult {
    let context = current()?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    put(place, CUmodule(Module::load(Arc::new(image()?), &context)?.handle))
}

fn load_data(place: *mut CUmodule, image: *const c_void) -> CUresult {
    load_image(place, || Image::load(image))
}

/// Loads a module with options. Without a compiler they have no effect; requested logs and times are written as empty.
fn load_data_ex(
    place: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    crate::export::linker::answer_options(count, options, values)?;
    load_data(place, image)
}

/// Unloads a module, but not a library's (`CUDA_ERROR_NOT_PERMITTED`).
fn unload(handle: CUmodule) -> CUresult {
    let module = module(handle)?;
    current()?;
    if crate::object::library::owns(module.handle) {
        return Err(CUerror::NOT_PERMITTED);
    }
    module.unload();
    Ok(())
}

fn get_function(place: *mut CUfunction, handle: CUmodule, name: *const c_char) -> CUresult {
    let module = module(handle)?;
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    let name = text(name)?.to_str().map_err(|_| CUerror::NOT_FOUND)?;
    put(place, CUfunction(module.function(name)?.handle))
}

/// "It is possible that either dptr or bytes is NULL", but not both (docs/hardware.md, "modules").
fn get_global(place: *mut CUdeviceptr, bytes: *mut usize, handle: CUmodule, name: *const c_char) -> CUresult {
    let module = module(handle)?;
    let name = text(name)?.to_str().map_err(|_| CUerror::NOT_FOUND)?;
    let (address, length) = module.global(name).ok_or(CUerror::NOT_FOUND)?;
    put_if_wanted(place, address);
    put_if_wanted(bytes, length as usize);
    Ok(())
}
