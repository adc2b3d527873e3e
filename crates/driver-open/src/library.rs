//! Place of a library as the loader finds it.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use libloading::os::unix::Library;

/// The public head of the loader's `struct link_map` (`link.h`).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const libc::c_char,
}

/// Absolute path of the library that the loader finds by this name; `None` if it finds none. The library stays loaded.
pub fn library_path(soname: &str) -> Option<PathBuf> {
    // SAFETY: loading the driver runs its own initialisers, as every program with a GPU does.
    let handle = unsafe { Library::new(soname) }.ok()?.into_raw();
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: the handle is a loaded library's, and is never closed; dlinfo writes a pointer.
    let answer = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast::<c_void>()) };
    if answer != 0 || map.is_null() {
        return None;
    }
    // SAFETY: the loader's record of a library that stays loaded.
    let name = unsafe { (*map).name };
    // SAFETY: the loader keeps the path as a C string as long as the library.
    let name = unsafe { CStr::from_ptr(name) };
    std::path::absolute(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()
}
