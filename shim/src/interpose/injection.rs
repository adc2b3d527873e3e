//! A profiler's library that answers `dlopen("libcuda.so.1")` with itself, to see the application's calls (Nsight Compute's
//! `libcuda-injection.so`). It finds its own file by the address of `dlopen`. If the shim precedes it (`LD_PRELOAD` of
//! `vcuda run`), that address is the shim's, so it answers with the shim, which has not all of the driver's functions.

use core::ffi::{CStr, c_char, c_int, c_void};

use super::dlsym::is_our_handle;
use super::libc_function::LibcFunction;

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;

static DLADDR: LibcFunction = LibcFunction::new(c"dladdr");

/// What `behind`, the `dlopen` of a library between the shim and libc, answers for the driver: the shim's
/// handle is exchanged for one of the library that `behind` lies in. The application then calls that library, and it the
/// shim's hooks.
///
/// `None` if `file` is not the driver: the caller leaves by a jump.
#[cold]
pub(super) fn open(file: *const c_char, mode: c_int, behind: usize, libcs: usize) -> Option<*mut c_void> {
    // SAFETY: a C string or null, which dlopen is about to read too.
    if file.is_null() || !is_cuda(unsafe { CStr::from_ptr(file) }) {
        return None;
    }
    // SAFETY: a function of this name has this type.
    let theirs: Dlopen = unsafe { core::mem::transmute(behind) };
    // SAFETY: the application's own arguments.
    let opened = unsafe { theirs(file, mode) };
    if opened.is_null() || !is_our_handle(opened) {
        return Some(opened);
    }
    let Some(path) = file_of(behind) else {
        return Some(opened);
    };
    // SAFETY: libc's function of this name has this type.
    let real: Dlopen = unsafe { core::mem::transmute(libcs) };
    // SAFETY: the path of a loaded object, which keeps it.
    let injected = unsafe { real(path, mode) };
    Some(if injected.is_null() { opened } else { injected })
}

/// Whether a path or name is the CUDA driver's, of any version.
fn is_cuda(file: &CStr) -> bool {
    let name = file.to_bytes().rsplit(|&byte| byte == b'/').next();
    name.is_some_and(|name| name.starts_with(b"libcuda.so"))
}

/// Path of the object that an address lies in.
fn file_of(address: usize) -> Option<*const c_char> {
    // SAFETY: libc's function of this name has this type.
    let dladdr: Dladdr = unsafe { core::mem::transmute(DLADDR.get()?) };
    // SAFETY: pointers and numbers, for which zero is a value.
    let mut told: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: dladdr writes what it finds.
    let found = unsafe { dladdr(address as *const c_void, &raw mut told) } != 0;
    (found && !told.dli_fname.is_null()).then_some(told.dli_fname)
}
