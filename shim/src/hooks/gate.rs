//! The gate that each call of a suspendable tenant passes ([`crate::runtime::suspend`]).

use crate::driver::reentrancy::{self, HookGuard};
use crate::runtime::suspend::{self, Passage};

/// Whether no call has to pass a gate.
#[inline]
pub(super) fn idle() -> bool {
    suspend::is_idle()
}

/// A guard: the thread is in a call that has passed the gate.
#[derive(Debug)]
pub(super) struct Passed {
    _passage: Passage,
    _inside: HookGuard,
}

/// Passes the gate. `None` within another hook.
#[inline(never)]
pub(super) fn pass() -> Option<Passed> {
    if reentrancy::is_inside() {
        return None;
    }
    let inside = HookGuard::enter::<false>();
    Some(Passed { _passage: suspend::enter(), _inside: inside })
}
