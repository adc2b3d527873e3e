//! State of the calling thread inside a hook: where its frame is, and what the thread holds there that others see.
//!
//! A call that finds the thread inside a hook already is one of three. The driver's own code calls itself: then the call goes straight to
//! the driver. A signal handler or a callback of the application calls: it is managed like any other, and the hook below goes on
//! afterwards. Or the thread left the hook by a jump: what it held is given back, and the call is managed. Which it is, the call proves
//! itself ([`NestedCall::prove`]), by its return address and its frame; nothing that was remembered makes a call pass (I19).
//!
//! Thread-local words with the initial-exec model, which cost one load each: the library is loaded with the program, and
//! `thread_local!` would call `__tls_get_addr`, which may allocate.

use core::arch::{asm, global_asm};
use core::ffi::{c_int, c_void};
use core::ptr::{NonNull, null};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::objects;
use super::real::Library;

global_asm!(
    ".pushsection .tbss.vcuda_inside, \"awT\", %nobits",
    ".globl vcuda_inside",
    ".hidden vcuda_inside",
    ".type vcuda_inside, %object",
    ".size vcuda_inside, 64",
    ".p2align 3",
    "vcuda_inside: .zero 64",
    ".popsection",
);

/// What one thread is inside of, and holds there. All zero outside of hooks, except in the shim's own threads.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadState {
    /// Stack pointer in the hook, with [`SHIELDED`] in its lowest bit; 0 outside of hooks.
    frame: usize,
    /// Count of the thread's call, which moves memory ([`crate::runtime::in_flight`]); null if it moves none.
    pub(crate) moving: *const AtomicU64,
    /// Where the thread's launch waits, and its place there; null while it does not wait.
    pub(crate) line: *const c_void,
    pub(crate) place: u32,
    /// Rights of which one thread at a time has each: to settle, and to place timing events of a stream; null if it has them not.
    pub(crate) rights: [*const AtomicBool; 2],
    /// Count of the ended calls that put a wait for the host into a stream, while the thread makes such a call; else null.
    pub(crate) host_waits: *const AtomicU32,
    /// Whether the gate of suspension counts the thread, and how ([`crate::runtime::suspend`]).
    pub(crate) passage: u32,
    /// Capture mode of the thread before the shim relaxed it, plus one; 0 if it is not relaxed by the shim.
    relaxed: u32,
}

/// Bit of [`ThreadState::frame`]: cancellations of the thread wait ([`super::cancel`]).
const SHIELDED: usize = 1;

const _: () = assert!(size_of::<ThreadState>() <= 64, "the size of the symbol");

const OUTSIDE: ThreadState = ThreadState {
    frame: 0,
    moving: null(),
    line: null(),
    place: 0,
    rights: [null(); 2],
    host_waits: null(),
    passage: 0,
    relaxed: 0,
};

/// This thread's state.
#[cfg(target_arch = "x86_64")]
#[inline]
fn state() -> NonNull<ThreadState> {
    let address: *mut ThreadState;
    // SAFETY: reads the thread pointer and the symbol's offset from it, which never change in a thread.
    unsafe {
        asm!(
            "mov {0}, qword ptr fs:[0]",
            "add {0}, qword ptr [rip + vcuda_inside@GOTTPOFF]",
            out(reg) address,
            options(pure, nomem, nostack),
        );
    }
    // SAFETY: the thread pointer is never null, nor is what lies beside it.
    unsafe { NonNull::new_unchecked(address) }
}

/// This thread's state.
#[cfg(target_arch = "aarch64")]
#[inline]
fn state() -> NonNull<ThreadState> {
    let address: *mut ThreadState;
    // SAFETY: reads the thread pointer and the symbol's offset from it, which never change in a thread.
    unsafe {
        asm!(
            "mrs {0}, tpidr_el0",
            "adrp {1}, :gottprel:vcuda_inside",
            "ldr {1}, [{1}, :gottprel_lo12:vcuda_inside]",
            "add {0}, {0}, {1}",
            out(reg) address,
            out(reg) _,
            options(pure, nomem, nostack),
        );
    }
    // SAFETY: the thread pointer is never null, nor is what lies beside it.
    unsafe { NonNull::new_unchecked(address) }
}

/// The stack pointer.
#[inline]
fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Whether the thread is inside a hook, by what is remembered: see [`NestedCall::prove`].
#[inline]
pub(crate) fn is_inside() -> bool {
    // SAFETY: the state belongs to this thread alone.
    unsafe { (*state().as_ptr()).frame != 0 }
}

/// Lets `change` note what the thread holds in its hook.
#[inline]
pub(crate) fn note(change: impl FnOnce(&mut ThreadState)) {
    // SAFETY: the state belongs to this thread alone, and `change` calls nothing that reads it.
    change(unsafe { state().as_mut() });
}

/// Whether the thread's current call moves memory; `false` outside of hooks.
#[inline]
pub(crate) fn is_in_flight() -> bool {
    // SAFETY: the state belongs to this thread alone.
    unsafe { !(*state().as_ptr()).moving.is_null() }
}

/// Notes the thread's capture mode before the shim relaxed it; `None` once it is as it was.
#[inline]
pub(super) fn set_relaxed(before: Option<u32>) {
    note(|state| state.relaxed = before.map_or(0, |mode| mode + 1));
}

/// Capture mode of the thread before the shim relaxed it, if it has.
#[inline]
pub(super) fn relaxed() -> Option<u32> {
    // SAFETY: the state belongs to this thread alone.
    unsafe { (*state().as_ptr()).relaxed.checked_sub(1) }
}

/// A guard: the thread is inside a hook while it lives.
#[derive(Debug)]
pub(crate) struct HookGuard {
    state: NonNull<ThreadState>,
}

impl HookGuard {
    /// Enters a hook. `IS_SHIELDED`: cancellations wait meanwhile.
    #[inline]
    pub(crate) fn enter<const IS_SHIELDED: bool>() -> Self {
        let state = state();
        let frame = stack_pointer() | if IS_SHIELDED { SHIELDED } else { 0 };
        // SAFETY: the state belongs to this thread alone; the pointer makes the guard neither `Send` nor `Sync`.
        unsafe { (*state.as_ptr()).frame = frame };
        Self { state }
    }
}

impl Drop for HookGuard {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `enter`.
        unsafe { (*self.state.as_ptr()).frame = 0 };
    }
}

/// A call of the application within a hook. While it lives, the thread's state is that of a call outside of hooks.
#[derive(Debug)]
pub(crate) struct NestedCall {
    outer: ThreadState,
}

impl NestedCall {
    /// Proves what the present call is, in which the thread is inside a hook already. `None`: the driver's own code makes it. `give_back`
    /// gets the state of a hook that the thread has left by a jump, `goes_on` that of one to which it will return.
    #[cold]
    #[inline(never)]
    pub(crate) fn prove(
        give_back: impl FnOnce(&ThreadState),
        goes_on: impl FnOnce(&ThreadState),
    ) -> Option<Self> {
        let caller = Caller::of_hook();
        if caller.is_driver() {
            return None;
        }
        let mut outer = OUTSIDE;
        note(|state| outer = core::mem::replace(state, OUTSIDE));
        if outer.is_left(caller.stack_pointer) {
            if outer.frame & SHIELDED != 0 {
                super::cancel::lower();
            }
            if let Some(mode) = outer.relaxed.checked_sub(1) {
                super::relaxed::restore(mode);
            }
            give_back(&outer);
            outer = OUTSIDE;
        } else {
            goes_on(&outer);
        }
        Some(Self { outer })
    }
}

impl Drop for NestedCall {
    // Not a part of each hook, of which there are hundreds.
    #[inline(never)]
    fn drop(&mut self) {
        note(|state| *state = self.outer);
    }
}

impl ThreadState {
    /// Whether the hook's frame is gone, as a caller has this stack pointer. A caller on the alternate stack of signals says nothing of the
    /// frames below it.
    fn is_left(&self, stack_pointer: usize) -> bool {
        let mut alternate = libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: 0, ss_size: 0 };
        // SAFETY: only asks, into a record of the right type.
        unsafe { libc::sigaltstack(null(), &raw mut alternate) };
        stack_pointer > self.frame && alternate.ss_flags & libc::SS_ONSTACK == 0
    }
}

/// The caller of a hook.
#[derive(Debug, Clone, Copy)]
struct Caller {
    /// Address to which the hook returns; 0 if it is not known.
    address: usize,
    /// The caller's stack pointer at the call.
    stack_pointer: usize,
}

/// A frame as the unwinder describes it (Itanium C++ ABI: Exception Handling, level I).
#[repr(C)]
struct Context {
    opaque: [u8; 0],
}

unsafe extern "C" {
    /// Calls `each` for the frames of the thread, from the inside, until it returns something else than 0.
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    /// Address in the frame's function.
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    /// Stack pointer of the frame.
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
}

impl Caller {
    /// The nearest frame outside of this library.
    fn of_hook() -> Self {
        struct Walk {
            shim: Option<(usize, usize)>,
            found: Caller,
        }
        extern "C" fn each(context: *mut Context, walk: *mut c_void) -> c_int {
            // SAFETY: the pointer to `walk` below, which no other code uses meanwhile.
            let walk = unsafe { &mut *walk.cast::<Walk>() };
            // SAFETY: the unwinder's own argument.
            let address = unsafe { _Unwind_GetIP(context) };
            if walk.shim.is_some_and(|(first, end)| (first..end).contains(&address)) {
                return 0;
            }
            // SAFETY: as above.
            let stack_pointer = unsafe { _Unwind_GetCFA(context) };
            walk.found = Caller { address, stack_pointer };
            1
        }
        let own = Self::of_hook as *const () as usize;
        let mut walk = Walk {
            shim: objects::find(|object| object.contains(own).then(|| object.span())),
            found: Self { address: 0, stack_pointer: 0 },
        };
        // SAFETY: `each` has the type that is asked for and does not unwind.
        unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
        walk.found
    }

    /// Whether the caller is code of one of the driver's libraries.
    fn is_driver(self) -> bool {
        objects::find(|object| object.contains(self.address).then(|| Library::is_any(object)))
            .unwrap_or(false)
    }
}
