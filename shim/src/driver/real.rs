//! The driver's own functions: each found once, when first needed, in the library that the application loaded.
//!
//! The functions that the shim itself calls, and which of them it may call during a stream capture: [`own`].

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use vcuda_driver_api::prelude::*;

use super::elf;
use super::objects;

mod own;

pub(crate) use own::*;

/// A driver library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// The CUDA driver.
    Cuda,
    /// NVML.
    Nvml,
}

impl Library {
    /// The name that every installation of the library has.
    pub(crate) const fn soname(self) -> &'static CStr {
        match self {
            Self::Cuda => c"libcuda.so.1",
            Self::Nvml => c"libnvidia-ml.so.1",
        }
    }

    /// Whether the object is one of the driver's libraries.
    pub(crate) fn is_any(object: &elf::Object<'_>) -> bool {
        [Self::Cuda, Self::Nvml].into_iter().any(|library| object.is_named(library.soname()))
    }

    /// Keeps the library loaded, as the slots hold its addresses. Never loads it.
    fn pin(self) {
        static PINNED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
        type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
        let [cuda, nvml] = &PINNED;
        let pinned = if self == Self::Cuda { cuda } else { nvml };
        if pinned.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(address) = objects::libc_symbol(c"dlopen") else {
            return;
        };
        // SAFETY: dlopen(3) has this type.
        let dlopen: Dlopen = unsafe { core::mem::transmute(address) };
        // SAFETY: a null-terminated name; RTLD_NOLOAD makes this a lookup that runs no code of the library.
        unsafe { dlopen(self.soname().as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    }
}

/// Status type of a driver function, as far as the shim must know it.
pub(crate) trait DriverStatus: Copy {
    /// Library of the status.
    const LIBRARY: Library;
    /// The status for out of memory.
    const DENIED: Self;
    /// The driver's own status for a function that it does not have.
    const MISSING: Self;
}

impl DriverStatus for CUresult {
    const LIBRARY: Library = Library::Cuda;
    const DENIED: Self = Err(CUerror::OUT_OF_MEMORY);
    const MISSING: Self = Err(CUerror::NOT_FOUND);
}

impl DriverStatus for nvmlReturn_t {
    const LIBRARY: Library = Library::Nvml;
    const DENIED: Self = Err(NvmlError::MEMORY);
    const MISSING: Self = Err(NvmlError::FUNCTION_NOT_FOUND);
}

/// Address of the driver's function of one name.
#[derive(Debug)]
pub(crate) struct Slot {
    name: &'static CStr,
    library: Library,
    address: AtomicPtr<c_void>,
    /// [`objects::loads`] when the function was last looked for and not found; 0 before that.
    missed_at: AtomicU64,
}

impl Slot {
    /// A slot whose function was not looked up yet.
    pub(crate) const fn new(name: &'static CStr, library: Library) -> Self {
        Self { name, library, address: AtomicPtr::new(core::ptr::null_mut()), missed_at: AtomicU64::new(0) }
    }

    /// Name of the function.
    pub(crate) fn name(&self) -> &'static CStr {
        self.name
    }

    /// Library of the function.
    pub(crate) fn library(&self) -> Library {
        self.library
    }

    /// The driver's function; null while no driver with such a function is loaded.
    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        // Relaxed: the code behind the address was mapped before the address could be known.
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.find() } else { address }
    }

    /// As [`Slot::get`], for a look-up inside `dlsym`: keeps no address and does not call `dlopen`. A replacement of
    /// malloc may ask while `dlopen` maps the driver, and `dlopen` does not survive a call from there.
    pub(crate) fn peek(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            objects::symbol_of(self.library.soname(), self.name)
                .map_or(core::ptr::null_mut(), |address| address as *mut c_void)
        } else {
            address
        }
    }

    /// The driver's function if it has been found already; else null.
    pub(crate) fn known(&self) -> *mut c_void {
        self.address.load(Ordering::Relaxed)
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        let loads = objects::loads();
        if loads != 0 && self.missed_at.load(Ordering::Relaxed) == loads {
            return core::ptr::null_mut();
        }
        let Some(address) = objects::symbol_of(self.library.soname(), self.name) else {
            self.missed_at.store(loads, Ordering::Relaxed);
            return core::ptr::null_mut();
        };
        self.library.pin();
        let address = address as *mut c_void;
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// `"cuInit\0"` as a C string.
#[expect(clippy::panic, reason = "evaluated at compile time, where it is an error message")]
pub(crate) const fn c_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a function name has no inner null"),
    }
}

/// A typed call of the driver through a slot. Only two macros may use it, which `scripts/check-deps.sh` checks: the one
/// that passes the application's own call on, and the one that makes the shim's own calls (`real/own.rs`).
macro_rules! call_through {
    ($slot:expr, ($($arg:ident : $ty:ty),*) -> $ret:ty) => {{
        let address = $slot.get();
        if address.is_null() {
            return <$ret as $crate::driver::real::DriverStatus>::MISSING;
        }
        // SAFETY: the slot holds the address of the driver's function of this name, whose prototype this is.
        let function: unsafe extern "C-unwind" fn($($ty),*) -> $ret = unsafe { core::mem::transmute(address) };
        // SAFETY: the arguments are the caller's; what the driver asks of them is the caller's to keep.
        unsafe { function($($arg),*) }
    }};
}
pub(crate) use call_through;
