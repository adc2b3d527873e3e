//! The shim's heap: the C library's, and a reserve behind it, for a program that lowers `RLIMIT_AS` or exhausts its memory while
//! it runs. Rust ends a process whose heap gives nothing. The reserve keeps the shim's records whole: while it is in use, each
//! request for GPU memory is refused ([`is_exhausted`]), and no record is lost.
//!
//! What was taken from the reserve comes back only with the process: it is a few records at a time.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::alloc::System;

/// Size of the reserve: for the doubling of a table of some 50,000 allocations. Its pages are untouched until they are used.
const RESERVE_BYTES: usize = 8 << 20;
/// What the C library must give before the reserve counts as unused again.
const ROOM: Layout = Layout::new::<[u8; 256 << 10]>();

/// An address that no memory of a program has.
const NOWHERE: usize = 1 << 63;
/// Address of the reserve; [`NOWHERE`] before it is made.
static START: AtomicUsize = AtomicUsize::new(NOWHERE);
/// Bytes of the reserve that are taken.
static TAKEN_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Set while the C library has no memory.
static IS_EXHAUSTED: AtomicBool = AtomicBool::new(false);

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// Makes the reserve, if it is not made. Returns `false` if there is no memory for it.
pub(crate) fn make_reserve() -> bool {
    if START.load(Ordering::Relaxed) != NOWHERE {
        return true;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory, wherever the kernel has room.
    let made = unsafe { libc::mmap(null_mut(), RESERVE_BYTES, access, flags, -1, 0) };
    if made != libc::MAP_FAILED {
        START.store(made as usize, Ordering::Release);
    }
    made != libc::MAP_FAILED
}

/// Whether the process has no memory for the shim's records, so that nothing may be allocated on a GPU.
#[inline]
pub(crate) fn is_exhausted() -> bool {
    IS_EXHAUSTED.load(Ordering::Relaxed) && is_still_exhausted()
}

#[cold]
fn is_still_exhausted() -> bool {
    // SAFETY: the size is not zero.
    let probe = unsafe { System.alloc(ROOM) };
    if !probe.is_null() {
        // SAFETY: made above, with this layout.
        unsafe { System.dealloc(probe, ROOM) };
        IS_EXHAUSTED.store(false, Ordering::Relaxed);
    }
    probe.is_null()
}

/// Takes memory out of the reserve; null if that is used up, or not made.
#[cold]
fn take(layout: Layout) -> *mut u8 {
    IS_EXHAUSTED.store(true, Ordering::Relaxed);
    let start = START.load(Ordering::Acquire);
    let end_of = |taken: usize| {
        let begin = (start + taken).next_multiple_of(layout.align()) - start;
        begin.checked_add(layout.size()).filter(|end| start != NOWHERE && *end <= RESERVE_BYTES)
    };
    match TAKEN_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end_of) {
        Ok(taken) => (start + taken).next_multiple_of(layout.align()) as *mut u8,
        Err(_) => null_mut(),
    }
}

fn is_in_reserve(place: *mut u8) -> bool {
    (place as usize).wrapping_sub(START.load(Ordering::Relaxed)) < RESERVE_BYTES
}

// Not a part of each caller, of which there are thousands.
// SAFETY: memory comes from the C library, or once from a mapping that stays; each goes back to where it came from.
unsafe impl GlobalAlloc for Heap {
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let place = unsafe { System.alloc(layout) };
        if place.is_null() { take(layout) } else { place }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if !is_in_reserve(place) {
            // SAFETY: as the caller promises; the C library's.
            unsafe { System.dealloc(place, layout) };
        }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let place = unsafe { System.alloc_zeroed(layout) };
        // The kernel's pages are zero, and no byte of the reserve is given out twice.
        if place.is_null() { take(layout) } else { place }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let moved = if is_in_reserve(place) {
            null_mut()
        } else {
            // SAFETY: as the caller promises; the C library's.
            unsafe { System.realloc(place, layout, bytes) }
        };
        if !moved.is_null() {
            return moved;
        }
        let Ok(wanted) = Layout::from_size_align(bytes, layout.align()) else {
            return null_mut();
        };
        // SAFETY: the size is not zero, as the caller promises.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are at least as long, and the new place is no part of the old one.
            unsafe { place.copy_to_nonoverlapping(new, bytes.min(layout.size())) };
            // SAFETY: the caller's, of this layout.
            unsafe { self.dealloc(place, layout) };
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variable that says to the test's own program that it is the child.
    const CHILD: &str = "VCUDA_TEST_LOWERED";

    fn address_space() -> libc::rlimit {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel writes the limit here.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        limit
    }

    fn set_address_space(limit: &libc::rlimit) {
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, limit) }, 0);
    }

    /// In a child of its own, whose memory is exhausted.
    #[test]
    fn records_outlast_a_heap_that_gives_nothing() {
        if std::env::var_os(CHILD).is_some() {
            return exhaust();
        }
        let me = std::env::current_exe().unwrap();
        let child = std::process::Command::new(me)
            .args([
                "--exact",
                "--test-threads=1",
                "runtime::heap::tests::records_outlast_a_heap_that_gives_nothing",
            ])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
    }

    fn exhaust() {
        assert!(make_reserve() && !is_exhausted());
        let before = address_space();
        set_address_space(&libc::rlimit { rlim_cur: 1 << 20, ..before });
        let mut records: Vec<Box<[u64; 100]>> = Vec::new();
        // Some megabytes, of which the C library has a part at most.
        while !IS_EXHAUSTED.load(Ordering::Relaxed) || TAKEN_BYTES.load(Ordering::Relaxed) < RESERVE_BYTES / 4
        {
            records.push(Box::new([records.len() as u64; 100]));
        }
        assert!(is_exhausted());
        set_address_space(&before);
        assert!(!is_exhausted());
        for (at, record) in records.iter().enumerate() {
            assert_eq!(**record, [at as u64; 100]);
        }
    }
}
