//! The ledger of memory: reserve, commit or drop, release.
//!
//! Each process has one [`Record`] per device, which it alone writes, save that others may cancel what it has asked for
//! and not yet been granted. The sum over the records is the truth; there is no second total.
//!
//! A reservation *announces* what it asks for in the own record, then reads all others. If everything counted and
//! everything asked for fits, it turns `ASKED` into `GRANTED` by one compare-and-swap. If what is counted alone is too
//! much, and nothing has changed when looked at again, it is refused. Otherwise others are asking too: the process of
//! higher rank cancels them, one of lower rank first gives them a moment, and then cancels them as well, since they
//! may have been stopped. A process that was cancelled announces again.
//!
//! *Never over*: of the reservations that together exceed the limit, the one announced last has read all the others
//! after its own announcement; it counted them or cancelled them. *Never refused in vain*: a refusal rests on a sum that
//! was true at one moment. *Never held up*: a record can be read while its owner stands still anywhere, and what it has
//! asked for can be cancelled. `tests/ledger_model.rs` searches all interleavings of the protocol, the loom models here
//! check this code, with one party frozen before any of its accesses.
//!
//! Objects that several processes hold count beside the records; see [`crate::shared`].
//!
//! The announcement and the look at the others are a store and loads of different words, ordered by sequential
//! consistency.

use crate::MAX_SLOTS;
use crate::layout::{IdentityRecord, SlotDevice};
use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence, pause};
use crate::shared::Objects;

mod denied;
mod objects;
mod owner;
pub use denied::Denied;

/// One process's bytes on one device: a head word and two copies of the amounts.
///
/// The head holds a tag that grows with each announcement, the rank, and the state. The lowest bit of the tag names the
/// copy that counts, so that one store or exchange of the head publishes both amounts. As a number the head only grows:
/// the tag does, and within one tag `ASKED` becomes `GRANTED` or `CANCELLED`.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Record {
    pub(crate) head: AtomicU64,
    pub(crate) copies: [Amounts; 2],
    pub(crate) peak_bytes: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) overhead_bytes: AtomicU64,
}

/// One of the two copies of a record.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Amounts {
    pub(crate) used_bytes: AtomicU64,
    pub(crate) asked_bytes: AtomicU64,
}

/// The states of a head, bits 0 to 1.
const SETTLED: u64 = 0;
const ASKED: u64 = 1;
const GRANTED: u64 = 2;
const CANCELLED: u64 = 3;
const STATE: u64 = 3;
/// Bit 0: what is asked for does not count.
const UNGRANTED: u64 = ASKED & CANCELLED;
/// Bit 2: nothing counts, whatever the copies say. So a dead process's record is emptied by one exchange.
const EMPTY: u64 = 4;
/// Bits 4 to 7: how often the announcement was cancelled, which is its rank.
const RANK_SHIFT: u32 = 4;
const RANK_MAX: u64 = 15;
const TAG_SHIFT: u32 = 8;

/// More than any GPU has. A larger wish is counted as this much.
pub(crate) const COUNTABLE_BYTES: u64 = 1 << 56;

/// How long a process of lower rank gives one of higher rank to finish: some 50 microseconds, with the processor offered
/// to it, so that it finishes if it only waited for that.
const PATIENCE: u32 = if cfg!(any(loom, miri)) { 1 } else { 2048 };

#[derive(Clone, Copy, PartialEq, Eq)]
struct Head(u64);

impl Head {
    fn state(self) -> u64 {
        self.0 & STATE
    }

    fn rank(self) -> u64 {
        self.0 >> RANK_SHIFT & RANK_MAX
    }

    /// The head of the next announcement or amount.
    fn next(self, state: u64, rank: u64) -> Self {
        Self(((self.0 >> TAG_SHIFT) + 1) << TAG_SHIFT | rank << RANK_SHIFT | state)
    }

    /// The same announcement in another state.
    fn turned(self, state: u64) -> Self {
        Self(self.0 & !STATE | state)
    }
}

/// A record at one moment.
#[derive(Clone, Copy)]
struct Seen {
    head: Head,
    used_bytes: u64,
    asked_bytes: u64,
}

impl Seen {
    /// What counts: everything granted.
    fn counted_bytes(self) -> u64 {
        match self.head.0 & (EMPTY | STATE) {
            GRANTED => self.used_bytes.saturating_add(self.asked_bytes),
            SETTLED | ASKED | CANCELLED => self.used_bytes,
            _ => 0,
        }
    }

    /// What is asked for and not decided.
    fn undecided_bytes(self) -> u64 {
        if self.head.state() == ASKED {
            self.asked_bytes
        } else {
            0
        }
    }
}

impl Record {
    #[inline]
    fn copy(&self, head: Head) -> &Amounts {
        let [even, odd] = &self.copies;
        if head.0 >> TAG_SHIFT & 1 == 0 { even } else { odd }
    }

    /// The record at one moment. Repeats only if its owner has moved on meanwhile.
    #[inline]
    fn read(&self) -> Seen {
        // Sequentially consistent: comes after the reader's own announcement.
        let mut head = self.head.load(Ordering::SeqCst);
        loop {
            let copy = self.copy(Head(head));
            let used_bytes = copy.used_bytes.load(Ordering::Relaxed);
            let asked_bytes = copy.asked_bytes.load(Ordering::Relaxed);
            // Pairs with the release fence in `write`: who reads what a later head publishes also sees that head here.
            fence(Ordering::Acquire);
            let now = self.head.load(Ordering::SeqCst);
            if now >> TAG_SHIFT == head >> TAG_SHIFT {
                return Seen {
                    head: Head(now),
                    used_bytes,
                    asked_bytes,
                };
            }
            head = now;
        }
    }

    /// The record as its owner reads it: no other process changes the amounts.
    #[inline]
    fn own(&self) -> Seen {
        let head = Head(self.head.load(Ordering::Relaxed));
        let copy = self.copy(head);
        Seen {
            head,
            used_bytes: copy.used_bytes.load(Ordering::Relaxed),
            asked_bytes: copy.asked_bytes.load(Ordering::Relaxed),
        }
    }

    /// Fills the copy that `head` will publish.
    #[inline]
    fn write(&self, head: Head, used_bytes: u64, asked_bytes: u64) {
        // After the publication of the head before: pairs with the acquire fence in `read`.
        fence(Ordering::Release);
        let copy = self.copy(head);
        copy.used_bytes.store(used_bytes, Ordering::Relaxed);
        copy.asked_bytes.store(asked_bytes, Ordering::Relaxed);
    }

    /// Publishes an amount. Owner only.
    #[inline]
    fn settle(&self, used_bytes: u64) {
        let head = Head(self.head.load(Ordering::Relaxed)).next(SETTLED, 0);
        self.write(head, used_bytes, 0);
        // Pairs with the load in `read`. A cancellation that comes in between is overwritten: it has no effect any more.
        self.head.store(head.0, Ordering::Release);
    }

    /// Publishes a wish, before any look at the others. Owner only.
    #[inline]
    fn announce(&self, used_bytes: u64, asked_bytes: u64, rank: u64) -> Head {
        let head = Head(self.head.load(Ordering::Relaxed)).next(ASKED, rank);
        self.write(head, used_bytes, asked_bytes);
        // An exchange, because it is the cheapest sequentially consistent store.
        self.head.swap(head.0, Ordering::SeqCst);
        // Loom takes a sequentially consistent access for acquire and release only; it knows the fence.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        head
    }

    /// Turns `head` into the same announcement in another state, unless someone else did or its owner moved on.
    #[inline]
    fn turn(&self, head: Head, state: u64) -> bool {
        let turned = head.turned(state).0;
        self.head
            .compare_exchange(head.0, turned, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether it counts nothing: no memory, and no wish that was granted.
    pub(crate) fn is_empty(&self) -> bool {
        self.read().counted_bytes() == 0
    }

    /// Makes the record of a dead process count nothing. `is_still_dead` says whether the slot still belongs to it; it is
    /// asked after each look at the head, so that a record which its next owner has written is never emptied.
    pub(crate) fn empty(&self, is_still_dead: impl Fn() -> bool) {
        loop {
            let head = Head(self.head.load(Ordering::Acquire));
            if head.0 & EMPTY != 0 || head.0 == 0 || !is_still_dead() {
                return;
            }
            let empty = head.next(SETTLED, 0).0 | EMPTY;
            if self
                .head
                .compare_exchange(head.0, empty, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
        }
    }
}

/// All that counts on one device: the records of all processes, how many of them were ever used, and the objects that
/// several processes hold.
#[derive(Clone, Copy)]
pub(crate) struct Ledger<'u> {
    pub(crate) records: &'u [SlotDevice],
    pub(crate) slots_used: &'u AtomicU32,
    pub(crate) device: usize,
    pub(crate) objects: Objects<'u>,
    /// Who has which slot, to know which of its processes an object's payer was.
    pub(crate) identities: &'u [IdentityRecord],
}

/// Who asks, and is left out of the sum of the others. As a number, which decides between equal ranks: a slot, or
/// [`MAX_SLOTS`] and the place of an object.
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
pub(crate) struct Sum {
    pub(crate) counted_bytes: u64,
    pub(crate) undecided_bytes: u64,
    /// Sum of the heads, and of the objects' states. Each of them only grows, so two equal sums mean that none has changed.
    pub(crate) changes: u64,
}

impl Ledger<'_> {
    /// The records that count. Their number is read after the announcement, as the heads are: a process raises it before
    /// it announces anything.
    #[inline]
    fn used_records(&self) -> &[SlotDevice] {
        let used = self.slots_used.load(Ordering::SeqCst) as usize;
        self.records.get(..used).unwrap_or(self.records)
    }

    /// What all processes have (bytes), undecided wishes left out: a sum of one moment, unless the records change all
    /// the time.
    #[inline]
    pub(crate) fn used_bytes(&self) -> u64 {
        let mut sum = self.others(Party::NONE);
        for _ in 0..64 {
            if self.changes() == sum.changes {
                break;
            }
            sum = self.others(Party::NONE);
        }
        sum.counted_bytes
    }

    /// As [`Sum::changes`] of all parties.
    #[inline]
    fn changes(&self) -> u64 {
        if self.objects.is_ever_used() {
            return self.others(Party::NONE).changes;
        }
        let heads = self.used_records().iter().map(|record| &record.ledger.head);
        heads.fold(0, |sum, head| sum.wrapping_add(head.load(Ordering::SeqCst)))
    }

    /// What counts beside `me`. The objects come after the records: what moves from a record to an object while this
    /// looks is seen twice (and looked at again), never missed.
    #[inline]
    pub(crate) fn others(&self, me: Party) -> Sum {
        let mut sum = Sum {
            counted_bytes: 0,
            undecided_bytes: 0,
            changes: 0,
        };
        for (slot, record) in self.used_records().iter().enumerate() {
            if Party::slot(slot) != me {
                let seen = record.ledger.read();
                sum.changes = sum.changes.wrapping_add(seen.head.0);
                if seen.head.0 & (EMPTY | UNGRANTED) == 0 {
                    // Almost always: settled (and then nothing is asked for) or granted.
                    let both = seen.used_bytes.saturating_add(seen.asked_bytes);
                    sum.counted_bytes = sum.counted_bytes.saturating_add(both);
                } else {
                    sum.counted_bytes = sum.counted_bytes.saturating_add(seen.counted_bytes());
                    sum.undecided_bytes = sum.undecided_bytes.saturating_add(seen.undecided_bytes());
                }
            }
        }
        if self.objects.is_ever_used() {
            self.add_objects(me, &mut sum);
        }
        sum
    }

    /// Counts `bytes` for the process of slot `me` if everything stays within `limit_bytes`. Its threads exclude each
    /// other around this call.
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
            self.decide(me, own, used, asked, limit_bytes)
                .map_err(|denied| Denied {
                    requested_bytes: bytes,
                    ..denied
                })?;
        }
        if wanted > own.peak_bytes.load(Ordering::Relaxed) {
            own.peak_bytes.store(wanted, Ordering::Relaxed);
        }
        Ok(())
    }

    #[inline]
    fn decide(&self, me: usize, own: &Record, used: u64, asked: u64, limit_bytes: u64) -> Result<(), Denied> {
        let mut rank = 0;
        loop {
            let mine = own.announce(used, asked, rank);
            loop {
                let others = self.others(Party::slot(me));
                let counted = others.counted_bytes.saturating_add(used);
                let needed = counted.saturating_add(asked);
                if needed.saturating_add(others.undecided_bytes) <= limit_bytes {
                    if own.turn(mine, GRANTED) {
                        return Ok(());
                    }
                    break;
                }
                if needed > limit_bytes {
                    if self.others(Party::slot(me)).changes == others.changes {
                        own.settle(used);
                        return Err(Denied {
                            requested_bytes: asked,
                            used_bytes: counted,
                            limit_bytes,
                        });
                    }
                } else if own.head.load(Ordering::Acquire) == mine.0 {
                    self.overrule(Party::slot(me), mine.rank());
                } else {
                    break;
                }
            }
            rank = RANK_MAX.min(rank + 1);
        }
    }

    /// Ends what others ask for and is not decided: those of lower rank at once, the others after a moment.
    #[cold]
    pub(crate) fn overrule(&self, me: Party, rank: u64) {
        for (slot, record) in self.used_records().iter().enumerate() {
            let head = Head(record.ledger.head.load(Ordering::Acquire));
            let other = Party::slot(slot);
            if other != me && head.state() == ASKED {
                if (head.rank(), me.0) > (rank, other.0) {
                    wait_while(|| record.ledger.head.load(Ordering::Acquire) == head.0);
                }
                record.ledger.turn(head, CANCELLED);
            }
        }
        self.overrule_objects(me, rank);
    }
}

/// Gives another party a moment to finish.
fn wait_while(is_unfinished: impl Fn() -> bool) {
    let mut turns = 0..PATIENCE;
    while is_unfinished()
        && let Some(turn) = turns.next()
    {
        pause(turn);
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
