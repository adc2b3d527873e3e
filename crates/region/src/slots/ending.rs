//! The end of a process: its GPU time is given back at once, its memory once the driver has released it (I18).
//!
//! The driver releases a dead process's memory when the last of its descriptors is closed. A child that the process
//! forked, and that called no `exec`, has them too. It also has the process's lock on `usage`, so the kernel can be
//! asked: while the lock is held, the memory counts. After that the driver needs a moment, [`RELEASED_AFTER_NS`]
//! (docs/hardware.md, "end of a process").

use core::time::Duration;

use super::state::{CLAIMED, CLEARING, FREE, LIVE};
use super::{State, Usage};
use crate::DeviceIndex;
use crate::clock;
use crate::layout::IdentityRecord;
use crate::primitive::Ordering;
use crate::process::{Identity, Liveness, ProcessView};

/// Time that the driver needs to release memory once nothing is seen to keep it (ns).
pub const RELEASED_AFTER_NS: u64 = 20_000_000;

/// Mask of the incarnation's bits in [`IdentityRecord::gone`]; the other bits are the time.
const INCARNATION: u64 = 0xff;

/// Result of a search for dead processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reaped {
    /// Slots that were cleared.
    pub cleared: usize,
    /// Time until the driver has released the memory of other dead processes that nothing keeps (ns); 0 if there are
    /// none.
    pub due_in_ns: u64,
}

/// Fate of the process that a slot names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The process lives or may live, or something keeps its memory.
    Holds,
    /// Time after which the process's memory counts as released (ns); 0: now.
    ReleasedIn(u64),
}

impl IdentityRecord {
    /// Time at which the owner's memory was last seen to be kept after its death (ns). `None` if the owner was not
    /// seen dead.
    pub(crate) fn gone_ns(&self) -> Option<u64> {
        let word = self.gone.load(Ordering::Relaxed);
        let incarnation = self.state().incarnation();
        (word != 0 && word & INCARNATION == incarnation & INCARNATION).then_some(word & !INCARNATION)
    }

    fn set_gone_ns(&self, state: State, now_ns: u64) {
        let word = now_ns & !INCARNATION | state.incarnation() & INCARNATION;
        self.gone.store(word, Ordering::Relaxed);
    }
}

impl Usage {
    /// Empties and frees the slots of processes that are gone and whose memory the driver has released. Any number of
    /// processes may do this at the same time, and be killed in it.
    pub fn reap_dead(&self, view: &ProcessView) -> Reaped {
        let mut reaped = Reaped::default();
        let now_ns = clock::now_ns();
        for (index, record) in self.identities() {
            let state = record.state();
            match self.ending((index, record), state, view, now_ns) {
                Ending::ReleasedIn(0) if self.clear(index, record, state) => reaped.cleared += 1,
                Ending::ReleasedIn(ns) => reaped.due_in_ns = reaped.due_in_ns.max(ns),
                Ending::Holds => {}
            }
        }
        // Objects that only the dead held, or whose last holder stands still and has not ended them.
        self.objects().sweep();
        reaped
    }

    /// As [`Usage::reap_dead`], and waits for the driver to release memory that nothing keeps any more:
    /// [`RELEASED_AFTER_NS`] at most.
    pub fn reap_dead_and_wait(&self, view: &ProcessView) -> Reaped {
        let first = self.reap_dead(view);
        if first.due_in_ns == 0 {
            return first;
        }
        std::thread::sleep(Duration::from_nanos(first.due_in_ns));
        let second = self.reap_dead(view);
        Reaped { cleared: first.cleared + second.cleared, due_in_ns: 0 }
    }

    fn ending(
        &self,
        (index, record): (usize, &IdentityRecord),
        state: State,
        view: &ProcessView,
        now_ns: u64,
    ) -> Ending {
        match state.status() {
            FREE => Ending::Holds,
            // Only the PID is known. If it is alive in a namespace of its own, it will see that it lost the slot and
            // take another.
            CLAIMED if view.pid_is_gone(state.pid()) => Ending::ReleasedIn(0),
            CLAIMED => Ending::Holds,
            LIVE => match record.identity(state) {
                Some(holder) if self.is_dead((index, record), state, &holder, view) => {
                    self.release_of_dead((index, record), state, now_ns)
                }
                _ => Ending::Holds,
            },
            _ => Ending::ReleasedIn(0),
        }
    }

    fn is_dead(
        &self,
        (index, record): (usize, &IdentityRecord),
        state: State,
        holder: &Identity,
        view: &ProcessView,
    ) -> bool {
        match view.liveness(holder) {
            Liveness::Alive => false,
            Liveness::Dead => true,
            Liveness::Unknown => {
                view.cannot_see(holder) && is_locked_by_holder(record, state) && self.held.is_unlocked(index)
            }
        }
    }

    /// The fate of a dead process's slot; its GPU time is given back.
    fn release_of_dead(
        &self,
        (index, record): (usize, &IdentityRecord),
        state: State,
        now_ns: u64,
    ) -> Ending {
        if !self.has_memory(index) {
            return Ending::ReleasedIn(0);
        }
        let is_kept = is_locked_by_holder(record, state) && !self.held.is_unlocked(index);
        // A time far in the future is invalid. A tenant may write one, which must not keep the memory counted.
        let latest_ns = now_ns.saturating_add(RELEASED_AFTER_NS);
        let seen_ns = record.gone_ns().filter(|seen_ns| *seen_ns <= latest_ns);
        if is_kept || seen_ns.is_none() {
            record.set_gone_ns(state, now_ns);
        }
        if seen_ns.is_none() {
            self.give_back_time(index, || record.state() == state);
        }
        match seen_ns {
            _ if is_kept => Ending::Holds,
            None => Ending::ReleasedIn(RELEASED_AFTER_NS),
            // A process that looked later may have written a later time, which must not prolong the wait.
            Some(seen_ns) => {
                let left_ns = (seen_ns + RELEASED_AFTER_NS).saturating_sub(now_ns);
                Ending::ReleasedIn(left_ns.min(RELEASED_AFTER_NS))
            }
        }
    }

    /// Whether the process of a slot has memory, requests included, or holds objects.
    fn has_memory(&self, index: usize) -> bool {
        DeviceIndex::all().any(|device| !self.slot_device(device, index).ledger.is_empty())
            || self.objects().all().any(|(_, _, record)| record.is_held_by(index))
    }

    fn give_back_time(&self, index: usize, is_still_dead: impl Fn() -> bool) {
        for (device, bucket) in DeviceIndex::all().zip(&self.mapping.buckets) {
            if is_still_dead() {
                self.slot_device(device, index).meter.give_back(bucket);
            }
        }
    }

    /// Empties a dead process's slot and frees it. Returns whether this call freed it. `state` is the state in which
    /// its death was seen. By now the slot may be that of another process, after a third one cleared it.
    pub(super) fn clear(&self, index: usize, record: &IdentityRecord, state: State) -> bool {
        let clearing = state.with_status(CLEARING);
        if state.status() == FREE || (state != clearing && !record.exchange(state, clearing)) {
            return false;
        }
        for device in DeviceIndex::all() {
            let line = self.slot_device(device, index);
            line.ledger.empty(|| record.state() == clearing);
        }
        self.give_back_time(index, || record.state() == clearing);
        // After the records: an object that it paid counts by itself now, as long as others hold it.
        self.objects().clear(index, || record.state() == clearing);
        record.exchange(clearing, clearing.with_status(FREE))
    }
}

/// Whether the holder of a slot in this state has locked the slot's byte of `usage`.
fn is_locked_by_holder(record: &IdentityRecord, state: State) -> bool {
    record.locked_state.load(Ordering::Relaxed) == state.0
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1 << 50;

    /// The fates of a dead process with memory at `now_ns` and, after a tenant wrote `written_ns`, at each of the other times.
    fn fates(now_ns: u64, written_ns: Option<u64>, later_ns: &[u64]) -> (Ending, Vec<Ending>) {
        let usage = Usage::in_memory().unwrap();
        let device = DeviceIndex::new(0).unwrap();
        let process =
            Identity { pid: 4_200_000, start_ticks: 7, pid_namespace: 1, time_namespace: 0, name: [0; 16] };
        let slot = usage.claim(&process).unwrap();
        slot.reserve(device, 1, 1).unwrap().commit();
        let record = &usage.mapping.identities[0];
        let fate = |now_ns| usage.release_of_dead((0, record), record.state(), now_ns);
        let first = fate(now_ns);
        if let Some(written_ns) = written_ns {
            record.set_gone_ns(record.state(), written_ns);
        }
        (first, later_ns.iter().map(|now_ns| fate(*now_ns)).collect())
    }

    #[test]
    fn memory_counts_until_the_driver_had_its_time() {
        let times = [0, 1, RELEASED_AFTER_NS - 1, RELEASED_AFTER_NS, u64::MAX - NOW_NS];
        let (first, later) = fates(NOW_NS, None, &times.map(|after_ns| NOW_NS + after_ns));
        assert_eq!(first, Ending::ReleasedIn(RELEASED_AFTER_NS));
        let left_ns = [RELEASED_AFTER_NS, RELEASED_AFTER_NS - 1, 1, 0, 0];
        assert_eq!(later, left_ns.map(Ending::ReleasedIn));
    }

    #[test]
    fn a_future_time_that_a_tenant_wrote_neither_prolongs_the_wait_nor_keeps_the_memory() {
        for written_ns in [NOW_NS + 256, NOW_NS + RELEASED_AFTER_NS, NOW_NS + 2 * RELEASED_AFTER_NS, u64::MAX]
        {
            let (_, later) = fates(NOW_NS, Some(written_ns), &[NOW_NS, NOW_NS + 2 * RELEASED_AFTER_NS]);
            let left_ns = [RELEASED_AFTER_NS, 0];
            assert_eq!(later, left_ns.map(Ending::ReleasedIn), "{written_ns}");
        }
        // A time that another process may have written in its look is believed.
        for (beyond_ns, left_ns) in [(0, RELEASED_AFTER_NS), (256, 0)] {
            let latest_ns = NOW_NS + RELEASED_AFTER_NS;
            let (_, later) = fates(NOW_NS, Some(latest_ns + beyond_ns), &[NOW_NS, latest_ns]);
            assert_eq!(later[1], Ending::ReleasedIn(left_ns));
        }
    }
}
