//! Rows by their names and addresses: for `dlsym` and `cuGetProcAddress`.

use core::cmp;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use super::{BY_NAME, NAMES, TABLE};
use crate::driver::elf;
use crate::driver::objects;
use crate::driver::real::Library;
use crate::hooks::table::Row;

/// The row of a function name, if it is hooked. A null name has no row.
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
    TABLE.iter().find(|row| row.slot().known() == address).map(Row::hook)
}

/// Finds the driver's functions of all rows of CUDA, so that [`hook_of`] knows their addresses. A function that the
/// driver lacks is looked up once, as libraries ask for hundreds of names.
pub(crate) fn find_all() {
    static FOUND: AtomicBool = AtomicBool::new(false);
    if FOUND.load(Ordering::Acquire) {
        return;
    }
    let rows = || TABLE.iter().filter(|row| row.slot().library() == Library::Cuda);
    let found = rows().filter(|row| !row.slot().get().is_null()).count();
    FOUND.store(found > 0, Ordering::Release);
}

/// The hook of the function at `address`, a variant of `base` in a library behind the driver's: WSL2's driver loads a
/// second one, and hands out its addresses. `None` if the first one has no such function to call.
pub(crate) fn hook_behind(base: *const c_char, address: *mut c_void) -> Option<*mut c_void> {
    variants(base).next()?;
    let exported = objects::find(|object| {
        let is_at = |row: &&'static Row| object.symbol(row.slot().name()) == Some(address as usize);
        object.contains(address as usize).then(|| variants(base).find(is_at))
    });
    let row = exported.flatten()?;
    (!row.slot().get().is_null()).then(|| row.hook())
}

/// Whether a variant of the function that `base` names is hooked: `cuMemAlloc` as `cuMemAlloc_v2`.
pub(crate) fn is_variant_hooked(base: *const c_char) -> bool {
    variants(base).next().is_some()
}

/// The rows of the variants of the function that `base` names.
fn variants<'b>(base: *const c_char) -> impl Iterator<Item = &'static Row> + use<'b> {
    // SAFETY: not null: the name that the driver has just found.
    let base = (!base.is_null()).then(|| unsafe { CStr::from_ptr::<'b>(base) });
    let base = base.and_then(|base| base.to_str().ok());
    let is_variant = |rest: &str| rest.is_empty() || rest.starts_with("_v") || rest.starts_with("_pt");
    TABLE.iter().zip(NAMES).filter_map(move |(row, name)| {
        let rest = name.strip_prefix(base?)?;
        is_variant(rest).then_some(row)
    })
}

/// Whether the C string `string` is `name`.
pub(crate) fn is_same(name: &CStr, string: *const c_char) -> bool {
    // SAFETY: not null, so a C string, as its caller's promise to dlsym(3) was.
    !string.is_null() && unsafe { elf::is_string(string, name) }
}

/// Orders a row's name against a C string, without measuring the string first.
fn compare(name: &str, string: *const c_char) -> cmp::Ordering {
    for (at, &expected) in name.as_bytes().iter().enumerate() {
        // The string has not ended before `at`: a null would have differed from a byte of the name.
        let order = expected.cmp(&byte(string, at));
        if order.is_ne() {
            return order;
        }
    }
    if byte(string, name.len()) == 0 { cmp::Ordering::Equal } else { cmp::Ordering::Less }
}

fn byte(string: *const c_char, at: usize) -> u8 {
    // SAFETY: callers pass a C string and go no further than its null.
    let place = unsafe { string.add(at) };
    // SAFETY: as above.
    unsafe { place.cast::<u8>().read() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_their_exact_names() {
        for name in NAMES {
            let string = std::ffi::CString::new(name).unwrap();
            let row = row(string.as_ptr()).unwrap();
            assert_eq!(row.slot().name(), string.as_c_str());
        }
        assert!(BY_NAME.is_sorted_by_key(|at| NAMES[usize::from(*at)]));
    }

    #[test]
    fn other_names_have_no_hook() {
        for name in [
            c"",
            c"c",
            c"cu",
            c"cudnnCreate",
            c"cublasCreate_v2",
            c"cuMem",
            c"cuMemAlloc_v2x",
            c"nvmlInit",
            c"malloc",
        ] {
            assert!(row(name.as_ptr()).is_none(), "{name:?}");
        }
        assert!(row(core::ptr::null()).is_none());
        assert!(hook_of(0x1000 as *mut c_void).is_none());
    }

    #[test]
    fn no_driver_is_loaded_for_us() {
        assert!(TABLE.iter().all(|row| row.slot().get().is_null()));
    }
}
