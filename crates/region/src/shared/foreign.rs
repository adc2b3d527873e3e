//! Joining of objects from outside of the tenant. The object itself requests its bytes, and a process that joins it
//! carries that out.

use super::record::Payer;
use super::state::{ABANDONED, ASKED, CANCELLED, CLOSING, LIVE};
use super::{ObjectKey, Objects};
use crate::ledger::{COUNTABLE_BYTES, Denied, Ledger, Party};
use crate::primitive::{Ordering, fence};

/// Attempts to join if two objects with the same key meet. Each time one of them has gone.
pub(super) const ATTEMPTS: u32 = 64;

impl Ledger<'_> {
    /// Makes `slot` a holder of the object with this key, counted once if everything stays within `limit_bytes`.
    /// Returns its place, or `None` if the table is full: then nothing is counted.
    pub(crate) fn join_foreign(
        &self,
        slot: usize,
        key: ObjectKey,
        bytes: u64,
        limit_bytes: u64,
    ) -> Result<Option<usize>, Denied> {
        let objects = self.objects;
        for _ in 0..ATTEMPTS {
            let place = if let Some(place) = objects.find(key) {
                if !objects.add_holder(place, slot, key) {
                    continue;
                }
                place
            } else {
                let object = (key, bytes.min(COUNTABLE_BYTES));
                let Some(place) = objects.insert(slot, self.device, object, Payer::NONE, ASKED) else {
                    break;
                };
                place
            };
            match self.grant_or_yield(place, key, limit_bytes) {
                Ok(true) => return Ok(Some(place)),
                Ok(false) => objects.remove_holder(place, slot),
                Err(denied) => {
                    objects.remove_holder(place, slot);
                    return Err(denied);
                }
            }
        }
        Ok(None)
    }

    /// Gets the object at `place`, which the caller holds, granted. Returns `false` if it yields to another with this
    /// key.
    fn grant_or_yield(&self, place: usize, key: ObjectKey, limit_bytes: u64) -> Result<bool, Denied> {
        let objects = self.objects;
        let bytes = objects.entry(place).1.bytes.load(Ordering::Relaxed).min(COUNTABLE_BYTES);
        let mut rank = 0;
        loop {
            let mine = objects.state(place);
            // Any process may have announced the object; the look at the others comes after that.
            fence(Ordering::SeqCst);
            match mine.status() {
                LIVE => return Ok(true),
                CLOSING => {
                    objects.exchange(place, mine, mine.next(LIVE));
                    continue;
                }
                CANCELLED => {
                    objects.exchange(place, mine, mine.announced(rank));
                    continue;
                }
                ASKED if mine.device() == self.device && objects.is_only_one(place, key) => {}
                _ => return Ok(false),
            }
            loop {
                let others = self.others(Party::object(place));
                let needed = others.counted_bytes.saturating_add(bytes);
                if needed.saturating_add(others.undecided_bytes) <= limit_bytes {
                    if objects.exchange(place, mine, mine.next(LIVE)) {
                        return Ok(true);
                    }
                    break;
                }
                if objects.state(place) != mine {
                    break;
                }
                if needed <= limit_bytes {
                    self.cancel_rivals(Party::object(place), mine.rank());
                } else if self.others(Party::object(place)).changes == others.changes {
                    return Err(Denied {
                        requested_bytes: bytes,
                        used_bytes: others.counted_bytes,
                        limit_bytes,
                    });
                }
            }
            rank += 1;
        }
    }
}

impl Objects<'_> {
    /// Whether the announced object at `place` is the only one with its key. Of two that are not granted, the one at
    /// the lower place ends the other. Called after the announcement, so that of two at least one sees the other.
    fn is_only_one(&self, place: usize, key: ObjectKey) -> bool {
        self.all().all(|(other, _, record)| {
            loop {
                let state = self.state(other);
                if other == place || !state.is_known() || !record.is_named(key) {
                    return true;
                }
                if state.is_granted() || other < place {
                    return false;
                }
                self.exchange(other, state, state.next(ABANDONED));
            }
        })
    }
}
