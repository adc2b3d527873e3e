//! Names and texts of result codes (CUDA Driver API, "Error Handling").

use core::ffi::CStr;

use crate::export::prelude::*;

export! {
    cuGetErrorString => |code, place| answer(code.err().map_or(Some(c"no error"), CUerror::message), place);
    cuGetErrorName => |code, place| answer(code.err().map_or(Some(c"CUDA_SUCCESS"), CUerror::c_name), place);
}

/// "If the error code is not recognized, CUDA_ERROR_INVALID_VALUE will be returned and *pStr will be set to
/// the NULL address."
fn answer(text: Option<&'static CStr>, place: *mut *const c_char) -> CUresult {
    put(place, text.map_or(core::ptr::null(), CStr::as_ptr))?;
    if text.is_some() { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}
