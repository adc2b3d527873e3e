//! Forks. A forked child forgets all state of the shim. It is charged for nothing of its parent's, and starts afresh
//! at its first use of a GPU.
//!
//! All state hangs on one word in a page that a child finds zeroed (`MADV_WIPEONFORK`, madvise(2)), after a raw
//! `clone` too. The memory behind the parent's word is left alone, as its locks may be held for ever.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A page of its own. 64 KiB is the largest page size of the supported machines.
#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(align(65536)))]
#[derive(Debug)]
pub(crate) struct Page {
    word: AtomicUsize,
    launches: AtomicPtr<()>,
    gate: AtomicUsize,
    ungated: AtomicU32,
}

static PAGE: Page = Page {
    word: AtomicUsize::new(0),
    launches: AtomicPtr::new(core::ptr::null_mut()),
    gate: AtomicUsize::new(0),
    ungated: AtomicU32::new(0),
};
/// Set once the kernel or the C library was asked to clear the page in children. Children inherit it.
static ASKED: AtomicBool = AtomicBool::new(false);
/// PID of the process that built the state. 0 in a process that has not, and in a child of the C library's `fork`.
/// Inherited.
static BUILDER: AtomicI32 = AtomicI32::new(0);

/// The word: 0 in a process that has built no state.
#[inline]
pub(crate) fn word() -> &'static AtomicUsize {
    &PAGE.word
}

/// The launching side of this process ([`crate::compute`]), once a launch has made it; null before, and in a child.
#[inline]
pub(crate) fn launches() -> &'static AtomicPtr<()> {
    &PAGE.launches
}

/// The gate of this process ([`crate::runtime::suspend`]); 0 in a process that has built no state.
#[inline]
pub(crate) fn gate() -> &'static AtomicUsize {
    &PAGE.gate
}

/// Number of calls under way that began before there was a gate.
#[inline]
pub(crate) fn ungated() -> &'static AtomicU32 {
    &PAGE.ungated
}

/// Makes children find all of the page's words 0. Called before the word is first set.
pub(crate) fn forget_in_children() {
    if ASKED.swap(true, Ordering::Relaxed) {
        // The parent has asked already: a child inherits the advice with the page.
        return;
    }
    let page = (&raw const PAGE).cast_mut();
    // SAFETY: the page is wholly ours, zeroed and private (.bss), and what it holds may become zero in a child.
    let refused = unsafe { libc::madvise(page.cast(), size_of::<Page>(), libc::MADV_WIPEONFORK) } != 0;
    if refused {
        extern "C" fn in_child() {
            PAGE.word.store(0, Ordering::Relaxed);
            PAGE.launches.store(core::ptr::null_mut(), Ordering::Relaxed);
            PAGE.gate.store(0, Ordering::Relaxed);
            PAGE.ungated.store(0, Ordering::Relaxed);
        }
        // SAFETY: the handler stores four words and does nothing else.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Notes that this process has built its state.
pub(crate) fn built() {
    BUILDER.store(own_pid(), Ordering::Relaxed);
}

/// Runs in a child of the C library's `fork`, which has made its own locks anew there.
pub(crate) fn in_child() {
    BUILDER.store(0, Ordering::Relaxed);
}

/// Whether this process was made by a raw `clone` of one that had built its state. Locks of the C library that
/// another thread of the parent held at that time, such as its heap's, never open here.
pub(crate) fn is_raw_child() -> bool {
    let builder = BUILDER.load(Ordering::Relaxed);
    builder != 0 && builder != own_pid()
}

fn own_pid() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_finds_nothing_and_leaves_the_parent_alone() {
        static OTHER: Page = Page {
            word: AtomicUsize::new(7),
            launches: AtomicPtr::new(core::ptr::null_mut()),
            gate: AtomicUsize::new(0),
            ungated: AtomicU32::new(0),
        };
        forget_in_children();
        word().store(7, Ordering::Relaxed);
        launches().store(core::ptr::dangling_mut(), Ordering::Relaxed);
        gate().store(1, Ordering::Relaxed);
        ungated().store(1, Ordering::Relaxed);
        // SAFETY: the child only reads a few words and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let forgotten = word().load(Ordering::Relaxed) == 0
                && launches().load(Ordering::Relaxed).is_null()
                && gate().load(Ordering::Relaxed) == 0
                && ungated().load(Ordering::Relaxed) == 0
                && OTHER.word.load(Ordering::Relaxed) == 7;
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!forgotten)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(word().swap(0, Ordering::Relaxed), 7);
        assert_eq!(gate().swap(0, Ordering::Relaxed), 1);
        assert_eq!(ungated().swap(0, Ordering::Relaxed), 1);
        let kept = launches().swap(core::ptr::null_mut(), Ordering::Relaxed);
        assert_eq!(kept, core::ptr::dangling_mut());
    }
}
