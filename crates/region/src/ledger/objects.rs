//! The part of the sum that shared objects count.

use super::{COUNTABLE_BYTES, EMPTY, Head, Ledger, Party, Record, Sum, TAG_SHIFT, wait_while};
use crate::primitive::{AtomicU64, Ordering};
use crate::shared::state::{ASKED, CANCELLED, FREE, State};
use crate::shared::{ObjectRecord, Payer};

impl Record {
    /// Tag of the record's head.
    fn tag(&self) -> u64 {
        self.head.load(Ordering::Relaxed) >> TAG_SHIFT
    }

    /// Takes `bytes` out of the record; an object of the table counts them from the same instant on. The process's
    /// threads exclude each other around this call.
    pub(crate) fn hand_over(&self, bytes: u64, until: &AtomicU64) {
        // Stored before the head, so that a reader of the new head sees it too.
        until.store(self.tag(), Ordering::Relaxed);
        self.release(bytes);
    }

    /// Whether the record still includes an object that it pays `until` a tag.
    fn includes(&self, until: &AtomicU64) -> bool {
        // The head first: pairs with `hand_over`.
        let head = Head(self.head.load(Ordering::SeqCst));
        head.0 & EMPTY == 0 && head.0 >> TAG_SHIFT <= until.load(Ordering::Relaxed)
    }
}

impl Ledger<'_> {
    /// Whether a process's record includes the object. Once it does not, it never will.
    fn is_paid(&self, object: &ObjectRecord) -> bool {
        let payer = Payer(object.payer.load(Ordering::Relaxed));
        let place = payer.slot().and_then(|slot| self.records.get(slot).zip(self.identities.get(slot)));
        place.is_some_and(|(line, identity)| {
            // The head is read before the slot's state: the next owner takes the slot only while the head is empty.
            line.ledger.includes(&object.until) && payer.is_still(identity.state.load(Ordering::Acquire))
        })
    }

    /// Sum of the objects that count beside the records. Takes the ledger by value, as all functions that an allocation
    /// seldom calls: a reference would write the ledger to the stack each time.
    #[inline(never)]
    pub(super) fn of_objects(self, me: Party) -> Sum {
        let mut sum = Sum::default();
        for (place, word, record) in self.objects.all() {
            let state = State(word.load(Ordering::SeqCst));
            if Party::object(place) == me {
                continue;
            }
            sum.changes = sum.changes.wrapping_add(state.0);
            if state.status() == FREE || state.device() != self.device {
                continue;
            }
            let bytes = || record.bytes.load(Ordering::Relaxed).min(COUNTABLE_BYTES);
            if state.is_granted() && !self.is_paid(record) {
                sum.counted_bytes = sum.counted_bytes.saturating_add(bytes());
            } else if state.status() == ASKED {
                sum.undecided_bytes = sum.undecided_bytes.saturating_add(bytes());
            }
        }
        sum
    }

    /// Bytes of objects that no process's record includes.
    pub(crate) fn unpaid_bytes(&self) -> u64 {
        self.of_objects(Party::NONE).counted_bytes
    }

    /// Bytes of the objects at these places that no process counts, except a process known to be dead.
    #[cfg(not(loom))]
    pub(crate) fn unpaid_among(&self, places: impl Iterator<Item = usize>) -> u64 {
        let unpaid = places.filter(|place| {
            let state = self.objects.state(*place);
            state.device() == self.device
                && state.is_granted()
                && !self.is_paid_by_living(self.objects.entry(*place).1)
        });
        let bytes = unpaid.map(|place| self.objects.entry(place).1.bytes.load(Ordering::Relaxed));
        bytes.fold(0, |sum, bytes| sum.saturating_add(bytes.min(COUNTABLE_BYTES)))
    }

    /// Whether any of the objects at these places is in the record of a process that is not `me`, and not known to be dead.
    #[cfg(not(loom))]
    pub(crate) fn is_any_paid_by_others(&self, me: Payer, mut places: impl Iterator<Item = usize>) -> bool {
        places.any(|place| {
            let record = self.objects.entry(place).1;
            self.objects.state(place).device() == self.device
                && self.is_paid_by_living(record)
                && record.payer.load(Ordering::Relaxed) != me.0
        })
    }

    /// Whether the record of a process that is not known to be dead includes the object. The driver attributes a dead
    /// process's memory to another holder.
    #[cfg(not(loom))]
    fn is_paid_by_living(&self, record: &ObjectRecord) -> bool {
        let payer = Payer(record.payer.load(Ordering::Relaxed));
        let identity = payer.slot().and_then(|slot| self.identities.get(slot));
        self.is_paid(record) && identity.is_none_or(|identity| identity.gone_ns().is_none())
    }

    pub(super) fn cancel_rival_objects(self, me: Party, rank: u64) {
        for (place, word, _) in self.objects.all() {
            let state = State(word.load(Ordering::SeqCst));
            let other = Party::object(place);
            if other != me && state.status() == ASKED && state.device() == self.device {
                if (state.rank(), me.0) > (rank, other.0) {
                    wait_while(|| self.objects.state(place) == state);
                }
                self.objects.exchange(place, state, state.next(CANCELLED));
            }
        }
    }
}
