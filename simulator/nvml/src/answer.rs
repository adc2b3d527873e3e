//! Access to memory of NVML's callers by pointer.
//!
//! As with the real library, a dangling pointer harms only its caller. A null pointer is refused with
//! `NVML_ERROR_INVALID_ARGUMENT`.

use std::ffi::{CStr, c_char, c_uint};
use vcuda_driver_api::{NvmlError, nvmlReturn_t};

/// Whether an address can belong to this process: neither in the lowest 64 KiB, which Linux never maps, nor beyond 47 bits.
/// The real library would fault there; this one lets programs try invalid pointers.
fn is_possible<T>(place: *const T) -> bool {
    (1 << 16..1 << 47).contains(&place.addr())
}

pub(crate) fn put<T>(target: *mut T, value: T) -> nvmlReturn_t {
    if !is_possible(target) {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    // SAFETY: not null; by NVML's contract the caller has room for one `T` there.
    unsafe { target.write(value) };
    Ok(())
}

/// Reads an argument passed by address.
pub(crate) fn get<T: Copy>(source: *const T) -> Result<T, NvmlError> {
    if !is_possible(source) {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    // SAFETY: not null; by NVML's contract the caller has filled in a `T` there.
    Ok(unsafe { source.read() })
}

/// Checks the `version` word at the beginning of a structure; other versions than `known` are refused before more is read.
pub(crate) fn version<T>(structure: *const T, known: c_uint) -> nvmlReturn_t {
    match get(structure.cast::<c_uint>())? {
        version if version == known => Ok(()),
        _ => Err(NvmlError::ARGUMENT_VERSION_MISMATCH),
    }
}

/// Writes `values` to the caller's array. `count` is its length, and is set to the number of values.
///
/// If they do not fit: `NVML_ERROR_INSUFFICIENT_SIZE`, with the required length in `count`.
pub(crate) fn put_all<T: Copy>(array: *mut T, count: *mut c_uint, values: &[T]) -> nvmlReturn_t {
    let room = get(count)?;
    let needed = c_uint::try_from(values.len()).unwrap_or(c_uint::MAX);
    put(count, needed)?;
    if room < needed {
        return Err(NvmlError::INSUFFICIENT_SIZE);
    }
    if !is_possible(array) && needed > 0 {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    for (index, value) in values.iter().enumerate() {
        // SAFETY: the caller says that the array has at least `values.len()` elements.
        let element = unsafe { array.add(index) };
        put(element, *value)?;
    }
    Ok(())
}

/// Writes text and its NUL into a buffer of `length` bytes; `NVML_ERROR_INSUFFICIENT_SIZE` if it does not fit.
pub(crate) fn put_text(target: *mut c_char, length: c_uint, text: &str) -> nvmlReturn_t {
    if !is_possible(target) {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    if usize::try_from(length).unwrap_or(0) <= text.len() {
        return Err(NvmlError::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller says that `length` bytes, more than the text has, may be written there.
    unsafe { target.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    // SAFETY: `text.len()` is below `length`.
    let end = unsafe { target.add(text.len()) };
    put(end, 0)
}

/// A C string argument; text that is not UTF-8 matches no name.
pub(crate) fn text<'a>(source: *const c_char) -> Result<&'a str, NvmlError> {
    if !is_possible(source) {
        return Err(NvmlError::INVALID_ARGUMENT);
    }
    // SAFETY: not null; by NVML's contract terminated, and it lives as long as the call, which is all we need.
    let text = unsafe { CStr::from_ptr(source) };
    text.to_str().map_err(|_| NvmlError::NOT_FOUND)
}

/// `text` in a fixed field of a structure, cut to leave room for the NUL.
pub(crate) fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    field
}
