//! Access to memory of C callers by pointer.

use core::ffi::{CStr, c_char};

use vcuda_driver_api::{CUerror, CUresult};

/// Whether an address can belong to this process: neither in the lowest 64 KiB, which Linux never maps, nor beyond 47 bits.
/// A real driver would fault there; this one returns `CUDA_ERROR_INVALID_VALUE`, so that programs can try invalid pointers.
/// Any other invalid address faults here too.
#[inline]
pub(crate) fn is_possible<T>(place: *const T) -> bool {
    (1 << 16..1 << 47).contains(&(place as usize))
}

/// Writes a result to the caller's memory. Error: `CUDA_ERROR_INVALID_VALUE` for an impossible address.
#[inline]
pub(crate) fn put<T>(place: *mut T, value: T) -> CUresult {
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the API's contract is that a non-null result pointer has room for one T; unaligned is
    // tolerated since packed structures of some language bindings pass such.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// As [`put`], where the documentation allows a null pointer ("if NULL, it is ignored").
#[inline]
pub(crate) fn put_if_wanted<T>(place: *mut T, value: T) {
    if is_possible(place) {
        // SAFETY: not null, and by the API's contract there is room for one T.
        unsafe { place.write_unaligned(value) };
    }
}

/// Writes the `index`th element of a caller's array.
#[inline]
pub(crate) fn put_at<T>(array: *mut T, index: usize, value: T) {
    if is_possible(array) {
        // SAFETY: the API's contract is that the array has as many elements as the caller said.
        let place = unsafe { array.add(index) };
        put_if_wanted(place, value);
    }
}

/// Reads a structure that the caller passes by pointer. Error: `CUDA_ERROR_INVALID_VALUE` for a null pointer.
#[inline]
pub(crate) fn get<T: Copy>(place: *const T) -> Result<T, CUerror> {
    if !is_possible(place) {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: not null, and by the API's contract it points to one readable T.
    Ok(unsafe { place.read_unaligned() })
}

/// Maximum length of a caller's array; a larger count is taken for garbage.
pub(crate) const MOST_ELEMENTS: usize = 1 << 20;

/// Copies a caller's array of `count` elements; empty for a count of zero. Error: `CUDA_ERROR_INVALID_VALUE` for a null
/// pointer with a count above zero, and for a count above [`MOST_ELEMENTS`].
pub(crate) fn get_array<T: Copy>(array: *const T, count: usize) -> Result<Vec<T>, CUerror> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if !is_possible(array) || count > MOST_ELEMENTS {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut values = Vec::with_capacity(count);
    for index in 0..count {
        // SAFETY: the API's contract is that the array has `count` elements.
        let place = unsafe { array.add(index) };
        values.push(get(place)?);
    }
    Ok(values)
}

/// A caller's C string. Error: `CUDA_ERROR_INVALID_VALUE` for a null pointer.
pub(crate) fn text<'a>(string: *const c_char) -> Result<&'a CStr, CUerror> {
    if !is_possible(string) {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: not null, and by the API's contract a C string that outlives the call; callers of this
    // function copy what they keep.
    Ok(unsafe { CStr::from_ptr(string) })
}

/// Writes a string with its terminator into `room` bytes, cut if it is longer, as `cuDeviceGetName` does. Error:
/// `CUDA_ERROR_INVALID_VALUE` for a null pointer or no room.
pub(crate) fn put_text(place: *mut c_char, room: i32, value: &str) -> CUresult {
    let room = usize::try_from(room).map_err(|_| CUerror::INVALID_VALUE)?;
    if !is_possible(place) || room == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let length = value.len().min(room - 1);
    // SAFETY: the caller's buffer has `room` bytes, of which `length` is fewer; a Rust string and the
    // caller's buffer do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(value.as_ptr(), place.cast(), length) };
    put_at(place, length, 0);
    Ok(())
}
