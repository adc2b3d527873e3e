//! Files mapped into memory, and anonymous memory of the same form. With [`crate::sys`] the only unsafe code of the
//! crate.
//!
//! The mapped types are `repr(C)` records of atomic integers: every byte pattern is a valid value, and another process
//! may write at any time. That is why a shared reference to them is sound.
#![expect(unsafe_code, reason = "a file is mapped, and its bytes are used as a record")]

use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::layout::{LIMITS_MAGIC, LimitsFile, USAGE_MAGIC, UsageFile};
use crate::sys;

/// A record that may be laid over bytes that other processes write.
///
/// # Safety
/// The type is `repr(C)`, made of atomic integers and arrays of them only, without padding. So any bytes are a valid
/// value, and all access goes through atomic operations.
pub(crate) unsafe trait Mapped: Sized {
    /// First word of its file.
    const MAGIC: u64;
}

// SAFETY: layout.rs: repr(C), atomic integers only, reserved fields instead of padding.
unsafe impl Mapped for LimitsFile {
    const MAGIC: u64 = LIMITS_MAGIC;
}

// SAFETY: layout.rs: repr(C), atomic integers only, reserved fields instead of padding.
unsafe impl Mapped for UsageFile {
    const MAGIC: u64 = USAGE_MAGIC;
}

/// A mapped `T`, unmapped when dropped.
pub(crate) struct Mapping<T> {
    at: NonNull<T>,
}

// SAFETY: the mapping belongs to no thread; `T` (by `Mapped`) is atomics, which any thread may use.
unsafe impl<T: Mapped> Send for Mapping<T> {}
// SAFETY: as above: a shared `T` is used through atomic operations only.
unsafe impl<T: Mapped> Sync for Mapping<T> {}

impl<T> fmt::Debug for Mapping<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapping({:p})", self.at)
    }
}

impl<T: Mapped> Mapping<T> {
    /// Maps all of `file`, shared; read-only unless `writable`. The caller has checked that it is long enough.
    pub(crate) fn of_file(file: &File, writable: bool) -> io::Result<Self> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        Self::map(protection, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Zeroed memory, shared with the children that this process forks later.
    pub(crate) fn anonymous() -> io::Result<Self> {
        let sharing = if cfg!(miri) { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
        Self::map(libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS, -1)
    }

    /// A copy of `bytes` in memory of this process alone.
    pub(crate) fn of_bytes(bytes: &[u8]) -> io::Result<Self> {
        let copy =
            Self::map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        let size = bytes.len().min(size_of::<T>());
        // SAFETY: `copy` is new: writable, of `size_of::<T>()` bytes, which overlap with nothing and which no other thread sees.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.at.as_ptr().cast(), size) };
        Ok(copy)
    }

    /// Copies the mapped bytes into `copy` by a system call: if the file was cut short, that is an error and no fault.
    /// No other thread may read or write `copy` meanwhile.
    ///
    /// # Errors
    /// The file is shorter than `T`.
    pub(crate) fn copy_to(&self, copy: &mut Self) -> io::Result<()> {
        let (from, to) = (self.at.as_ptr().cast::<u8>(), copy.at.as_ptr().cast::<u8>());
        // SAFETY: `copy` is a mapping of `size_of::<T>()` bytes, and ours alone.
        match unsafe { sys::copy_own(from, to, size_of::<T>()) } {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                // The system call is not available: the mapping is read directly.
                for at in 0..size_of::<T>() / 8 {
                    // SAFETY: within the mapping, aligned; others may write it meanwhile, and any bytes are a value.
                    let word = unsafe { from.cast::<u64>().wrapping_add(at).read_volatile() };
                    // SAFETY: within `copy`, aligned, ours alone.
                    unsafe { to.cast::<u64>().wrapping_add(at).write_volatile(word) };
                }
                Ok(())
            }
            copied => copied,
        }
    }

    fn map(protection: libc::c_int, flags: libc::c_int, fd: libc::c_int) -> io::Result<Self> {
        let size = size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice: no memory of ours is replaced.
        let address = unsafe { libc::mmap(core::ptr::null_mut(), size, protection, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(address.cast::<T>()) {
            Some(at) => Ok(Self { at }),
            None => Err(io::Error::other("mmap gave address 0")),
        }
    }
}

impl<T: Mapped> Deref for Mapping<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `at` is a mapping of `size_of::<T>()` bytes, page-aligned (no `T` needs more), alive until the drop;
        // any bytes are a valid `T` (`Mapped`), and no `&mut T` to them is ever made.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: `at` came from `mmap` with this size, and no reference outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr().cast(), size_of::<T>()) };
    }
}
