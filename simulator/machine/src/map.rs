//! Mapped memory that the processes of a machine share, accessed as atomics only.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys;

/// Words of 8 bytes, in a shared file or in private memory. All stores and exchanges of the protocol go through this type.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is reached through atomics only and stays until `Mapping` is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` gives out nothing but atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `words` words of a file, which must have that size.
    pub(crate) fn of_file(file: &File, words: usize) -> io::Result<Mapping> {
        Mapping::map(words, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Zeroed words of this process alone; pages are allocated when touched.
    pub(crate) fn in_memory(words: usize) -> io::Result<Mapping> {
        Mapping::map(words, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    fn map(words: usize, flags: libc::c_int, descriptor: libc::c_int) -> io::Result<Mapping> {
        let (null, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let address = unsafe { libc::mmap(null, words * 8, protection, flags, descriptor, 0) };
        match NonNull::new(address.cast::<AtomicU64>()) {
            Some(base) if address != libc::MAP_FAILED => Ok(Mapping { base, words }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words, "word {index} outside of the machine's state");
        // SAFETY: `index` is inside the mapping, as just asserted.
        let word = unsafe { self.base.add(index) };
        // SAFETY: mapped, page-aligned plus a multiple of 8, only ever used as atomics, and alive as long as `self`.
        unsafe { word.as_ref() }
    }

    pub(crate) fn load(&self, index: usize) -> u64 {
        before_load();
        self.word(index).load(Ordering::Relaxed)
    }

    /// An acquire load; pairs with `publish` and `exchange`.
    pub(crate) fn acquire(&self, index: usize) -> u64 {
        before_load();
        self.word(index).load(Ordering::Acquire)
    }

    pub(crate) fn store(&self, index: usize, value: u64) {
        before_store();
        self.word(index).store(value, Ordering::Relaxed);
    }

    /// A release store: earlier stores are visible to a process that acquires it.
    pub(crate) fn publish(&self, index: usize, value: u64) {
        before_store();
        self.word(index).store(value, Ordering::Release);
    }

    /// Replaces `old` by `new`. Returns whether the word was `old`.
    pub(crate) fn exchange(&self, index: usize, old: u64, new: u64) -> bool {
        before_store();
        self.word(index).compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Sleeps until a word, counted up by `ring`, differs from `seen`, or `ns` have gone.
    pub(crate) fn await_ring(&self, index: usize, seen: u64, ns: u64) {
        if self.acquire(index) == seen {
            sys::futex_wait(self.word(index), seen, ns);
        }
    }

    /// Counts a word up, and wakes its waiters in all processes.
    pub(crate) fn ring(&self, index: usize) {
        self.add(index, 1);
        sys::futex_wake(self.word(index));
    }

    pub(crate) fn add(&self, index: usize, value: u64) {
        before_store();
        self.word(index).fetch_add(value, Ordering::AcqRel);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` mapped, and nothing borrows from it any more.
        let _ = unsafe { libc::munmap(self.base.as_ptr().cast(), self.words * 8) };
    }
}

/// Hook before each store, where test builds can end or stop the process, see `crash`.
#[inline]
fn before_store() {
    #[cfg(test)]
    crate::crash::step();
}

/// Hook before each load, where test builds can let other processes work.
#[inline]
fn before_load() {
    #[cfg(test)]
    crate::crash::load();
}
