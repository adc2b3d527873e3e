//! Linker (CUDA Driver API, "Module Management": `cuLink*`) without a compiler: the result is the last readable input.

use parking_lot::Mutex;

use crate::base::image::Image;
use crate::base::table::{Kind, Table};
use crate::export::prelude::*;

export! {
    cuLinkCreate | cuLinkCreate_v2 => create;
    // Adds an input, checked at once: `CUDA_ERROR_INVALID_PTX` and `CUDA_ERROR_INVALID_IMAGE`, as documented.
    cuLinkAddData | cuLinkAddData_v2 => |state, _kind, data, size, _name, _count, _options, _values|
        add(state, get_array(data.cast::<u8>().cast_const(), size)?);
    cuLinkAddFile | cuLinkAddFile_v2 => add_file;
    cuLinkComplete => complete;
    cuLinkDestroy => destroy;
}

static LINKS: Table<Mutex<Link>> = Table::new(Kind::Link);

#[derive(Debug, Default)]
struct Link {
    /// The resulting image; "the memory is owned by the CUlinkState".
    output: Vec<u8>,
}

/// Options for results: sizes of logs, and the elapsed time.
const SIZE_OPTIONS: [CUjit_option; 2] =
    [CUjit_option::INFO_LOG_BUFFER_SIZE_BYTES, CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES];
const LOG_OPTIONS: [CUjit_option; 2] = [CUjit_option::INFO_LOG_BUFFER, CUjit_option::ERROR_LOG_BUFFER];

/// Writes the results of options; logs are empty ("on output, the amount of log filled"). Error:
/// `CUDA_ERROR_INVALID_VALUE` for a null list of a count above zero.
pub(crate) fn answer_options(
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    let options = get_array(options, count as usize)?;
    let given = get_array(values, count as usize)?;
    let size_of = |option| options.iter().position(|known| *known == option).map(|at| given[at] as usize);
    for (index, option) in options.iter().enumerate() {
        if let Some(at) = LOG_OPTIONS.iter().position(|log| log == option)
            && size_of(SIZE_OPTIONS[at]).is_some_and(|size| size > 0)
        {
            put_if_wanted(given[index].cast::<c_char>(), 0);
        }
        if SIZE_OPTIONS.contains(option) {
            crate::base::ffi::put_at(values, index, core::ptr::null_mut());
        }
    }
    Ok(())
}

fn create(
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    place: *mut CUlinkState,
) -> CUresult {
    current()?;
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    answer_options(count, options, values)?;
    put(place, CUlinkState(LINKS.insert(Mutex::default())))
}

fn add_file(
    state: CUlinkState,
    _kind: CUjitInputType,
    path: *const c_char,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> CUresult {
    use std::os::unix::ffi::OsStrExt;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(text(path)?.to_bytes()));
    add(state, std::fs::read(path).map_err(|_| CUerror::FILE_NOT_FOUND)?)
}

fn add(state: CUlinkState, image: Vec<u8>) -> CUresult {
    process()?;
    let link = LINKS.get(state.0).ok_or(CUerror::INVALID_HANDLE)?;
    let parsed = Image::parse(&image)?;
    let mut link = link.lock();
    // A device library without kernels adds nothing to launch.
    if link.output.is_empty() || !parsed.kernels.is_empty() {
        link.output = image;
        // PTX is passed on as a string.
        link.output.push(0);
    }
    Ok(())
}

fn complete(state: CUlinkState, place: *mut *mut c_void, size: *mut usize) -> CUresult {
    process()?;
    let link = LINKS.get(state.0).ok_or(CUerror::INVALID_HANDLE)?;
    let link = link.lock();
    if link.output.is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    put_if_wanted(size, link.output.len());
    put(place, link.output.as_ptr().cast_mut().cast())
}

fn destroy(state: CUlinkState) -> CUresult {
    process()?;
    LINKS.remove(state.0).map(drop).ok_or(CUerror::INVALID_HANDLE)
}
