//! A record: one process's bytes on one device, and how it is read and written. The protocol: [`super`].

use crate::primitive::{AtomicU64, Ordering, fence};

/// A process's bytes on a device: a head word and two copies of the amounts.
///
/// The head holds a tag that grows with each announcement, the rank, and the state. The lowest bit of the tag selects
/// the copy that counts, so that one store or exchange of the head publishes both amounts. As a number the head only
/// grows: the tag does, and within one tag `ASKED` becomes `GRANTED` or `CANCELLED`.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Record {
    pub(crate) head: AtomicU64,
    pub(crate) copies: [Amounts; 2],
    pub(crate) peak_bytes: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) overhead_bytes: AtomicU64,
}

/// A copy of a record's amounts, of which there are two.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Amounts {
    pub(crate) used_bytes: AtomicU64,
    pub(crate) asked_bytes: AtomicU64,
}

/// The states of a head, bits 0 to 1.
pub(super) const SETTLED: u64 = 0;
pub(super) const ASKED: u64 = 1;
pub(super) const GRANTED: u64 = 2;
pub(super) const CANCELLED: u64 = 3;
const STATE: u64 = 3;
/// Bit 0: the request does not count.
const UNGRANTED: u64 = ASKED & CANCELLED;
/// Bit 2: nothing counts, whatever the copies hold. So one exchange empties a dead process's record.
pub(super) const EMPTY: u64 = 4;
/// Bits 4 to 7: number of cancellations of the announcement, which is its rank.
const RANK_SHIFT: u32 = 4;
pub(super) const RANK_MAX: u64 = 15;
pub(super) const TAG_SHIFT: u32 = 8;

/// The head of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Head(pub(super) u64);

impl Head {
    /// State of the record.
    pub(super) fn state(self) -> u64 {
        self.0 & STATE
    }

    /// Number of cancellations of the announcement.
    pub(super) fn rank(self) -> u64 {
        self.0 >> RANK_SHIFT & RANK_MAX
    }

    /// The head of the next announcement or amount.
    fn next(self, state: u64, rank: u64) -> Self {
        Self(((self.0 >> TAG_SHIFT) + 1) << TAG_SHIFT | rank << RANK_SHIFT | state)
    }

    /// The same announcement in another state.
    fn with_state(self, state: u64) -> Self {
        Self(self.0 & !STATE | state)
    }
}

/// The content of a record at one moment.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) head: Head,
    pub(super) used_bytes: u64,
    pub(super) asked_bytes: u64,
}

impl Seen {
    /// Bytes that count: everything granted.
    #[inline]
    pub(super) fn counted_bytes(self) -> u64 {
        if self.head.0 & (EMPTY | UNGRANTED) == 0 {
            // The usual case: settled (then nothing is asked for) or granted.
            self.used_bytes.saturating_add(self.asked_bytes)
        } else if self.head.0 & EMPTY == 0 {
            self.used_bytes
        } else {
            0
        }
    }

    /// Bytes that are asked for and not decided.
    #[inline]
    pub(super) fn undecided_bytes(self) -> u64 {
        if self.head.state() == ASKED { self.asked_bytes } else { 0 }
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
    pub(super) fn read(&self) -> Seen {
        // Sequentially consistent, so that it comes after the reader's own announcement.
        let mut head = self.head.load(Ordering::SeqCst);
        loop {
            let copy = self.copy(Head(head));
            let used_bytes = copy.used_bytes.load(Ordering::Relaxed);
            let asked_bytes = copy.asked_bytes.load(Ordering::Relaxed);
            // Pairs with the release fence in `write`: a reader of words that a later head publishes also sees that
            // head here.
            fence(Ordering::Acquire);
            let now = self.head.load(Ordering::SeqCst);
            if now >> TAG_SHIFT == head >> TAG_SHIFT {
                return Seen { head: Head(now), used_bytes, asked_bytes };
            }
            head = now;
        }
    }

    /// The record as its owner reads it: no other process changes the amounts.
    #[inline]
    pub(super) fn own(&self) -> Seen {
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
        // After the publication of the previous head: pairs with the acquire fence in `read`.
        fence(Ordering::Release);
        let copy = self.copy(head);
        copy.used_bytes.store(used_bytes, Ordering::Relaxed);
        copy.asked_bytes.store(asked_bytes, Ordering::Relaxed);
    }

    /// Publishes an amount. Owner only.
    #[inline]
    pub(super) fn settle(&self, used_bytes: u64) {
        let head = Head(self.head.load(Ordering::Relaxed)).next(SETTLED, 0);
        self.write(head, used_bytes, 0);
        // Pairs with the load in `read`. A cancellation that comes in between is overwritten: it has no effect any more.
        self.head.store(head.0, Ordering::Release);
    }

    /// Publishes a request, before any look at the others. Owner only.
    #[inline]
    pub(super) fn announce(&self, used_bytes: u64, asked_bytes: u64, rank: u64) -> Head {
        let head = Head(self.head.load(Ordering::Relaxed)).next(ASKED, rank);
        self.write(head, used_bytes, asked_bytes);
        // An exchange, because it is the cheapest sequentially consistent store.
        self.head.swap(head.0, Ordering::SeqCst);
        // Loom treats a sequentially consistent access as acquire and release only, but it knows the fence.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        head
    }

    /// Turns `head` into the same announcement in another state. Returns `false` if another process did, or if its
    /// owner moved on.
    #[inline]
    pub(super) fn exchange(&self, head: Head, state: u64) -> bool {
        let next = head.with_state(state);
        self.head.compare_exchange(head.0, next.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether the record counts nothing: no memory, and no granted request.
    pub(crate) fn is_empty(&self) -> bool {
        self.read().counted_bytes() == 0
    }

    /// Empties the record of a dead process. `is_still_dead` tells whether the slot still belongs to it. It is called
    /// after each read of the head, so that a record that its next owner has written is never emptied.
    pub(crate) fn empty(&self, is_still_dead: impl Fn() -> bool) {
        loop {
            let head = Head(self.head.load(Ordering::Acquire));
            if head.0 & EMPTY != 0 || head.0 == 0 || !is_still_dead() {
                return;
            }
            let empty = head.next(SETTLED, 0).0 | EMPTY;
            if self.head.compare_exchange(head.0, empty, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }
}
