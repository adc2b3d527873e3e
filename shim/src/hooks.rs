//! THE TABLE: every function that is hooked, and its handler. How a row is read: [`crate::ffi::table`].

mod device;
mod lookup;
mod memory;

use core::cmp::Ordering;
use core::ffi::{c_char, c_void};

use vcuda_driver_api::CUresult;

use crate::ffi::real::Library;
use crate::ffi::table::{Row, entry, hooks};

hooks! {
    deny cuMemAlloc             => memory::alloc_v1;
    deny cuMemAlloc_v2          => memory::alloc;
    deny cuMemAllocPitch        => memory::pitch_v1;
    deny cuMemAllocPitch_v2     => memory::pitch;
    deny cuMemAllocManaged      => memory::managed;
    pass cuMemFree              => memory::free_v1;
    pass cuMemFree_v2           => memory::free;

    pass cuMemGetInfo           => device::mem_info_v1;
    pass cuMemGetInfo_v2        => device::mem_info;
    pass cuDeviceTotalMem       => device::total_v1;
    pass cuDeviceTotalMem_v2    => device::total;

    pass cuGetProcAddress       => lookup::proc_address;
    pass cuGetProcAddress_v2    => lookup::proc_address_v2;
}

/// The row of a function name, if it is hooked. A null name is nobody's.
pub(crate) fn row(name: *const c_char) -> Option<&'static Row> {
    if name.is_null() {
        return None;
    }
    // Most names end here: two letters decide whether it may be CUDA's or NVML's.
    let first = byte(name, 0);
    if !matches!(first, b'c' | b'n') || !matches!((first, byte(name, 1)), (b'c', b'u') | (b'n', b'v')) {
        return None;
    }
    let at = BY_NAME
        .binary_search_by(|&at| compare(NAMES.get(usize::from(at)).copied().unwrap_or(""), name))
        .ok()?;
    TABLE.get(usize::from(*BY_NAME.get(at)?))
}

/// The hook of the driver's function at `address`.
pub(crate) fn hook_of(address: *mut c_void) -> Option<*mut c_void> {
    TABLE
        .iter()
        .find(|row| row.slot().known() == address)
        .map(Row::hook)
}

/// Finds the driver's functions of all rows of a library, so that [`hook_of`] knows their addresses.
pub(crate) fn find_all(library: Library) {
    for row in TABLE.iter().filter(|row| row.slot().library() == library) {
        row.slot().get();
    }
}

/// Whether the C string `string` is `name`.
pub(crate) fn is(string: *const c_char, name: &str) -> bool {
    !string.is_null() && compare(name, string).is_eq()
}

/// Orders a row's name against a C string, without measuring the string first.
fn compare(name: &str, string: *const c_char) -> Ordering {
    for (at, &expected) in name.as_bytes().iter().enumerate() {
        // The string has not ended before `at`: a null would have differed from a byte of the name.
        let order = expected.cmp(&byte(string, at));
        if order.is_ne() {
            return order;
        }
    }
    if byte(string, name.len()) == 0 {
        Ordering::Equal
    } else {
        Ordering::Less
    }
}

fn byte(string: *const c_char, at: usize) -> u8 {
    // SAFETY: callers pass a C string and go no further than its null.
    let place = unsafe { string.add(at) };
    // SAFETY: as above.
    unsafe { place.cast::<u8>().read() }
}
