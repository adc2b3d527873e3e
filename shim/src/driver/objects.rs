//! The loaded objects, as the C library lists them.

use core::ffi::{CStr, c_int, c_void};

use super::elf::Object;
use super::loader;
use super::object_list::ObjectList;

/// Visits the loaded objects in load order (the program is first) until `visit` returns a value.
pub(crate) fn find<T, F: FnMut(&Object<'_>) -> Option<T>>(visit: F) -> Option<T> {
    struct Search<T, F> {
        visit: F,
        found: Option<T>,
    }
    extern "C" fn each<T, F: FnMut(&Object<'_>) -> Option<T>>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: this is the pointer to `search` passed below, which outlives the walk and is used by no other code.
        let search = unsafe { &mut *search.cast::<Search<T, F>>() };
        // SAFETY: the loader passes a valid record for the length of this call.
        let info = unsafe { &*info };
        if let Some(object) = Object::new(info) {
            search.found = (search.visit)(&object);
        }
        c_int::from(search.found.is_some())
    }
    let iterate = loader::iterate()?;
    let _walk = ObjectList::begin();
    let mut search = Search { visit, found: None };
    // SAFETY: the callback does not unwind (no handler of ours panics on a walk) and gets the pointer it expects.
    unsafe { iterate(each::<T, F>, (&raw mut search).cast()) };
    search.found
}

/// Number of objects that were ever loaded (dl_iterate_phdr(3), `dlpi_adds`); 0 if that cannot be had.
pub(crate) fn loads() -> u64 {
    extern "C" fn first(info: *mut libc::dl_phdr_info, size: usize, loads: *mut c_void) -> c_int {
        if size >= size_of::<libc::dl_phdr_info>() {
            // SAFETY: the loader passes a valid record of this size for the length of this call.
            let adds = unsafe { (*info).dlpi_adds };
            // SAFETY: this is the pointer to `loads` passed below, which no other code uses meanwhile.
            unsafe { loads.cast::<u64>().write(adds) };
        }
        1
    }
    let mut loads = 0_u64;
    if let Some(iterate) = loader::iterate() {
        let _walk = ObjectList::begin();
        // SAFETY: the callback does not unwind and gets the pointer it expects.
        unsafe { iterate(first, (&raw mut loads).cast()) };
    }
    loads
}

/// The address of `symbol` in the first loaded library whose name is `soname`.
pub(crate) fn symbol_of(soname: &CStr, symbol: &CStr) -> Option<usize> {
    find(|object| object.is_named(soname).then(|| object.symbol(symbol)).flatten())
}

/// The address of a function of the C library. Before glibc 2.34 some are in libdl.
pub(crate) fn libc_symbol(symbol: &CStr) -> Option<usize> {
    symbol_of(c"libc.so.6", symbol).or_else(|| symbol_of(c"libdl.so.2", symbol))
}

/// Whether this copy of the library lies in a link-map namespace of its own (`dlmopen`), which has another driver.
pub(crate) fn is_in_other_namespace() -> bool {
    type Dladdr1 = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info, *mut *mut c_void, c_int) -> c_int;
    type Dlinfo = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
    /// `RTLD_DL_LINKMAP` and `RTLD_DI_LMID` of `dlfcn.h`.
    const LINK_MAP: c_int = 2;
    const NAMESPACE: c_int = 1;
    let (Some(dladdr1), Some(dlinfo)) = (libc_symbol(c"dladdr1"), libc_symbol(c"dlinfo")) else {
        return false;
    };
    // SAFETY: the C library's function of this name has this type.
    let dladdr1: Dladdr1 = unsafe { core::mem::transmute(dladdr1) };
    // SAFETY: as above.
    let dlinfo: Dlinfo = unsafe { core::mem::transmute(dlinfo) };
    // SAFETY: pointers and numbers, for which zero is a value.
    let mut told: libc::Dl_info = unsafe { core::mem::zeroed() };
    let (mut map, mut namespace) = (core::ptr::null_mut(), 0_isize);
    // SAFETY: an address of this library; dladdr1 writes what it finds.
    let found = unsafe {
        dladdr1((is_in_other_namespace as *const ()).cast(), &raw mut told, &raw mut map, LINK_MAP)
    };
    // SAFETY: glibc's handles are its link maps; this library stays loaded. dlinfo writes a number (`Lmid_t`).
    found != 0 && unsafe { dlinfo(map, NAMESPACE, (&raw mut namespace).cast()) } == 0 && namespace != 0
}
