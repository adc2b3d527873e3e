//! The ledger of memory: reserve, commit or drop, release.
//!
//! Each process has one [`Record`] per device. Only that process writes it, except that others may cancel a request
//! in it that is not granted yet. The sum over the records is the truth; there is no second total.
//!
//! A reservation *announces* its request in its own record, then reads all others. If everything counted and
//! everything asked for fits, it turns `ASKED` into `GRANTED` by one compare-and-swap. If the counted bytes alone are
//! too many, and a second look finds no change, it is refused. Otherwise others are asking too. The process of higher
//! rank cancels their requests. One of lower rank first gives them a moment and then cancels them as well, since
//! their processes may have been stopped. A process whose request was cancelled announces it again.
//!
//! *Never over*: of the reservations that together exceed the limit, the one announced last has read all others after
//! its own announcement. So it counted them or cancelled them. *Never refused in vain*: a refusal rests on a sum that
//! was true at one moment. *Never held up*: a record can be read wherever its owner stands still, and its request can
//! be cancelled. `tests/ledger_model.rs` searches all interleavings of the protocol. The loom models here check this
//! code, with one party frozen before any of its accesses.
//!
//! Objects that several processes hold count beside the records; see [`crate::shared`].
//!
//! The announcement and the look at the others are a store and loads of different words, ordered by sequential
//! consistency.

use crate::MAX_SLOTS;
use crate::layout::{IdentityRecord, SlotDevice};
use crate::primitive::{AtomicU32, Ordering, pause};
use crate::shared::Objects;

mod denied;
mod objects;
mod owner;
pub(crate) mod record;
pub use denied::Denied;
pub use record::Record;

pub(crate) use record::Amounts;
use record::{ASKED, CANCELLED, EMPTY, GRANTED, Head, RANK_MAX, TAG_SHIFT};

/// More than any GPU has. A larger request counts as this much.
pub(crate) const COUNTABLE_BYTES: u64 = 1 << 56;

/// Pauses in which a process of lower rank lets one of higher rank finish: some 50 microseconds. Each offers the
/// processor to that one, which may wait only for it.
const MAX_PAUSES: u32 = if cfg!(any(loom, miri)) { 1 } else { 2048 };

/// All that counts on one device: the records of all processes, the number of records ever used, and the objects that
/// several processes hold.
#[derive(Clone, Copy)]
pub(crate) struct Ledger<'u> {
    pub(crate) records: &'u [SlotDevice],
    pub(crate) slots_used: &'u AtomicU32,
    pub(crate) device: usize,
    pub(crate) objects: Objects<'u>,
    /// Identity of each slot's process, to find an object's payer.
    pub(crate) identities: &'u [IdentityRecord],
}

/// The party that asks, which is left out of the sum of the others. Its number decides between equal ranks: a slot,
/// or [`MAX_SLOTS`] plus the place of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Party(usize);

impl Party {
    /// No party is left out.
    pub(crate) const NONE: Self = Self(usize::MAX);

    /// A process.
    #[inline]
    pub(crate) fn slot(slot: usize) -> Self {
        Self(slot)
    }

    /// An object that is joined.
    pub(crate) fn object(place: usize) -> Self {
        Self(MAX_SLOTS + place)
    }
}

/// All that counts but one party, added up.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) counted_bytes: u64,
    pub(crate) undecided_bytes: u64,
    /// Sum of the heads and of the objects' states. Each of them only grows, so two equal sums mean that nothing has
    /// changed.
    pub(crate) changes: u64,
}

impl Ledger<'_> {
    /// The records that count. Their number is read after the announcement, as the heads are: a process raises it
    /// before it announces anything.
    #[inline]
    fn used_records(&self) -> &[SlotDevice] {
        let used = self.slots_used.load(Ordering::SeqCst) as usize;
        self.records.get(..used).unwrap_or(self.records)
    }

    /// Whether only the first record counts, and no object.
    #[inline]
    fn has_one_record(&self) -> bool {
        self.slots_used.load(Ordering::SeqCst) == 1 && !self.objects.is_ever_used()
    }

    /// Bytes of all processes, without undecided requests: a sum of one moment, unless the records change all the
    /// time.
    #[inline]
    pub(crate) fn used_bytes(self) -> u64 {
        if self.has_one_record()
            && let [only, ..] = self.records
        {
            let bytes = only.ledger.used_bytes();
            // No process has come meanwhile.
            if self.has_one_record() {
                return bytes;
            }
        }
        self.used_bytes_of_all()
    }

    #[inline(never)]
    fn used_bytes_of_all(self) -> u64 {
        let mut sum = self.others(Party::NONE);
        for _ in 0..64 {
            if self.changes() == sum.changes {
                break;
            }
            sum = self.others(Party::NONE);
        }
        sum.counted_bytes
    }

    /// As [`Sum::changes`], over all parties.
    #[inline]
    fn changes(&self) -> u64 {
        if self.objects.is_ever_used() {
            return self.others(Party::NONE).changes;
        }
        let heads = self.used_records().iter().map(|record| &record.ledger.head);
        heads.fold(0, |sum, head| sum.wrapping_add(head.load(Ordering::SeqCst)))
    }

    /// Sum of all parties but `me`. Objects are read after the records: bytes that move from a record to an object
    /// meanwhile are seen twice (and looked at again), never missed.
    #[inline]
    pub(crate) fn others(&self, me: Party) -> Sum {
        let mut sum = Sum::default();
        for (slot, record) in self.used_records().iter().enumerate() {
            if Party::slot(slot) != me {
                let seen = record.ledger.read();
                sum.changes = sum.changes.wrapping_add(seen.head.0);
                sum.counted_bytes = sum.counted_bytes.saturating_add(seen.counted_bytes());
                sum.undecided_bytes = sum.undecided_bytes.saturating_add(seen.undecided_bytes());
            }
        }
        if self.objects.is_ever_used() {
            let objects = self.of_objects(me);
            sum.counted_bytes = sum.counted_bytes.saturating_add(objects.counted_bytes);
            sum.undecided_bytes = sum.undecided_bytes.saturating_add(objects.undecided_bytes);
            sum.changes = sum.changes.wrapping_add(objects.changes);
        }
        sum
    }

    /// Counts `bytes` for the process of slot `me` if everything stays within `limit_bytes`. The process's threads
    /// exclude each other around this call.
    #[inline]
    pub(crate) fn reserve(
        &self,
        me: usize,
        own: &Record,
        bytes: u64,
        limit_bytes: u64,
    ) -> Result<(), Denied> {
        let asked = bytes.min(COUNTABLE_BYTES);
        let used = own.own().counted_bytes();
        let wanted = used.saturating_add(asked);
        if limit_bytes == u64::MAX {
            own.settle(wanted);
        } else {
            let mine = own.announce(used, asked, 0);
            // Without another process, the request is all that is added up.
            let is_granted = wanted <= limit_bytes && self.has_one_record() && own.exchange(mine, GRANTED);
            if !is_granted {
                self.decide(me, own, mine, [used, asked, limit_bytes])
                    .map_err(|denied| Denied { requested_bytes: bytes, ..denied })?;
            }
        }
        if wanted > own.peak_bytes.load(Ordering::Relaxed) {
            own.peak_bytes.store(wanted, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Decides the request that was announced as `mine`, and announces it again if it is cancelled.
    #[inline(never)]
    fn decide(
        &self,
        me: usize,
        own: &Record,
        mut mine: Head,
        [used, asked, limit_bytes]: [u64; 3],
    ) -> Result<(), Denied> {
        loop {
            loop {
                let others = self.others(Party::slot(me));
                let counted = others.counted_bytes.saturating_add(used);
                let needed = counted.saturating_add(asked);
                if needed.saturating_add(others.undecided_bytes) <= limit_bytes {
                    if own.exchange(mine, GRANTED) {
                        return Ok(());
                    }
                    break;
                }
                if needed > limit_bytes {
                    if self.others(Party::slot(me)).changes == others.changes {
                        own.settle(used);
                        return Err(Denied { requested_bytes: asked, used_bytes: counted, limit_bytes });
                    }
                } else if own.head.load(Ordering::Acquire) == mine.0 {
                    self.cancel_rivals(Party::slot(me), mine.rank());
                } else {
                    break;
                }
            }
            mine = own.announce(used, asked, RANK_MAX.min(mine.rank() + 1));
        }
    }

    /// Cancels the undecided requests of others: those of lower rank at once, the others after a moment.
    #[cold]
    pub(crate) fn cancel_rivals(self, me: Party, rank: u64) {
        for (slot, record) in self.used_records().iter().enumerate() {
            let head = Head(record.ledger.head.load(Ordering::Acquire));
            let other = Party::slot(slot);
            if other != me && head.state() == ASKED {
                if (head.rank(), me.0) > (rank, other.0) {
                    wait_while(|| record.ledger.head.load(Ordering::Acquire) == head.0);
                }
                record.ledger.exchange(head, CANCELLED);
            }
        }
        self.cancel_rival_objects(me, rank);
    }
}

/// Gives another party a moment to finish.
fn wait_while(is_unfinished: impl Fn() -> bool) {
    let mut pauses = 0..MAX_PAUSES;
    while is_unfinished()
        && let Some(number) = pauses.next()
    {
        pause(number);
    }
}

#[cfg(test)]
pub(crate) mod table;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
