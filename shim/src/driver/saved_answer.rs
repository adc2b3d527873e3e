//! What stands where the driver will write an answer that may have to be taken back.

use core::mem::MaybeUninit;

/// The value at an application's pointer; nothing if nothing can be read there. The kernel reads, so that a wild pointer is
/// no fault of ours: the driver judges it.
pub(crate) fn peek<T: Copy>(place: *const T) -> Option<T> {
    if place.is_null() {
        return None;
    }
    let mut value = MaybeUninit::<T>::uninit();
    let bytes = size_of::<T>();
    let ours = libc::iovec {
        iov_base: value.as_mut_ptr().cast(),
        iov_len: bytes,
    };
    let theirs = libc::iovec {
        iov_base: place.cast_mut().cast(),
        iov_len: bytes,
    };
    // Not the process: once its main thread has ended, the kernel finds no memory under that number.
    // SAFETY: takes nothing.
    let me = unsafe { libc::syscall(libc::SYS_gettid) };
    let me = libc::pid_t::try_from(me).unwrap_or(0);
    // SAFETY: the kernel writes `bytes` to `value`, or fails; what it reads it checks itself.
    let read = unsafe { libc::process_vm_readv(me, &raw const ours, 1, &raw const theirs, 1, 0) };
    if usize::try_from(read) == Ok(bytes) {
        // SAFETY: filled; any bytes are a handle.
        return Some(unsafe { value.assume_init() });
    }
    let why = std::io::Error::last_os_error().raw_os_error();
    // A sandbox may forbid the call: then the pointer is taken to be as good as the driver needs it.
    // SAFETY: the driver is about to write here.
    (read < 0 && why != Some(libc::EFAULT)).then(|| unsafe { place.read_unaligned() })
}

/// A place for a handle, with what stood there before the driver wrote.
#[derive(Debug)]
pub(crate) struct SavedAnswer<H> {
    place: *mut H,
    before: H,
}

impl<H: Copy> SavedAnswer<H> {
    /// Nothing if the place cannot be read: the driver says what it thinks of it.
    pub(crate) fn at(place: *mut H) -> Option<Self> {
        let before = peek(place)?;
        Some(Self { place, before })
    }

    /// The handle that the driver has written.
    pub(crate) fn now(&self) -> H {
        // SAFETY: readable when this was made, and callers ask after the driver's success.
        unsafe { self.place.read_unaligned() }
    }

    /// The handle that the driver has written; in its place is again what was there before.
    pub(crate) fn take_back(&self) -> H {
        let handle = self.now();
        // SAFETY: the driver has just written there.
        unsafe { self.place.write_unaligned(self.before) };
        handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wild_pointer_holds_nothing() {
        assert_eq!(peek(core::ptr::from_ref(&7_u64)), Some(7));
        assert_eq!(peek(core::ptr::null::<u64>()), None);
        assert_eq!(peek(core::ptr::dangling::<u64>()), None);
        assert_eq!(peek(usize::MAX as *const u64), None);
    }
}
