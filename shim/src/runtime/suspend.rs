//! The gate of a suspendable tenant's process. While the tenant is suspended its GPU state is in the host's memory, and a
//! call of the driver would wait there, or end the process. So each call first passes the gate
//! ([`vcuda_region::suspension`]), which asks the manager for the memory and waits outside of the driver.
//!
//! The process is known to the manager from its slot on, and has a gate from the first call after that. Calls that began
//! before are counted too: the gate is declared when the last of them has ended. A process whose tenant is not suspendable
//! has no gate; that costs a load and a branch.

use core::sync::atomic::Ordering;

use vcuda_region::suspension::{Gate, SuspendState};

use crate::driver::reentrancy::{self, ThreadState};
use crate::runtime::fork;
use crate::runtime::futex;
use crate::runtime::shim::{self, Shim};

/// Values of the word ([`fork::gate`]) that are no pointer to an [`OpenGate`]: no state is built.
const UNKNOWN: usize = 0;
/// There is none.
const NONE: usize = 1;
/// There will be one.
const WANTED: usize = 2;

/// Longest sleep of a waiting thread (ns). It then asks again: a manager that was killed has forgotten the request.
const ASK_AGAIN_NS: u64 = 5_000_000;

/// The gate, and the slot by which the manager knows it.
#[derive(Debug)]
struct OpenGate {
    gate: Gate<'static>,
    shim: &'static Shim,
}

impl OpenGate {
    /// Tells the manager that all calls pass the gate, once that is so.
    fn declare_if_all_pass(&self) {
        if fork::ungated().load(Ordering::SeqCst) == 0
            && let Some(slot) = self.shim.claimed()
        {
            slot.declare_gate();
        }
    }
}

/// A guard: the calling thread may be inside the driver while it lives.
#[derive(Debug)]
#[must_use = "the guard ends when it is dropped"]
pub(crate) enum Passage {
    /// There is no gate.
    Free,
    /// There was none yet when the call began.
    Ungated,
    /// The gate counts the thread.
    Gated(&'static Gate<'static>),
}

impl Drop for Passage {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self, Self::Free) {
            self.leave();
        }
    }
}

/// Values of [`ThreadState::passage`]: [`Passage::Ungated`] and [`Passage::Gated`].
const UNGATED: u32 = 1;
const GATED: u32 = 2;

impl Passage {
    fn number(&self) -> u32 {
        match self {
            Self::Free => 0,
            Self::Ungated => UNGATED,
            Self::Gated(_) => GATED,
        }
    }

    // Not a part of each hook, of which there are hundreds.
    #[inline(never)]
    fn leave(&self) {
        reentrancy::note(|state| state.passage = 0);
        match self {
            Self::Free => {}
            Self::Ungated => leave_ungated(),
            // A child that was forked in the call has a word that is zero, and leaves its parent's count alone.
            Self::Gated(gate) => {
                if fork::gate().load(Ordering::Relaxed) > WANTED {
                    gate.leave();
                }
            }
        }
    }
}

/// Whether no call has to pass a gate, as far as is known.
#[inline]
pub(crate) fn is_idle() -> bool {
    fork::gate().load(Ordering::Relaxed) <= NONE
}

/// Notes whether this process's calls will pass a gate. Called once the state is built.
pub(crate) fn decide(shim: Option<&Shim>) {
    let is_suspendable = shim.and_then(Shim::region).is_some_and(|region| region.limits.is_suspendable());
    if is_suspendable {
        crate::runtime::limits::gate_everything();
    }
    let word = if is_suspendable { WANTED } else { NONE };
    fork::gate().store(word, Ordering::SeqCst);
}

/// Waits until the tenant's GPU state is there, and counts the thread as inside the driver.
#[inline]
pub(crate) fn enter() -> Passage {
    if fork::gate().load(Ordering::Relaxed) == NONE {
        return Passage::Free;
    }
    enter_gate()
}

#[inline(never)]
fn enter_gate() -> Passage {
    if let Some(gate) = known()
        && gate.gate.try_enter()
    {
        reentrancy::note(|state| state.passage = GATED);
        return Passage::Gated(&gate.gate);
    }
    let passage = enter_slowly();
    reentrancy::note(|state| state.passage = passage.number());
    passage
}

/// Leaves the gate for a call that the thread has left by a jump.
pub(crate) fn give_back(left: &ThreadState) {
    match left.passage {
        UNGATED => leave_ungated(),
        GATED => {
            if let Some(gate) = known() {
                gate.gate.leave();
            }
        }
        _ => {}
    }
}

/// As [`enter`], for a call that has to wait, or to open the gate first.
#[cold]
fn enter_slowly() -> Passage {
    loop {
        match try_enter_gate(Gate::try_enter) {
            Ok(passage) => return passage,
            Err(gate) => wait(&gate.gate),
        }
    }
}

/// As [`enter`], for threads of the shim: `None` while the tenant's GPU state is away, or about to leave. Their work is no
/// sign that the tenant uses the GPU.
pub(crate) fn try_enter() -> Option<Passage> {
    try_enter_gate(Gate::try_enter_uncounted).ok()
}

/// Counts the thread as inside the driver, by `try_enter`. If the gate does not let it pass, it is the error.
fn try_enter_gate(try_enter: fn(&Gate<'static>) -> bool) -> Result<Passage, &'static OpenGate> {
    let gate = loop {
        if let Some(gate) = find_or_open() {
            break gate;
        }
        if let Some(passage) = enter_ungated() {
            return Ok(passage);
        }
    };
    if try_enter(&gate.gate) { Ok(Passage::Gated(&gate.gate)) } else { Err(gate) }
}

/// Counts a call that began before there was a gate, unless there is one by now.
fn enter_ungated() -> Option<Passage> {
    if fork::gate().load(Ordering::Relaxed) == NONE {
        return Some(Passage::Free);
    }
    // Sequentially consistent, as the exchange in `open` and the load in `declare_if_all_pass`: either that load sees this
    // call, or this call sees the gate.
    fork::ungated().fetch_add(1, Ordering::SeqCst);
    let passage = Passage::Ungated;
    known().is_none().then_some(passage)
}

fn leave_ungated() {
    // In a child that was forked in the call, the count is zero already.
    let left = fork::ungated().fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    if left == Ok(1)
        && let Some(gate) = known()
    {
        gate.declare_if_all_pass();
    }
}

/// The gate, if it is open.
fn known() -> Option<&'static OpenGate> {
    match fork::gate().load(Ordering::SeqCst) {
        UNKNOWN | NONE | WANTED => None,
        // SAFETY: any other value came from a leaked box in `open`.
        pointer => Some(unsafe { &*(pointer as *const OpenGate) }),
    }
}

#[inline]
fn find_or_open() -> Option<&'static OpenGate> {
    match known() {
        // A panic of the shim ends here: some callers have no other guard against it.
        None if fork::gate().load(Ordering::Relaxed) == WANTED => std::panic::catch_unwind(open).ok()?,
        found => found,
    }
}

/// Opens the gate in the process's slot. `None` without a slot: the process can take no memory then.
#[cold]
fn open() -> Option<&'static OpenGate> {
    let shim = shim::built()?;
    let gate = shim.slot()?.gate()?;
    let made = Box::into_raw(Box::new(OpenGate { gate, shim }));
    let first = fork::gate().compare_exchange(WANTED, made as usize, Ordering::SeqCst, Ordering::SeqCst);
    if first.is_err() {
        // SAFETY: the value was never shared, as another thread was first.
        drop(unsafe { Box::from_raw(made) });
    }
    let gate = known()?;
    gate.declare_if_all_pass();
    Some(gate)
}

/// Asks for the tenant's memory, and waits until its state may have changed. The caller then begins again: the wait ends in
/// the driver only once the gate lets the thread pass.
#[cold]
fn wait(gate: &Gate<'_>) {
    let seen = gate.state_word().load(Ordering::SeqCst);
    if SuspendState::word_lets_calls_pass(seen) {
        return;
    }
    gate.ask_to_resume();
    futex::wait(gate.state_word(), seen, ASK_AGAIN_NS);
}
