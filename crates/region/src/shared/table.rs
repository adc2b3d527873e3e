//! The table of objects: finding, claiming, holding, closing.

use super::record::Payer;
use super::state::{ABANDONED, ASKED, CANCELLED, CLOSING, FREE, LIVE, State, WRITING};
use super::{ObjectKey, ObjectRecord, Outlives};
use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// All objects of a tenant.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'u> {
    pub(crate) states: &'u [AtomicU64],
    pub(crate) records: &'u [ObjectRecord],
    /// The highest place ever used, plus one. Never falls.
    pub(crate) used: &'u AtomicU32,
}

impl<'u> Objects<'u> {
    /// Number of places that a look at all of them covers. Read after the caller's announcement, as the states are:
    /// it is raised before a place is claimed.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        (self.used.load(Ordering::SeqCst) as usize).min(self.states.len())
    }

    /// Whether there ever was an object. If not, this load is all that objects cost.
    #[inline]
    pub(crate) fn is_ever_used(&self) -> bool {
        self.used.load(Ordering::SeqCst) != 0
    }

    /// The places that were ever used: state, record.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &'u AtomicU64, &'u ObjectRecord)> + use<'u> {
        let places = self.states.iter().zip(self.records).take(self.used());
        places.enumerate().map(|(place, (state, record))| (place, state, record))
    }

    #[expect(clippy::indexing_slicing, reason = "callers have the place from a walk over the table")]
    pub(crate) fn entry(&self, place: usize) -> (&'u AtomicU64, &'u ObjectRecord) {
        (&self.states[place], &self.records[place])
    }

    pub(crate) fn state(&self, place: usize) -> State {
        State(self.entry(place).0.load(Ordering::SeqCst))
    }

    /// Exchanges the state.
    pub(crate) fn exchange(&self, place: usize, from: State, to: State) -> bool {
        self.entry(place).0.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The place of the object with this key: a granted one before any other, else the first. There may be several
    /// until one of two has yielded.
    pub(crate) fn find(&self, key: ObjectKey) -> Option<usize> {
        let mut found = None;
        for (place, state, record) in self.all() {
            let state = State(state.load(Ordering::SeqCst));
            if state.is_known() && record.is_named(key) {
                if state.is_granted() {
                    return Some(place);
                }
                found = found.or(Some(place));
            }
        }
        found
    }

    /// Takes a free place for an object, with `slot` as its only holder, and publishes it in `status`. `None` if
    /// there is no place.
    pub(crate) fn insert(
        &self,
        slot: usize,
        device: usize,
        (key, bytes): (ObjectKey, u64),
        payer: Payer,
        status: u64,
    ) -> Option<usize> {
        let places = self.states.iter().zip(self.records).enumerate();
        for (place, (word, record)) in places {
            let free = State(word.load(Ordering::Acquire));
            if free.status() != FREE {
                continue;
            }
            // Before the place is claimed, and so before anything is announced in it.
            let needed = u32::try_from(place + 1).unwrap_or(u32::MAX);
            self.used.fetch_max(needed, Ordering::SeqCst);
            let claimed = free.claimed(slot, device);
            if !self.exchange(place, free, claimed) {
                continue;
            }
            record.write(key, bytes, payer);
            record.add_holder(slot, || true);
            // Fails if another process took this one for dead: then the place was never this one's, and there is no
            // object.
            return self.exchange(place, claimed, claimed.next(status)).then_some(place);
        }
        None
    }

    /// Makes `slot` a holder of the object with this key at `place`. Returns `false` if the object is no longer
    /// there.
    pub(crate) fn add_holder(&self, place: usize, slot: usize, key: ObjectKey) -> bool {
        let record = self.entry(place).1;
        let is_there = || self.state(place).is_known() && record.is_named(key);
        while record.add_holder(slot, is_there) {
            loop {
                let state = self.state(place);
                if !state.is_known() || !record.is_named(key) {
                    // This also frees an object that another process did not free because of this holder.
                    self.remove_holder(place, slot);
                    return false;
                }
                // A process has not seen this holder and is about to free the object. Now it cannot.
                if state.status() != CLOSING || self.exchange(place, state, state.next(LIVE)) {
                    break;
                }
            }
            // If the place was freed and claimed for the same object again meanwhile, its new owner has wiped the bit.
            if record.is_held_by(slot) {
                return true;
            }
        }
        false
    }

    /// Ends the hold of `slot` on the object at `place`, and the object if it was the last one.
    pub(crate) fn remove_holder(&self, place: usize, slot: usize) {
        self.entry(place).1.remove_holder(slot, || true);
        self.close(place);
    }

    /// Frees the object at `place` if no process holds it and nothing keeps it beyond its holders.
    pub(crate) fn close(&self, place: usize) {
        self.close_if(place, |record| record.outlives() == Outlives::NOTHING);
    }

    /// Frees the object with this key at `place` if no process holds it. Its release was proved, and only a holder
    /// could export it again. If another object has taken the place, that one stays.
    pub(crate) fn close_released(&self, place: usize, key: ObjectKey) {
        self.close_if(place, |record| record.is_named(key));
    }

    /// Frees the object at `place` if no process holds it and `may_end` accepts its record. It is called after each
    /// look at the state, and the exchange fails if the state has changed since: so it was true of the object that
    /// ends.
    fn close_if(&self, place: usize, may_end: impl Fn(&ObjectRecord) -> bool) {
        let record = self.entry(place).1;
        loop {
            let state = self.state(place);
            let to = match state.status() {
                LIVE => CLOSING,
                // No process is left that joins it. One that comes now finds it abandoned.
                ASKED | CANCELLED => ABANDONED,
                CLOSING | ABANDONED => FREE,
                _ => return,
            };
            // The holders first: `outlives` is only set while the object is held.
            if record.is_held() || (state.is_granted() && !may_end(record)) {
                // The process that closed it before may have been killed: reset, so that the next look is not misled.
                if state.status() == CLOSING {
                    self.exchange(place, state, state.next(LIVE));
                }
                return;
            }
            if self.exchange(place, state, state.next(to)) && to == FREE {
                // Whatever is here by the next look is another object.
                return;
            }
        }
    }

    /// Clears the holds of a dead process, and the place that it was about to write. `is_still_dead` tells whether
    /// the slot still belongs to it. It is called after each look, so that nothing of its next owner is touched.
    pub(crate) fn clear(&self, slot: usize, is_still_dead: impl Fn() -> bool) {
        for (place, word, record) in self.all() {
            let state = State(word.load(Ordering::Acquire));
            if state.status() == WRITING && state.owner() == slot && is_still_dead() {
                self.exchange(place, state, state.next(FREE));
            }
            record.remove_holder(slot, &is_still_dead);
        }
    }

    /// Frees the objects that no process holds, as the last of their holders was killed or stands still.
    pub(crate) fn sweep(&self) {
        for (place, word, record) in self.all() {
            let status = State(word.load(Ordering::Acquire)).status();
            if !matches!(status, FREE | WRITING) && !record.is_held() {
                self.close(place);
            }
        }
    }
}
