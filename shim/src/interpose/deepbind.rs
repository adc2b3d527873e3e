//! `dlopen` with `RTLD_DEEPBIND`. A library opened so binds its names in itself and its dependencies first, past every
//! preloaded library. A plugin linked against the driver would call the driver, one with NVIDIA's static runtime libc's
//! `dlsym`. So after such an opening, the opened objects' pointers to the driver's hooked functions, and to libc's
//! `dlsym` family, are redirected to the shim. All other names stay as they were bound.
//!
//! Any other `dlopen` leaves by a tail jump, since glibc looks at the return address (the caller's search path, its
//! namespace). So does one with `RTLD_DEEPBIND` if the caller's search path decides: that one is reported as a bypass.
//!
//! `dlmopen` always leaves by a jump. A driver in a namespace of its own is another driver with its own handles, so its
//! calls cannot be redirected. It is reported as a bypass, and its memory is measured as overhead.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_long, c_void};

use super::dlsym::{DLSYM, Route, answer, early, jump, replacement_of};
use super::injection;
use super::libc_function::{LibcFunction, here};
use crate::driver::bypass::{Bypass, note};
use crate::driver::real::Library;
use crate::driver::{elf, loader, objects};

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

pub(super) static DLOPEN: LibcFunction = LibcFunction::new(c"dlopen");
pub(super) static DLMOPEN: LibcFunction = LibcFunction::new(c"dlmopen");

/// `dlopen(3)`.
///
/// # Safety
/// As dlopen(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "x86_64")]
pub(super) unsafe extern "C" fn dlopen(_file: *const c_char, _mode: c_int) -> *mut c_void {
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rdx, [rsp + 24]",
        "call {route}",
        "mov r11, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "mov rax, r11",
        "ret",
        route = sym route_dlopen,
    )
}

/// `dlmopen(3)`.
///
/// # Safety
/// As dlmopen(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "x86_64")]
pub(super) unsafe extern "C" fn dlmopen(
    _namespace: c_long,
    _file: *const c_char,
    _mode: c_int,
) -> *mut c_void {
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {route}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        route = sym route_dlmopen,
    )
}

/// `dlopen(3)`.
///
/// # Safety
/// As dlopen(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "aarch64")]
pub(super) unsafe extern "C" fn dlopen(_file: *const c_char, _mode: c_int) -> *mut c_void {
    naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {route}",
        "mov x16, x0",
        "mov x17, x1",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        route = sym route_dlopen,
    )
}

/// `dlmopen(3)`.
///
/// # Safety
/// As dlmopen(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "aarch64")]
pub(super) unsafe extern "C" fn dlmopen(
    _namespace: c_long,
    _file: *const c_char,
    _mode: c_int,
) -> *mut c_void {
    naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "bl {route}",
        "mov x16, x0",
        "ldr x2, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, #0",
        "ret",
        route = sym route_dlmopen,
    )
}

/// Decides on a `dlopen` of `caller`, the return address.
extern "C" fn route_dlopen(file: *const c_char, mode: c_int, caller: usize) -> Route {
    if !loader::is_relocated() {
        return early(c"dlopen");
    }
    let Some(address) = DLOPEN.next(caller) else {
        return answer(core::ptr::null_mut());
    };
    if let Some(libcs) = DLOPEN.get().filter(|&libcs| libcs != address)
        && let Some(opened) = injection::open(file, mode, address, libcs)
    {
        return answer(opened);
    }
    if mode & libc::RTLD_DEEPBIND == 0 || file.is_null() {
        return jump(address);
    }
    // SAFETY: not null, so a C string, which dlopen is about to read too.
    if needs_its_caller(unsafe { CStr::from_ptr(file) }, caller) {
        note(Bypass::DeepBind);
        return jump(address);
    }
    // SAFETY: a function of this name has this type.
    let real: Dlopen = unsafe { core::mem::transmute(address) };
    // SAFETY: the application's own arguments.
    let opened = unsafe { real(file, mode) };
    if !opened.is_null() {
        rebind(opened);
    }
    answer(opened)
}

/// Notes a `dlmopen` into another namespace than the program's, and says where libc's is.
extern "C" fn route_dlmopen(namespace: c_long, _file: *const c_char, _mode: c_int) -> usize {
    /// `LM_ID_BASE`.
    const BASE: c_long = 0;
    if !loader::is_relocated() {
        return loader::early(c"dlmopen").unwrap_or(0);
    }
    if namespace != BASE {
        note(Bypass::Namespace);
    }
    DLMOPEN.get().unwrap_or(0)
}

/// Whether the caller decides what `file` is: by its search path, or by its own place (dlopen(3), "$ORIGIN").
fn needs_its_caller(file: &CStr, caller: usize) -> bool {
    let has = |byte| file.to_bytes().contains(&byte);
    if has(b'$') {
        return true;
    }
    // The program's own inherited path counts for every caller. Another object's counts only for what it loaded, which
    // cannot be told from here.
    let mut is_program = true;
    let path = |object: &elf::Object<'_>| {
        let is_other = !core::mem::take(&mut is_program);
        let decides = (object.has_search_path() && object.contains(caller))
            || (object.has_inherited_path() && is_other && !object.contains(here()));
        decides.then_some(())
    };
    !has(b'/') && objects::find(path).is_some()
}

/// A pointer that may have to be redirected to the shim.
#[derive(Debug)]
struct Candidate {
    place: usize,
    /// Content of the slot.
    now: usize,
    /// Set if it leads into the loader, which binds it at the first call.
    is_unbound: bool,
    name: &'static CStr,
    hook: *mut c_void,
    /// Libc's function of this name, if it is libc's.
    real: usize,
}

/// Redirects pointers of the library that was opened as `handle` to the hooks.
#[cold]
fn rebind(handle: *mut c_void) {
    let mut candidates = Vec::new();
    objects::find(|object| {
        if object.contains(here()) || Library::is_any(object) || object.is_named(c"libc.so.6") {
            return None::<()>;
        }
        for import in object.imports() {
            if let Some((name, hook, real)) = replacement_of(import.name) {
                // SAFETY: a word of a loaded object, which the loader has filled.
                let now = unsafe { (import.place as *const usize).read() };
                candidates.push(Candidate {
                    place: import.place,
                    now,
                    is_unbound: object.contains(now),
                    name,
                    hook,
                    real: real.and_then(LibcFunction::get).unwrap_or(0),
                });
            }
        }
        None
    });
    for candidate in candidates {
        let bound = if candidate.is_unbound { look_up(handle, candidate.name) } else { candidate.now };
        // A pointer to the shim, or to some third library, stays.
        let is_theirs = bound != 0 && (bound == candidate.real || is_drivers(bound));
        if is_theirs && !replace(&candidate) {
            note(Bypass::DeepBind);
        }
    }
}

/// Whether `address` lies in one of the driver's libraries.
pub(super) fn is_drivers(address: usize) -> bool {
    objects::find(|object| object.contains(address).then(|| Library::is_any(object))) == Some(true)
}

/// Address of a name as the opened library itself would find it: in its own and its dependencies' symbols.
fn look_up(handle: *mut c_void, name: &CStr) -> usize {
    let Some(address) = DLSYM.get() else { return 0 };
    // SAFETY: libc's function of this name has this type.
    let real: Dlsym = unsafe { core::mem::transmute(address) };
    // SAFETY: the handle was just opened, by the thread that asks.
    unsafe { real(handle, name.as_ptr()) as usize }
}

/// Writes the hook where the candidate was read, unless the object has gone or the word has changed; `false` if it may not
/// be written. The walk keeps objects from being unloaded.
fn replace(candidate: &Candidate) -> bool {
    objects::find(|object| {
        if !object.contains(candidate.place) {
            return None;
        }
        let is_sealed = object.is_sealed(candidate.place);
        if is_sealed && !protect(candidate.place, libc::PROT_READ | libc::PROT_WRITE) {
            return Some(false);
        }
        let place = candidate.place as *const core::sync::atomic::AtomicUsize;
        // SAFETY: an aligned word of a loaded object that was made writable, or is; calls read it at any time.
        let word = unsafe { &*place };
        let order = core::sync::atomic::Ordering::Relaxed;
        let _changed = word.compare_exchange(candidate.now, candidate.hook as usize, order, order);
        if is_sealed {
            protect(candidate.place, libc::PROT_READ);
        }
        Some(true)
    })
    .unwrap_or(true)
}

fn protect(place: usize, protection: c_int) -> bool {
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let start = place & !(page - 1);
    // SAFETY: one page of a mapped object, whose words were relocated and are read-only or about to be again.
    unsafe { libc::mprotect(start as *mut c_void, page, protection) == 0 }
}
