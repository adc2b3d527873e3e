//! The C library's `dl_iterate_phdr`, found without the loader: a sanitizer, or any other library, may define a
//! function of that name, to which the loader would bind the shim's calls.
//!
//! The loader publishes its list of objects for debuggers (`_r_debug`, `struct link_map` of `link.h`). Read without its
//! lock, the list is safe up to the C library: that and what stands before it were loaded with the program and never
//! leave. All other walks go through `dl_iterate_phdr`, which takes the lock.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::elf::Object;
use super::kernel;

/// `struct r_debug` of `link.h`, as far as it is read.
#[repr(C)]
#[derive(Debug)]
struct Debug {
    version: c_int,
    first: *const LinkMap,
}

/// The public head of `struct link_map` of `link.h`.
#[repr(C)]
#[derive(Debug)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: usize,
    next: *const LinkMap,
}

unsafe extern "C" {
    /// The loader's own (ld.so): a debugger finds the same list by it.
    #[link_name = "_r_debug"]
    static DEBUG: Debug;
}

type Visit = extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;
/// `dl_iterate_phdr(3)`.
pub(crate) type Iterate = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;

/// The C library's `dl_iterate_phdr`; `None` if there is no C library, which does not happen.
pub(crate) fn iterate() -> Option<Iterate> {
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    let mut address = FOUND.load(Ordering::Relaxed);
    if address == 0 {
        // SAFETY: this library is relocated, so the name leads to the loader's structure, which the loader filled before.
        let first = unsafe { (&raw const DEBUG.first).read_volatile() };
        address = in_libc(first, c"dl_iterate_phdr")?;
        FOUND.store(address, Ordering::Relaxed);
    }
    // SAFETY: the C library's function of this name has this type.
    Some(unsafe { core::mem::transmute::<usize, Iterate>(address) })
}

/// The address of a function of the C library, in the list that begins at `first`.
fn in_libc(first: *const LinkMap, name: &CStr) -> Option<usize> {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: a link of the loader's list; those up to the C library stay as they are.
        let map = unsafe { &*next };
        // SAFETY: the loader says where the object and its dynamic section lie.
        let object = unsafe { Object::at(map.base, map.dynamic) };
        if let Some(libc) = object.filter(|object| object.is_named(c"libc.so.6")) {
            return libc.symbol(name);
        }
        next = map.next;
    }
    None
}

/// A word that holds its own address once this library is relocated.
#[repr(transparent)]
struct OwnAddress(*const OwnAddress);

// SAFETY: the loader writes it once, before the library is used; it is compared, never followed.
unsafe impl Sync for OwnAddress {}

static OWN_ADDRESS: OwnAddress = OwnAddress(&raw const OWN_ADDRESS);

/// Whether the loader has relocated this library. Before that it may call an indirect function's resolver in another
/// library, which may ask for a symbol. Until then neither a pointer in a constant nor a name of another library is
/// valid.
#[inline]
pub(crate) fn is_relocated() -> bool {
    let place = &raw const OWN_ADDRESS;
    // SAFETY: a static of this library; read as it is in memory, since the compiler knows only what it will be.
    unsafe { place.cast::<*const OwnAddress>().read_volatile() == place }
}

/// The C library's function of this name, while this library is not relocated. The C library is relocated first.
#[cold]
pub(crate) fn early(name: &CStr) -> Option<usize> {
    in_libc(first_by_auxiliary_vector()?, name)
}

const AT_PHDR: usize = 3;
const AT_BASE: usize = 7;
/// Words of the auxiliary vector that are read: the kernel's has some 20 pairs.
const AUXILIARY_WORDS: usize = 128;

/// The loader's list, by what the kernel tells of the loader (getauxval(3), `/proc/self/auxv`).
fn first_by_auxiliary_vector() -> Option<*const LinkMap> {
    // Not filled with zeros: that would be a call of `memset`.
    let mut buffer = [const { MaybeUninit::<usize>::uninit() }; AUXILIARY_WORDS];
    let words = kernel::read_file(c"/proc/self/auxv", &mut buffer);
    let value = |wanted| {
        let pair = words.chunks_exact(2).find(|pair| pair.first() == Some(&wanted));
        pair.and_then(|pair| pair.last().copied()).filter(|value| *value != 0)
    };
    // A loader that was called by its name is the program that the kernel started: its program headers follow its ELF header.
    let base = value(AT_BASE).or_else(|| value(AT_PHDR)?.checked_sub(size_of::<libc::Elf64_Ehdr>()))?;
    // SAFETY: the kernel mapped the loader there, and it begins with its ELF header.
    let header = unsafe { &*(base as *const libc::Elf64_Ehdr) };
    let table = base.checked_add(usize::try_from(header.e_phoff).ok()?)?;
    // SAFETY: the header says where the program headers are and how many; they are mapped with it.
    let headers =
        unsafe { core::slice::from_raw_parts(table as *const libc::Elf64_Phdr, usize::from(header.e_phnum)) };
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let dynamic = base.checked_add(usize::try_from(dynamic.p_vaddr).ok()?)?;
    // SAFETY: the loader is mapped, and stays.
    let debug = unsafe { Object::at(base, dynamic) }?.symbol(c"_r_debug")? as *const Debug;
    // SAFETY: the loader filled it before it relocates anything.
    Some(unsafe { &*debug }.first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_function() {
        let linked = libc::dl_iterate_phdr as *const () as usize;
        assert_eq!(iterate().map(|found| found as usize), Some(linked));
        assert_eq!(early(c"dl_iterate_phdr"), Some(linked));
        assert!(is_relocated());
    }
}
