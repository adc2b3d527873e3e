//! Turns among the tenant's processes whose launches wait: the least served goes first ([`vcuda_limiter::queue`]).

use core::sync::atomic::{AtomicU32, Ordering};

use vcuda_limiter::queue::{Member, Queue};

use vcuda_region::clock::now_ns;

use super::{DeviceLimiter, TURNS};

/// The waiting launches of this process, in order.
#[derive(Debug, Default)]
pub(in crate::compute) struct TurnQueue {
    came: AtomicU32,
    gone: AtomicU32,
}

impl TurnQueue {
    /// Takes the last place in the order.
    fn join(&self) -> u32 {
        self.came.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether no launch with a lower place waits.
    fn is_first(&self, place: u32) -> bool {
        place.wrapping_sub(self.gone.load(Ordering::SeqCst)).cast_signed() <= 0
    }

    /// Removes a place. The launches before it may proceed too.
    pub(in crate::compute) fn leave(&self, place: u32) {
        let next = place.wrapping_add(1);
        let goes_on = |gone: u32| (next.wrapping_sub(gone).cast_signed() > 0).then_some(next);
        // Fails if a launch with a higher place proceeded before.
        let _ = self.gone.fetch_update(Ordering::SeqCst, Ordering::SeqCst, goes_on);
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

    /// Notes that a launch of `cost_ns` asks for GPU time.
    pub(in crate::compute) fn come(&self, cost_ns: u64) {
        if let Some(member) = self.member() {
            self.queue().come(member, cost_ns);
        }
    }

    /// Latest time until which another launch is before one of `cost_ns` (`CLOCK_MONOTONIC`, ns): another of this process (by
    /// `place`, if the launch waits already), or one of another process. `None` if there is none.
    pub(in crate::compute) fn others_until(
        &self,
        cost_ns: u64,
        place: Option<u32>,
        now_ns: u64,
    ) -> Option<u64> {
        let is_first = place.map_or_else(|| self.line.is_empty(), |place| self.line.is_first(place));
        if !is_first {
            return Some(u64::MAX);
        }
        let slots = self.region.usage.slots_used();
        self.queue().others_until(self.member()?, cost_ns, slots, now_ns)
    }

    /// Whether a launch of another process waits.
    pub(in crate::compute) fn others_wait(&self, now_ns: u64) -> bool {
        let own = self.member().map(Member::slot);
        own.is_some() && self.queue().others_wait(own, self.region.usage.slots_used(), now_ns)
    }

    /// Whether a launch waits, of this process or of another.
    pub(in crate::compute) fn has_waiting(&self, now_ns: u64) -> bool {
        self.held.load(Ordering::Relaxed) > 0
            || self.queue().others_wait(None, self.region.usage.slots_used(), now_ns)
    }

    /// Whether no launch of this process that came before the one with this place waits.
    pub(in crate::compute) fn is_first(&self, place: u32) -> bool {
        self.line.is_first(place)
    }

    /// Whether a turn of this process would begin now.
    pub(in crate::compute) fn begins_turn(&self) -> bool {
        self.member().is_some_and(Member::begins)
    }

    /// Notes that a launch waits. Returns its place.
    pub(in crate::compute) fn join(&self) -> u32 {
        self.held.fetch_add(1, Ordering::SeqCst);
        self.line.join()
    }

    /// Publishes to the other processes, for a while, that a launch of `cost_ns` waits. Only the first of this process's launches
    /// does: the rank of one behind it would keep others back for a launch that cannot go yet, and two such processes each other.
    pub(in crate::compute) fn stand_in_line(&self, place: u32, cost_ns: u64, now_ns: u64) {
        if let Some(member) = self.member().filter(|_| self.line.is_first(place)) {
            self.queue().wait(member, cost_ns, now_ns);
        }
    }

    /// Ends the wait of the launch with this place, which has taken its tokens. `last`: no other launch of this
    /// process waits.
    pub(in crate::compute) fn step_out(&self, place: u32, cost_ns: u64, last: bool) {
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
            // A launch came meanwhile; its entry may have been withdrawn here.
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

    /// Counts `amount_ns` that a launch takes for itself and the next ones. Waiting threads of this process count as much as those
    /// of other processes.
    pub(in crate::compute) fn took(&self, amount_ns: u64) {
        if let Some(member) = self.member() {
            let threads = 1 + u64::from(self.held.load(Ordering::Relaxed));
            self.queue().take(member, amount_ns / threads);
        }
    }

    /// Sleeps until this process's turn may come, or for `ns`. `waits` is called once other processes can see that it
    /// waits.
    pub(in crate::compute) fn sleep_for_turn(&self, place: u32, cost_ns: u64, ns: u64, waits: impl FnOnce()) {
        let still = || {
            waits();
            self.others_until(cost_ns, Some(place), now_ns()).is_some()
        };
        self.sleep(self.own_turn(), ns, still);
    }

    /// The bit that wakes this process when its turn comes.
    fn own_turn(&self) -> u32 {
        turn_of(self.member.as_ref().map_or(0, Member::slot))
    }
}

/// The bit that wakes the process of a slot; processes with other slots may share it.
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
