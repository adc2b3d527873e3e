//! Whether a figure of the driver's and the ledger may be compared: only while no other call of this process is between
//! the two. A call that takes or gives memory counts first and asks the driver then, or the other way round. In between
//! they differ.

use core::cell::Cell;
use core::ptr::null;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::driver::reentrancy::{self, ThreadState};

/// Number of shards: threads seldom share one.
const SHARDS: usize = 16;

/// Number of threads in calls that move memory (low half), and of all such calls ever begun (high half).
#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard(AtomicU64);

/// The calls of this process that are moving memory.
#[derive(Debug, Default)]
pub(crate) struct InFlightCalls {
    shards: [Shard; SHARDS],
}

const ONE_IN: u64 = 1 << 32 | 1;
const COUNT: u64 = 0xffff_ffff;

/// A guard: memory may be moving while it lives.
#[derive(Debug)]
pub(crate) struct Unsettled(&'static Shard);

impl Drop for Unsettled {
    #[inline]
    fn drop(&mut self) {
        // Pairs with the loads in `quiet_epoch`: a thread that no longer sees this call also sees its effects.
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// A guard: the thread's call may move memory while it lives.
#[derive(Debug)]
pub(crate) struct MovingCall {
    _unsettled: Unsettled,
}

impl Drop for MovingCall {
    #[inline]
    fn drop(&mut self) {
        reentrancy::note(|state| state.moving = null());
    }
}

/// Ends the count of a call that the thread has left by a jump.
pub(crate) fn give_back(left: &ThreadState) {
    // SAFETY: null, or a word of the process's state, which is never freed.
    if let Some(word) = unsafe { left.moving.as_ref() } {
        word.fetch_sub(1, Ordering::Release);
    }
}

impl InFlightCalls {
    /// Notes that the thread's call of a hook may move memory.
    #[inline]
    pub(crate) fn enter(&'static self) -> MovingCall {
        let unsettled = self.unsettled();
        reentrancy::note(|state| state.moving = &raw const unsettled.0.0);
        MovingCall { _unsettled: unsettled }
    }

    /// Notes that the ledger is about to follow memory that the driver has given back, in a call that may move none
    /// otherwise. Until then the ledger has more. The calling thread must not compare meanwhile.
    #[inline]
    pub(crate) fn unsettled(&'static self) -> Unsettled {
        let shard = self.shard();
        // Sequentially consistent: before anything that the call does.
        shard.0.fetch_add(ONE_IN, Ordering::SeqCst);
        Unsettled(shard)
    }

    /// The calling thread's shard, by its stack's address, which costs nothing to know.
    #[expect(clippy::indexing_slicing, reason = "reduced to the length of the array")]
    #[inline]
    fn shard(&self) -> &Shard {
        let on_stack = Cell::new(0_u8);
        let address = core::ptr::from_ref(&on_stack).addr();
        &self.shards[(address >> 16 ^ address >> 21) % SHARDS]
    }

    /// A number that changes when a thread begins to move memory; `None` while other threads are moving some.
    pub(crate) fn quiet_epoch(&self) -> Option<u64> {
        let (mut inside_now, mut ever) = (0, 0_u64);
        for shard in &self.shards {
            let word = shard.0.load(Ordering::SeqCst);
            inside_now += word & COUNT;
            ever = ever.wrapping_add(word >> 32);
        }
        (inside_now == u64::from(reentrancy::is_in_flight())).then_some(ever)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_under_way_is_seen_and_one_that_has_ended_too() {
        let in_flight: &'static InFlightCalls = Box::leak(Box::default());
        let before = in_flight.quiet_epoch();
        assert!(before.is_some());
        let shard = in_flight.shard();
        shard.0.fetch_add(ONE_IN, Ordering::SeqCst);
        assert_eq!(in_flight.quiet_epoch(), None);
        reentrancy::note(|state| state.moving = &raw const shard.0);
        assert!(in_flight.quiet_epoch().is_some(), "the thread that asks may itself be in such a call");
        drop(Unsettled(shard));
        reentrancy::note(|state| state.moving = null());
        assert!(in_flight.quiet_epoch().is_some());
        assert_ne!(in_flight.quiet_epoch(), before);
    }
}
