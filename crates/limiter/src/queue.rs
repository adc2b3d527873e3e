//! Queue of a tenant's processes that wait for GPU time on a device: the least served one proceeds first.
//!
//! Each waiting process has a word of its own with the GPU time that it has had, and the time until which the word is valid. The
//! least served waiting process proceeds for a [`QUANTUM_NS`]. The others wait until it has had that, or waits no more. So no
//! process has to hand over a lock. A killed or stopped process delays the others only until its word expires, and so does an
//! invalid word, which harms only its own tenant.
//!
//! GPU time is counted against a virtual clock that all processes of the tenant advance. A process that was idle starts again
//! at this clock, so that it is not compensated for unused time.

use crate::MAX_SLOTS;
use crate::primitive::{AtomicU64, Ordering};

/// GPU time that a process may take before a less served one proceeds (ns). Each change of the context costs a switch, and the
/// duration of overlapping segments is known badly.
pub const QUANTUM_NS: u64 = 1_000_000;
/// Validity of a waiting process's word (ns). It is longer than the process sleeps between two updates.
pub const BELIEVED_NS: u64 = 30_000_000;
/// Unit of GPU time in a word, and unit of its expiry, as powers of two (ns).
const SERVED_SHIFT: u32 = 10;
const UNTIL_SHIFT: u32 = 16;

/// The waiting processes in the layout of `usage`: a word for each slot.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Queue {
    /// The tenant's virtual clock: GPU time that the last admitted process had been served before (ns).
    clock_ns: AtomicU64,
    reserved: [AtomicU64; 15],
    /// [`Place`] of each slot's process; 0 if it does not wait.
    places: [AtomicU64; MAX_SLOTS],
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            clock_ns: AtomicU64::new(0),
            reserved: core::array::from_fn(|_| AtomicU64::new(0)),
            places: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// Word of a waiting process. The upper half is its rank: GPU time that it has had, and a bit that is clear in the middle of its
/// quantum. The lower half is the expiry. Both wrap, as they are compared only with words of about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(u64);

#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "numbers that wrap")]
impl Place {
    fn new(had_ns: u64, in_quantum: bool, until_ns: u64) -> Self {
        let rank = ((had_ns >> SERVED_SHIFT) as u32) << 1 | u32::from(!in_quantum);
        // Never 0, which means that the process does not wait.
        Self(u64::from(rank) << 32 | u64::from((until_ns >> UNTIL_SHIFT) as u32 | 1))
    }

    fn rank(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Time until the expiry (ns); `None` if the word has expired, is 0, or is invalid.
    fn believed_ns(self, now_ns: u64) -> Option<u64> {
        let left = (self.0 as u32).wrapping_sub((now_ns >> UNTIL_SHIFT) as u32) as i32;
        let left_ns = u64::try_from(left).ok()? << UNTIL_SHIFT;
        (self.0 != 0 && left_ns > 0 && left_ns <= 2 * BELIEVED_NS).then_some(left_ns)
    }

    /// Whether it is before `other` in the queue. Of equals, the lower slot is.
    fn is_before(self, own: usize, other: Self, others: usize) -> bool {
        match self.rank().wrapping_sub(other.rank()) as i32 {
            0 => own < others,
            difference => difference < 0,
        }
    }
}

/// A process's own counters for the queue of a device. If threads change them at the same time, a small amount may be lost.
#[derive(Debug)]
pub struct Member {
    slot: usize,
    /// GPU time at the start of the quantum, by the tenant's virtual clock (ns).
    had_ns: AtomicU64,
    /// GPU time taken in the present quantum (ns).
    spent_ns: AtomicU64,
}

impl Member {
    /// Creates the counters of the process in a slot.
    pub fn new(slot: usize) -> Self {
        Self { slot, had_ns: AtomicU64::new(0), spent_ns: AtomicU64::new(0) }
    }

    /// Slot of the process.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Whether the process has taken no GPU time in its present quantum.
    pub fn begins(&self) -> bool {
        self.spent_ns.load(Ordering::Relaxed) == 0
    }

    /// Place with a launch of `cost_ns`. Half of the launch counts, so that no process is ahead of or behind the others by more than
    /// half of its longest launch.
    fn place(&self, cost_ns: u64, until_ns: u64) -> Place {
        let begins = self.begins();
        let ahead_ns = if begins { cost_ns / 2 } else { 0 };
        let had_ns = self.had_ns.load(Ordering::Relaxed);
        Place::new(had_ns.wrapping_add(ahead_ns), !begins, until_ns)
    }

    /// Ends the quantum.
    fn end_quantum(&self, spent_ns: u64) {
        let had_ns = self.had_ns.load(Ordering::Relaxed);
        self.had_ns.store(had_ns.wrapping_add(spent_ns), Ordering::Relaxed);
        self.spent_ns.store(0, Ordering::Relaxed);
    }
}

impl Queue {
    /// Prepares a process for a launch of `cost_ns`. Its quantum ends if the launch does not fit. A process that was idle advances
    /// to the virtual clock, less a quantum.
    pub fn come(&self, member: &Member, cost_ns: u64) {
        let spent_ns = member.spent_ns.load(Ordering::Relaxed);
        if spent_ns > 0 && spent_ns.saturating_add(cost_ns) > QUANTUM_NS {
            member.end_quantum(spent_ns);
        }
        let least_ns = self.clock_ns.load(Ordering::Relaxed).wrapping_sub(QUANTUM_NS);
        let place = self.places.get(member.slot).map(|word| word.load(Ordering::Relaxed));
        // If another thread of the process already waits, the process keeps its place.
        let is_idle = place.is_none_or(|place| place == 0);
        if is_idle && is_less(member.had_ns.load(Ordering::Relaxed), least_ns) {
            member.had_ns.store(least_ns, Ordering::Relaxed);
            member.spent_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Publishes at `now_ns` (`CLOCK_MONOTONIC`) that a process waits with a launch of `cost_ns`.
    pub fn wait(&self, member: &Member, cost_ns: u64, now_ns: u64) {
        if let Some(word) = self.places.get(member.slot) {
            // Pairs with the same store of other processes: of two that wait, at least one sees the other.
            word.store(member.place(cost_ns, now_ns.saturating_add(BELIEVED_NS)).0, Ordering::SeqCst);
        }
    }

    /// Removes the process in a slot from the queue.
    pub fn leave(&self, slot: usize) {
        if let Some(word) = self.places.get(slot) {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Latest time until which another process is before a launch of `cost_ns` (`CLOCK_MONOTONIC`, ns): one of the first `slots` that
    /// waits and is less served. `None` if there is none.
    pub fn others_until(&self, member: &Member, cost_ns: u64, slots: usize, now_ns: u64) -> Option<u64> {
        let own = member.place(cost_ns, 0);
        let waiting = self.waiting(slots, now_ns);
        let ahead = waiting
            .filter(|(slot, place, _)| *slot != member.slot && place.is_before(*slot, own, member.slot));
        ahead.map(|(_, _, left_ns)| now_ns.saturating_add(left_ns)).max()
    }

    /// Whether a process other than the one in `slot` waits, of the first `slots`.
    pub fn others_wait(&self, slot: Option<usize>, slots: usize, now_ns: u64) -> bool {
        self.waiting(slots, now_ns).any(|(other, ..)| Some(other) != slot)
    }

    /// Slot of the first process of the queue; `None` if none waits.
    pub fn first(&self, slots: usize, now_ns: u64) -> Option<usize> {
        self.waiting(slots, now_ns)
            .reduce(|first, one| if one.1.is_before(one.0, first.1, first.0) { one } else { first })
            .map(|(slot, ..)| slot)
    }

    fn waiting(&self, slots: usize, now_ns: u64) -> impl Iterator<Item = (usize, Place, u64)> {
        let words = self.places.iter().enumerate().take(slots);
        words.filter_map(move |(slot, word)| {
            let place = Place(word.load(Ordering::SeqCst));
            place.believed_ns(now_ns).map(|left_ns| (slot, place, left_ns))
        })
    }

    /// Counts GPU time of an admitted process (ns), and advances the virtual clock.
    pub fn take(&self, member: &Member, amount_ns: u64) {
        let had_ns = member.had_ns.load(Ordering::Relaxed);
        if is_less(self.clock_ns.load(Ordering::Relaxed), had_ns) {
            self.clock_ns.store(had_ns, Ordering::Relaxed);
        }
        let spent_ns = member.spent_ns.load(Ordering::Relaxed).saturating_add(amount_ns);
        if spent_ns < QUANTUM_NS {
            member.spent_ns.store(spent_ns, Ordering::Relaxed);
        } else {
            member.end_quantum(spent_ns);
        }
    }
}

/// Whether `one_ns` is before `other_ns`. Both wrap.
fn is_less(one_ns: u64, other_ns: u64) -> bool {
    one_ns.wrapping_sub(other_ns).cast_signed() < 0
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
