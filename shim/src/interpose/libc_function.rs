//! Functions of the C library that the shim replaces.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::objects;

/// A function of the C library, found in its symbol table: `dlsym` is the shim's own.
#[derive(Debug)]
pub(super) struct LibcFunction {
    pub(super) name: &'static CStr,
    address: AtomicUsize,
    next: AtomicUsize,
}

impl LibcFunction {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0), next: AtomicUsize::new(0) }
    }

    /// Address of the function that a call by `caller` would reach without the shim. It is libc's, or that of another
    /// library behind the shim that replaces it (a sanitizer, a tracer), unless that library is the caller.
    pub(super) fn next(&self, caller: usize) -> Option<usize> {
        let (next, libcs) = (self.behind()?, self.get()?);
        Some(if next != libcs && self.is_before_libc(caller) { libcs } else { next })
    }

    /// The first function of this name behind the shim's, in load order.
    fn behind(&self) -> Option<usize> {
        let address = self.next.load(Ordering::Relaxed);
        if address != 0 {
            return Some(address);
        }
        let mut is_behind = false;
        let address = objects::find(|object| {
            if is_behind {
                return object.symbol(self.name);
            }
            is_behind = object.contains(here());
            None
        });
        let address = address.or_else(|| self.get())?;
        self.next.store(address, Ordering::Relaxed);
        Some(address)
    }

    /// Whether `caller` lies in a library behind the shim that replaces libc's function itself. Its calls come through
    /// the shim, so it is given libc's: the shim's would lead back to it.
    pub(super) fn is_before_libc(&self, caller: usize) -> bool {
        if self.behind() == self.get() {
            return false;
        }
        let mut is_behind = false;
        objects::find(|object| {
            is_behind |= object.contains(here());
            object.contains(caller).then(|| is_behind && object.symbol(self.name).is_some())
        }) == Some(true)
    }

    pub(super) fn get(&self) -> Option<usize> {
        let address = self.address.load(Ordering::Relaxed);
        if address != 0 {
            return Some(address);
        }
        let address = objects::libc_symbol(self.name)?;
        self.address.store(address, Ordering::Relaxed);
        Some(address)
    }
}

/// An address in the shim.
pub(super) fn here() -> usize {
    here as *const () as usize
}
