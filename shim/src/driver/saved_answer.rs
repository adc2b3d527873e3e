//! The value at a place where the driver will write an answer, in case that the answer is taken back.

use core::mem::MaybeUninit;

/// The addresses between which nearly all memory of programs lies: above the pages that Linux by default maps for no process
/// (`vm.mmap_min_addr`), below the least upper end of a process's addresses.
const USUAL: core::ops::Range<usize> = 1 << 16..1 << 47;

/// Whether something can be read at an application's pointer. Usual addresses are taken for readable: frequent calls
/// make no system call, and the driver reads there too. The kernel checks all others, so that no address lets a call go
/// uncharged.
#[inline]
pub(crate) fn is_there<T: Copy>(place: *const T) -> bool {
    USUAL.contains(&place.addr()) || is_unusual_and_there(place)
}

/// Whether something can be read at both pointers. (One comparison of both is cheaper than two of each.)
#[inline(always)]
pub(crate) fn are_there<T: Copy>(one: *const T, other: *const T) -> bool {
    let (least, union) = (one.addr().min(other.addr()), one.addr() | other.addr());
    (least >= USUAL.start && union < USUAL.end) || (is_unusual_and_there(one) && is_unusual_and_there(other))
}

#[cold]
#[inline(never)]
fn is_unusual_and_there<T: Copy>(place: *const T) -> bool {
    peek(place).is_some()
}

/// The value at an application's pointer; `None` if nothing can be read there. The kernel reads, so that a wild pointer
/// causes no fault in the shim: the driver judges it.
pub(crate) fn peek<T: Copy>(place: *const T) -> Option<T> {
    if place.is_null() {
        return None;
    }
    let mut value = MaybeUninit::<T>::uninit();
    let bytes = size_of::<T>();
    let ours = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: bytes };
    let theirs = libc::iovec { iov_base: place.cast_mut().cast(), iov_len: bytes };
    // The thread's number: once the main thread has ended, the kernel finds no memory under the process's.
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
    // A sandbox may forbid the call: then the pointer is taken to be valid, as the driver needs it to be.
    // SAFETY: the driver is about to write here.
    (read < 0 && why != Some(libc::EFAULT)).then(|| unsafe { place.read_unaligned() })
}

/// A place for a handle, with the value from before the driver wrote.
#[derive(Debug)]
pub(crate) struct SavedAnswer<H> {
    place: *mut H,
    before: H,
}

impl<H: Copy> SavedAnswer<H> {
    /// Saves the value at `place`; `None` if the place cannot be read: the driver then judges it.
    pub(crate) fn at(place: *mut H) -> Option<Self> {
        let before = peek(place)?;
        Some(Self { place, before })
    }

    /// The handle that the driver has written.
    pub(crate) fn now(&self) -> H {
        // SAFETY: readable when this was made, and callers ask after the driver's success.
        unsafe { self.place.read_unaligned() }
    }

    /// Restores the value from before. Returns the handle that the driver had written.
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

    #[test]
    fn an_address_that_no_process_has_holds_nothing() {
        assert!(is_there(core::ptr::from_ref(&7_u64)));
        for address in [0, 16, 0xffff, usize::MAX] {
            let place = core::ptr::without_provenance::<u64>(address);
            assert!(!is_there(place), "{address:#x}");
        }
    }

    /// A process that may map the lowest pages could else use memory and launch uncharged.
    #[test]
    fn memory_at_an_unusual_address_is_there() {
        const PAGE: usize = 0x8000;
        let place = core::ptr::without_provenance_mut(PAGE);
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
        );
        // SAFETY: new memory, at a place where none is: else the kernel refuses.
        let mapped = unsafe { libc::mmap(place, 4096, access, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            println!("SKIPPED: this process may not map the lowest pages");
            return;
        }
        assert!(is_there(mapped.cast_const().cast::<u64>()));
        // SAFETY: the page that was mapped above.
        assert_eq!(unsafe { libc::munmap(mapped, 4096) }, 0);
        assert!(!is_there(mapped.cast_const().cast::<u64>()));
    }
}
