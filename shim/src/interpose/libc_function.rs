//! Functions of the C library that the shim stands before.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::elf;

/// A function of the C library, found by its symbol table: asking `dlsym` for it would be asking ourselves.
#[derive(Debug)]
pub(super) struct LibcFunction {
    pub(super) name: &'static CStr,
    address: AtomicUsize,
    next: AtomicUsize,
}

impl LibcFunction {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Where a call of ours by `caller` goes on: where it would go without us. That is libc's function, or that of another
    /// library behind ours which stands before libc's (a sanitizer, a tracer), unless it is that library that calls.
    pub(super) fn next(&self, caller: usize) -> Option<usize> {
        let (next, libcs) = (self.behind()?, self.get()?);
        Some(if next != libcs && self.is_before_libc(caller) {
            libcs
        } else {
            next
        })
    }

    /// The first function of this name behind ours, in load order.
    fn behind(&self) -> Option<usize> {
        let address = self.next.load(Ordering::Relaxed);
        if address != 0 {
            return Some(address);
        }
        let mut is_behind = false;
        let address = elf::find(|object| {
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

    /// Whether `caller` lies in a library behind ours that stands before libc's function itself. Calls reach it through
    /// ours, so it is given libc's: ours would lead back to it.
    pub(super) fn is_before_libc(&self, caller: usize) -> bool {
        if self.behind() == self.get() {
            return false;
        }
        let mut is_behind = false;
        elf::find(|object| {
            is_behind |= object.contains(here());
            object
                .contains(caller)
                .then(|| is_behind && object.symbol(self.name).is_some())
        }) == Some(true)
    }

    pub(super) fn get(&self) -> Option<usize> {
        let address = self.address.load(Ordering::Relaxed);
        if address != 0 {
            return Some(address);
        }
        let address = elf::libc_symbol(self.name)?;
        self.address.store(address, Ordering::Relaxed);
        Some(address)
    }
}

/// An address in the shim.
pub(super) fn here() -> usize {
    here as *const () as usize
}
