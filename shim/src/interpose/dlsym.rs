//! `dlsym` and `dlvsym`: the functions by which an application asks for a function by name.
//!
//! glibc reads the return address of its `dlsym` to give `RTLD_NEXT` and `RTLD_DEFAULT` their meaning. So a name that
//! is not in the table leaves by a tail jump, registers and return address intact: the application stays the caller
//! and `dlerror` says what it always says. Nothing here allocates, locks or touches lazy thread-local storage: `dlsym`
//! runs before constructors and inside replacements of malloc.

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};

use super::deepbind::{self, DLMOPEN, DLOPEN};
use super::libc_function::{LibcFunction, here};
use crate::driver::{elf, loader, objects};
use crate::hooks;

/// Route of a call: a jump to `jump`, or, if that is 0, a return to the caller with `answer`. Two registers.
#[repr(C)]
pub(super) struct Route {
    jump: usize,
    answer: *mut c_void,
}

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// `dlsym(3)`.
///
/// # Safety
/// As dlsym(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
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
        route = sym route_dlsym,
    )
}

/// `dlvsym(3)`.
///
/// # Safety
/// As dlvsym(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _name: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rcx, [rsp + 24]",
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
        route = sym route_dlvsym,
    )
}

/// `dlsym(3)`.
///
/// # Safety
/// As dlsym(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x2, x30",
        "bl {route}",
        "mov x16, x0",
        "mov x17, x1",
        "ldr x2, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        route = sym route_dlsym,
    )
}

/// `dlvsym(3)`.
///
/// # Safety
/// As dlvsym(3).
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C" fn dlvsym(
    _handle: *mut c_void,
    _name: *const c_char,
    _version: *const c_char,
) -> *mut c_void {
    naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "str x2, [sp, #32]",
        "mov x3, x30",
        "bl {route}",
        "mov x16, x0",
        "mov x17, x1",
        "ldr x2, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, x17",
        "ret",
        route = sym route_dlvsym,
    )
}

/// Decides on a `dlsym` of `caller`, the return address.
extern "C" fn route_dlsym(handle: *mut c_void, name: *const c_char, caller: usize) -> Route {
    if !loader::is_relocated() {
        return early(c"dlsym");
    }
    let Some(address) = DLSYM.next(caller) else {
        return answer(core::ptr::null_mut());
    };
    let Some(target) = Target::find(name, caller) else {
        return jump(address);
    };
    // SAFETY: a function of this name has this type.
    let real: Dlsym = unsafe { core::mem::transmute(DLSYM.get().unwrap_or(address)) };
    // SAFETY: handle and name are the application's; dlsym judges the handle itself.
    answer(target.look_up(handle, caller, |handle| unsafe { real(handle, name) }))
}

/// Decides on a `dlvsym` of `caller`. The driver's libraries define no symbol versions: what a version means there is
/// up to the C library.
extern "C" fn route_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Route {
    if !loader::is_relocated() {
        return early(c"dlvsym");
    }
    let Some(address) = DLVSYM.next(caller) else {
        return answer(core::ptr::null_mut());
    };
    let Some(target) = Target::find(name, caller) else {
        return jump(address);
    };
    // SAFETY: a function of this name has this type.
    let real: Dlvsym = unsafe { core::mem::transmute(DLVSYM.get().unwrap_or(address)) };
    // SAFETY: handle, name and version are the application's; dlvsym judges the handle itself.
    answer(target.look_up(handle, caller, |handle| unsafe { real(handle, name, version) }))
}

pub(super) const fn answer(answer: *mut c_void) -> Route {
    Route { jump: 0, answer }
}

pub(super) const fn jump(jump: usize) -> Route {
    Route { jump, answer: core::ptr::null_mut() }
}

/// A jump to the C library's function of this name, while this library is not relocated.
#[cold]
pub(super) fn early(name: &CStr) -> Route {
    loader::early(name).map_or(answer(core::ptr::null_mut()), jump)
}

pub(super) static DLSYM: LibcFunction = LibcFunction::new(c"dlsym");
static DLVSYM: LibcFunction = LibcFunction::new(c"dlvsym");

/// The functions of libc that the shim replaces, and the shim's own.
fn libc_replacement(name: *const c_char) -> Option<(&'static LibcFunction, *mut c_void)> {
    let all = [
        (&DLSYM, dlsym as *const ()),
        (&DLVSYM, dlvsym as *const ()),
        (&DLOPEN, deepbind::dlopen as *const ()),
        (&DLMOPEN, deepbind::dlmopen as *const ()),
    ];
    all.into_iter()
        .find(|(function, _)| hooks::is_same(function.name, name))
        .map(|(function, hook)| (function, hook.cast_mut().cast()))
}

/// The shim's function for a name, and the libc function that it replaces, if any.
pub(super) fn replacement_of(
    name: *const c_char,
) -> Option<(&'static CStr, *mut c_void, Option<&'static LibcFunction>)> {
    match hooks::row(name) {
        Some(row) => Some((row.slot().name(), row.hook(), None)),
        None => libc_replacement(name).map(|(function, hook)| (function.name, hook, Some(function))),
    }
}

const LIBC: &CStr = c"libc.so.6";

/// A name that the shim answers for: a row of the table, or a function of libc that it replaces.
struct Target {
    name: &'static CStr,
    /// The shim's function.
    hook: *mut c_void,
    /// The real function; null while no driver is loaded.
    real: *mut c_void,
    /// The library of the real function.
    soname: &'static CStr,
    /// Whether the caller gets the real function. Such a caller is the driver (on WSL2 it asks for its own functions),
    /// or a library that replaces libc's function: the shim's would call it back, without end.
    gets_real: bool,
}

impl Target {
    fn find(name: *const c_char, caller: usize) -> Option<Self> {
        if let Some(row) = hooks::row(name) {
            let (name, soname) = (row.slot().name(), row.slot().library().soname());
            return Some(Self {
                name,
                hook: row.hook(),
                real: row.slot().peek(),
                soname,
                gets_real: deepbind::is_drivers(caller),
            });
        }
        let (function, hook) = libc_replacement(name)?;
        Some(Self {
            name: function.name,
            hook,
            real: function.get()? as *mut c_void,
            soname: LIBC,
            gets_real: deepbind::is_drivers(caller) || function.is_before_libc(caller),
        })
    }

    fn is_libcs(&self) -> bool {
        core::ptr::eq(self.soname, LIBC)
    }

    /// The shim's function in place of the real one.
    fn substitute(&self) -> *mut c_void {
        if self.gets_real { self.real } else { self.hook }
    }

    /// The hook if the application would have got the real function, and otherwise what it would have got without the
    /// shim. `real` is the C library's function, called from here.
    fn look_up(
        &self,
        handle: *mut c_void,
        caller: usize,
        real: impl Fn(*mut c_void) -> *mut c_void,
    ) -> *mut c_void {
        if handle == libc::RTLD_NEXT {
            return self.next(caller, real);
        }
        let found = real(handle);
        if found != self.hook {
            return self.exchanged(found);
        }
        if handle != libc::RTLD_DEFAULT && is_our_handle(handle) {
            return found;
        }
        if self.is_libcs() {
            // The shim's function goes on to the next one behind it.
            return self.substitute();
        }
        if handle != libc::RTLD_DEFAULT && !is_programs_handle(handle) {
            // A library that needs the shim before the driver: the driver's front, or one that needs that.
            return self.substitute();
        }
        // The shim's own export was found. Called from here, `RTLD_NEXT` means "after the shim".
        let behind = real(libc::RTLD_NEXT);
        if !behind.is_null() {
            return self.exchanged(behind);
        }
        // Nothing in the global scope, and dlerror says so. A library that was opened sees its own dependencies too,
        // and the driver may be one of them; the program itself and its handle see the global scope alone.
        if handle != libc::RTLD_DEFAULT || is_in_program(caller) || self.real.is_null() {
            return behind;
        }
        forget_error();
        self.substitute()
    }

    /// `RTLD_NEXT`: the first object after the caller's, in load order, that defines the name.
    fn next(&self, caller: usize, real: impl Fn(*mut c_void) -> *mut c_void) -> *mut c_void {
        let mut passed_caller = false;
        let after = objects::find(|object| {
            if !passed_caller {
                passed_caller = object.contains(caller);
                return None;
            }
            if object.contains(here()) {
                return self.is_libcs().then_some(self.hook);
            }
            object.symbol(self.name).map(|address| address as *mut c_void)
        });
        match after {
            Some(found) => self.exchanged(found),
            // Loaded before its caller: the caller reaches it by its dependencies.
            None if !self.real.is_null() => self.substitute(),
            // Defined nowhere: libc reports that itself.
            None => real(libc::RTLD_NEXT),
        }
    }

    /// The shim's function if `found` is the real one, in any copy of its library. `found` otherwise, and for a caller that gets
    /// the real functions.
    fn exchanged(&self, found: *mut c_void) -> *mut c_void {
        if found.is_null() || self.gets_real {
            return found;
        }
        let owner_is_theirs =
            |object: &elf::Object<'_>| object.contains(found as usize).then(|| object.is_named(self.soname));
        if found == self.real || objects::find(owner_is_theirs) == Some(true) { self.hook } else { found }
    }
}

/// Takes the error of a lookup that the application did not make out of `dlerror`.
fn forget_error() {
    static DLERROR: LibcFunction = LibcFunction::new(c"dlerror");
    type Dlerror = unsafe extern "C" fn() -> *mut c_char;
    if let Some(address) = DLERROR.get() {
        // SAFETY: dlerror(3) has this type.
        let dlerror: Dlerror = unsafe { core::mem::transmute(address) };
        // SAFETY: it takes nothing; its answer is not looked at.
        unsafe { dlerror() };
    }
}

/// Whether `address` is in the program itself.
fn is_in_program(address: usize) -> bool {
    objects::find(|program| Some(program.contains(address))) == Some(true)
}

/// Whether a handle that `dlsym` has just accepted is the shim's own: then its symbols are what is asked for.
pub(super) fn is_our_handle(handle: *mut c_void) -> bool {
    let base = base_of(handle);
    objects::find(|object| object.contains(here()).then(|| object.base() == base)) == Some(true)
}

/// Whether such a handle is the program's, which stands for the global scope.
fn is_programs_handle(handle: *mut c_void) -> bool {
    let base = base_of(handle);
    objects::find(|program| Some(program.base() == base)) == Some(true)
}

/// Base address of the object of a handle that `dlsym` has just accepted.
fn base_of(handle: *mut c_void) -> usize {
    // SAFETY: glibc's handles point to the public head of a link map, which begins with the object's base address.
    unsafe { handle.cast::<usize>().read() }
}
