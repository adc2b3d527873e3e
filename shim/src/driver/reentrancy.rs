//! State of the calling thread. First, whether it is inside a hook: then its calls go straight to the driver. Second,
//! whether the shim has set relaxed capture mode for it ([`super::relaxed`]).
//!
//! Two thread-local words with the initial-exec model, which cost one load each: the library is loaded with the program, and
//! `thread_local!` would call `__tls_get_addr`, which may allocate.

use core::arch::{asm, global_asm};
use core::ptr::NonNull;

global_asm!(
    ".pushsection .tbss.vcuda_inside, \"awT\", %nobits",
    ".globl vcuda_inside",
    ".hidden vcuda_inside",
    ".type vcuda_inside, %object",
    ".size vcuda_inside, 8",
    ".p2align 3",
    "vcuda_inside: .zero 8",
    ".popsection",
);

/// This thread's first word: whether it is inside a hook. The word behind it: whether it is relaxed.
#[cfg(target_arch = "x86_64")]
#[inline]
fn word() -> NonNull<u32> {
    let address: *mut u32;
    // SAFETY: reads the thread pointer and the symbol's offset from it; touches neither memory of ours nor the stack.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + vcuda_inside@GOTTPOFF]",
            out(reg) address,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the thread pointer is never null, nor is what lies beside it.
    unsafe { NonNull::new_unchecked(address) }
}

/// This thread's first word: whether it is inside a hook. The word behind it: whether it is relaxed.
#[cfg(target_arch = "aarch64")]
#[inline]
fn word() -> NonNull<u32> {
    let address: *mut u32;
    // SAFETY: reads the thread pointer and the symbol's offset from it; touches neither memory of ours nor the stack.
    unsafe {
        asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:vcuda_inside",
            "ldr {1}, [{1}, :gottprel_lo12:vcuda_inside]",
            "add {0}, {0}, {1}",
            out(reg) address,
            out(reg) _,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: the thread pointer is never null, nor is what lies beside it.
    unsafe { NonNull::new_unchecked(address) }
}

/// A guard: the thread is inside a hook while it lives.
#[derive(Debug)]
pub(crate) struct HookGuard {
    word: NonNull<u32>,
}

impl HookGuard {
    /// Enters a hook; `None` if the thread is inside one already.
    #[inline]
    pub(crate) fn enter() -> Option<Self> {
        let word = word();
        // SAFETY: the word belongs to this thread alone.
        if unsafe { word.read() } != 0 {
            return None;
        }
        // SAFETY: as above.
        unsafe { word.write(1) };
        Some(Self { word })
    }
}

impl HookGuard {
    /// Notes that the thread's current call moves memory, for as long as the thread is inside the hook.
    #[inline]
    pub(crate) fn set_in_flight(&self) {
        // SAFETY: the word belongs to this thread alone; the pointer makes `HookGuard` neither `Send` nor `Sync`.
        unsafe { self.word.write(2) };
    }
}

/// Whether the thread's current call moves memory; `false` outside of hooks.
#[inline]
pub(crate) fn is_in_flight() -> bool {
    // SAFETY: as above.
    unsafe { word().read() == 2 }
}

/// This thread's second word.
#[inline]
fn relaxed_word() -> NonNull<u32> {
    // SAFETY: the two words are one symbol of 8 bytes.
    unsafe { word().add(1) }
}

/// Notes whether the shim has set relaxed capture mode for this thread.
#[inline]
pub(super) fn set_relaxed(is_relaxed: bool) {
    // SAFETY: the word belongs to this thread alone.
    unsafe { relaxed_word().write(u32::from(is_relaxed)) };
}

/// Whether the shim has set relaxed capture mode for this thread.
#[inline]
pub(super) fn is_relaxed() -> bool {
    // SAFETY: as above.
    unsafe { relaxed_word().read() != 0 }
}

impl Drop for HookGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the word belongs to this thread alone; the pointer makes `HookGuard` neither `Send` nor `Sync`.
        unsafe { self.word.write(0) };
    }
}
