//! Whose turn it is among the processes of a tenant that wait for GPU time on one device.
//!
//! Who waits says so in a word of its own, with how much GPU time it has had, and until when that can be believed. The least
//! served of those who wait goes first, for a [`QUANTUM_NS`]; the others wait until it has had that, or waits no more. So
//! nobody has to let anybody in: there is no holder, whoever is killed or stopped is waited for until what it said is too
//! old, and who writes nonsense harms its own tenant for as long.
//!
//! What a process has had is told by a clock of GPU time that all processes of the tenant move on: who was idle goes on
//! from there, and is not paid for the time that it did not use.

use crate::MAX_SLOTS;
use crate::primitive::{AtomicU64, Ordering};

/// GPU time that a process may take before one that has had less goes first (ns): a context's turn on the GPU costs a
/// switch, and segments of work that overlap tell little of what each took.
pub const QUANTUM_NS: u64 = 1_000_000;
/// For how long the word of one that waits is believed (ns): longer than it sleeps between two looks.
pub const BELIEVED_NS: u64 = 30_000_000;
/// Units of GPU time in a word (ns), and of time.
const SERVED_SHIFT: u32 = 10;
const UNTIL_SHIFT: u32 = 16;

/// The processes that wait, as they lie in `usage`: a word for each slot.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Queue {
    /// The tenant's clock of GPU time: how much the process that was admitted last had been served before (ns).
    clock_ns: AtomicU64,
    reserved: [AtomicU64; 15],
    /// 0: does not wait. Else [`Place`].
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

/// What a waiting process says: what it has had, and a bit that is not set while it is in the middle of its quantum, in the
/// upper half; until when that is believed in the lower. Both wrap: they are compared with others of the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(u64);

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "numbers that wrap"
)]
impl Place {
    fn new(had_ns: u64, in_quantum: bool, until_ns: u64) -> Self {
        let rank = ((had_ns >> SERVED_SHIFT) as u32) << 1 | u32::from(!in_quantum);
        // Never 0, which is nobody's place.
        Self(u64::from(rank) << 32 | u64::from((until_ns >> UNTIL_SHIFT) as u32 | 1))
    }

    fn rank(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// For how much longer it is believed (ns); nothing of one that is too old, or of nonsense.
    fn believed_ns(self, now_ns: u64) -> Option<u64> {
        let left = (self.0 as u32).wrapping_sub((now_ns >> UNTIL_SHIFT) as u32) as i32;
        let left_ns = u64::try_from(left).ok()? << UNTIL_SHIFT;
        (self.0 != 0 && left_ns > 0 && left_ns <= 2 * BELIEVED_NS).then_some(left_ns)
    }

    /// Whether it goes before `other`; of equals, the one of the lower slot.
    fn is_before(self, own: usize, other: Self, others: usize) -> bool {
        match self.rank().wrapping_sub(other.rank()) as i32 {
            0 => own < others,
            difference => difference < 0,
        }
    }
}

/// One process in the queue of a device: its own memory. Threads that change it at the same time lose a little of what they
/// tell.
#[derive(Debug)]
pub struct Member {
    slot: usize,
    /// What it had had when its quantum began, by the tenant's clock (ns).
    had_ns: AtomicU64,
    /// What it has had of its quantum (ns).
    spent_ns: AtomicU64,
}

impl Member {
    /// The process of a slot; it has had nothing.
    #[must_use]
    pub fn new(slot: usize) -> Self {
        Self {
            slot,
            had_ns: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
        }
    }

    /// Which it is.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Whether it has had nothing yet of its present quantum.
    #[must_use]
    pub fn begins(&self) -> bool {
        self.spent_ns.load(Ordering::Relaxed) == 0
    }

    /// Where it stands with a launch of `cost_ns`. Half of the launch counts, so that no process gets ahead of the others, or
    /// behind them, by more than half of its longest launch.
    fn place(&self, cost_ns: u64, until_ns: u64) -> Place {
        let begins = self.begins();
        let ahead_ns = if begins { cost_ns / 2 } else { 0 };
        let had_ns = self.had_ns.load(Ordering::Relaxed);
        Place::new(had_ns.wrapping_add(ahead_ns), !begins, until_ns)
    }

    /// Its quantum is over.
    fn end_quantum(&self, spent_ns: u64) {
        let had_ns = self.had_ns.load(Ordering::Relaxed);
        self.had_ns
            .store(had_ns.wrapping_add(spent_ns), Ordering::Relaxed);
        self.spent_ns.store(0, Ordering::Relaxed);
    }
}

impl Queue {
    /// A process comes to ask for a launch of `cost_ns`: a quantum ends before what would not fit into it. Who was idle has had
    /// as much as the last that went, but for a quantum.
    pub fn come(&self, member: &Member, cost_ns: u64) {
        let spent_ns = member.spent_ns.load(Ordering::Relaxed);
        if spent_ns > 0 && spent_ns.saturating_add(cost_ns) > QUANTUM_NS {
            member.end_quantum(spent_ns);
        }
        let least_ns = self.clock_ns.load(Ordering::Relaxed).wrapping_sub(QUANTUM_NS);
        let place = self
            .places
            .get(member.slot)
            .map(|word| word.load(Ordering::Relaxed));
        // A process that waits with another launch already keeps its place, however old.
        let is_idle = place.is_none_or(|place| place == 0);
        if is_idle && is_less(member.had_ns.load(Ordering::Relaxed), least_ns) {
            member.had_ns.store(least_ns, Ordering::Relaxed);
            member.spent_ns.store(0, Ordering::Relaxed);
        }
    }

    /// A process says that it waits with a launch of `cost_ns`, as of `now_ns` (`CLOCK_MONOTONIC`).
    pub fn wait(&self, member: &Member, cost_ns: u64, now_ns: u64) {
        if let Some(word) = self.places.get(member.slot) {
            // Pairs with the same of others: of two that wait, one sees the other first.
            word.store(
                member.place(cost_ns, now_ns.saturating_add(BELIEVED_NS)).0,
                Ordering::SeqCst,
            );
        }
    }

    /// The process of a slot waits no more.
    pub fn leave(&self, slot: usize) {
        if let Some(word) = self.places.get(slot) {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Until when another goes before a launch of `cost_ns`, of the first `slots` (`CLOCK_MONOTONIC`, ns, at most): one that
    /// waits and has had less.
    #[must_use]
    pub fn others_until(&self, member: &Member, cost_ns: u64, slots: usize, now_ns: u64) -> Option<u64> {
        let own = member.place(cost_ns, 0);
        let waiting = self.waiting(slots, now_ns);
        let ahead = waiting
            .filter(|(slot, place, _)| *slot != member.slot && place.is_before(*slot, own, member.slot));
        ahead.map(|(_, _, left_ns)| now_ns.saturating_add(left_ns)).max()
    }

    /// The slot of who goes first, of those who wait.
    #[must_use]
    pub fn first(&self, slots: usize, now_ns: u64) -> Option<usize> {
        self.waiting(slots, now_ns)
            .reduce(|first, one| {
                if one.1.is_before(one.0, first.1, first.0) {
                    one
                } else {
                    first
                }
            })
            .map(|(slot, ..)| slot)
    }

    fn waiting(&self, slots: usize, now_ns: u64) -> impl Iterator<Item = (usize, Place, u64)> {
        let words = self.places.iter().enumerate().take(slots);
        words.filter_map(move |(slot, word)| {
            let place = Place(word.load(Ordering::SeqCst));
            place.believed_ns(now_ns).map(|left_ns| (slot, place, left_ns))
        })
    }

    /// A process goes, and takes so much (ns of GPU time).
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

/// Whether one number of nanoseconds comes before another, where both wrap.
fn is_less(one_ns: u64, other_ns: u64) -> bool {
    one_ns.wrapping_sub(other_ns).cast_signed() < 0
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
