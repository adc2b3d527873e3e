//! Whose turn it is among the processes of the container that are held: the least served first ([`vcuda_limiter::queue`]).

use core::sync::atomic::{AtomicU32, Ordering};

use vcuda_limiter::queue::{Member, Queue};

use super::device_limiter::{DeviceLimiter, TURNS, now_ns};

/// The held launches of this process, one after another.
#[derive(Debug, Default)]
pub(super) struct TurnQueue {
    came: AtomicU32,
    gone: AtomicU32,
}

impl TurnQueue {
    /// The last place.
    fn join(&self) -> u32 {
        self.came.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether nobody of a lower place is held.
    fn is_first(&self, place: u32) -> bool {
        place.wrapping_sub(self.gone.load(Ordering::SeqCst)).cast_signed() <= 0
    }

    /// Who had this place is held no more. Whoever came before it may go too.
    fn leave(&self, place: u32) {
        let next = place.wrapping_add(1);
        let goes_on = |gone: u32| (next.wrapping_sub(gone).cast_signed() > 0).then_some(next);
        // Fails if somebody of a higher place went before.
        let _ = self
            .gone
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, goes_on);
    }

    fn is_empty(&self) -> bool {
        self.came.load(Ordering::SeqCst) == self.gone.load(Ordering::SeqCst)
    }
}

impl DeviceLimiter {
    fn queue(&self) -> &Queue {
        self.region.usage.queue(self.device)
    }

    /// This process in the queue, if there may be others.
    fn member(&self) -> Option<&Member> {
        self.member.as_ref().filter(|_| self.region.usage.had_several())
    }

    /// A launch of `cost_ns` comes to ask for GPU time.
    pub(super) fn come(&self, cost_ns: u64) {
        if let Some(member) = self.member() {
            self.queue().come(member, cost_ns);
        }
    }

    /// Until when at most another goes before a launch of `cost_ns` (`CLOCK_MONOTONIC`, ns): of this process, if it has a
    /// `place` among those held or asks for one, or another process.
    pub(super) fn others_until(&self, cost_ns: u64, place: Option<u32>, now_ns: u64) -> Option<u64> {
        let is_first = place.map_or_else(|| self.line.is_empty(), |place| self.line.is_first(place));
        if !is_first {
            return Some(u64::MAX);
        }
        let slots = self.region.usage.slots_used();
        self.queue().others_until(self.member()?, cost_ns, slots, now_ns)
    }

    /// Whether no launch of this process that came before the one of this place is held.
    pub(super) fn is_first(&self, place: u32) -> bool {
        self.line.is_first(place)
    }

    /// Whether a turn of this process would begin now.
    pub(super) fn begins_turn(&self) -> bool {
        self.member().is_some_and(Member::begins)
    }

    /// A launch is held, in this place.
    pub(super) fn join(&self) -> u32 {
        self.held.fetch_add(1, Ordering::SeqCst);
        self.line.join()
    }

    /// A launch of `cost_ns` is held: the others know for a while.
    pub(super) fn stand_in_line(&self, cost_ns: u64, now_ns: u64) {
        if let Some(member) = self.member() {
            self.queue().wait(member, cost_ns, now_ns);
        }
    }

    /// The launch of this place was held and has taken what it needs. `last`: no other of this process is held.
    pub(super) fn step_out(&self, place: u32, cost_ns: u64, last: bool) {
        self.line.leave(place);
        if !last {
            self.wake_waiters(self.own_turn());
            return;
        }
        let Some(member) = self.member() else {
            return;
        };
        self.queue().leave(member.slot());
        if self.held.load(Ordering::SeqCst) > 0 {
            // One came meanwhile, and may have said so before we took it back.
            self.queue().wait(member, cost_ns, now_ns());
        }
        self.call_next();
    }

    /// Wakes the process whose turn it is.
    fn call_next(&self) {
        let slots = self.region.usage.slots_used();
        if let Some(next) = self.queue().first(slots, now_ns()) {
            self.wake_waiters(turn_of(next));
        }
    }

    /// A launch goes, and takes so much for it and the next ones (ns). Threads that are held beside it count as much as those
    /// of other processes.
    pub(super) fn took(&self, amount_ns: u64) {
        if let Some(member) = self.member() {
            let threads = 1 + u64::from(self.held.load(Ordering::Relaxed));
            self.queue().take(member, amount_ns / threads);
        }
    }

    /// Sleeps until it may be this process's turn, or for `ns`. `waits` is called once others can see that it does.
    pub(super) fn sleep_for_turn(&self, place: u32, cost_ns: u64, ns: u64, waits: impl FnOnce()) {
        let still = || {
            waits();
            self.others_until(cost_ns, Some(place), now_ns()).is_some()
        };
        self.sleep(self.own_turn(), ns, still);
    }

    /// What this process is woken by when its turn comes.
    fn own_turn(&self) -> u32 {
        turn_of(self.member.as_ref().map_or(0, Member::slot))
    }
}

/// What the process of a slot is woken by, and now and then another.
fn turn_of(slot: usize) -> u32 {
    let first = TURNS.trailing_zeros();
    1 << (first as usize + slot % TURNS.count_ones() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_woken_by_a_bit_of_turns() {
        for slot in 0..vcuda_region::MAX_SLOTS {
            let bit = turn_of(slot);
            assert!(bit.is_power_of_two() && bit & TURNS == bit, "{slot}");
        }
        assert_ne!(turn_of(0), turn_of(1));
    }
}
