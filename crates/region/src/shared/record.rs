//! Record of one object, and its holders.

use super::{HOLDER_WORDS, HOLDERS_A_WORD, ObjectKey, Outlives};
use crate::primitive::{AtomicU64, Ordering, fence};

/// An object. Its owner writes all of it before the state says that it is known. Afterwards only `until` (once),
/// `outlives` (twice at most) and the holders change.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ObjectRecord {
    /// The object's name, see [`ObjectKey`].
    pub(crate) key: [AtomicU64; 2],
    /// Bytes counted for it.
    pub(crate) bytes: AtomicU64,
    /// The process that pays, see [`Payer`]; 0 if none does.
    pub(crate) payer: AtomicU64,
    /// The last tag of the payer's record that includes it.
    pub(crate) until: AtomicU64,
    /// Descriptors that may keep it beside its holders, see [`Outlives`]; 0: none.
    pub(crate) outlives: AtomicU64,
    reserved: [AtomicU64; 2],
    /// A bit for each slot that holds it, 32 to a word. The upper half counts the changes of the word, so that an
    /// exchange fails if anything has happened since the word was read.
    pub(crate) holders: [AtomicU64; HOLDER_WORDS],
}

/// A payer: its slot, and which of the slot's successive processes it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payer(pub(crate) u64);

impl Payer {
    pub(crate) const NONE: Self = Self(0);

    /// The process that has `slot` now, whose state is `identity`.
    pub(crate) fn new(slot: usize, identity: u64) -> Self {
        Self((slot as u64 + 1) << 24 | identity >> 40)
    }

    /// Its slot.
    #[inline]
    pub(crate) fn slot(self) -> Option<usize> {
        usize::try_from(self.0 >> 24).ok()?.checked_sub(1)
    }

    /// Whether the slot's state says that it is still this process's.
    #[inline]
    pub(crate) fn is_still(self, identity: u64) -> bool {
        self.0 & 0xff_ffff == identity >> 40
    }
}

/// The next value of a word of holders.
fn changed(word: u64, holders: u64) -> u64 {
    ((word >> 32).wrapping_add(1) << 32) | holders
}

/// The holders that a word names.
fn holders(word: u64) -> u64 {
    word & 0xffff_ffff
}

impl ObjectRecord {
    /// A record from a copy, as far as a sum needs it: `word` returns the word at a position.
    #[cfg(not(loom))]
    pub(crate) fn of_words(word: impl Fn(usize) -> u64) -> Self {
        let record = Self::default();
        for (position, to) in [(2, &record.bytes), (3, &record.payer), (4, &record.until)] {
            to.store(word(position), Ordering::Relaxed);
        }
        record
    }

    /// The object's name.
    #[cfg(not(loom))]
    pub(crate) fn key(&self) -> ObjectKey {
        let [first, second] = [&self.key[0], &self.key[1]].map(|word| word.load(Ordering::Relaxed));
        ObjectKey::from_parts(first, second)
    }

    pub(crate) fn is_named(&self, key: ObjectKey) -> bool {
        self.key.iter().zip(key.parts()).all(|(word, part)| word.load(Ordering::Relaxed) == part)
    }

    /// Fills the record. Only for its owner, while it is being written.
    pub(crate) fn write(&self, key: ObjectKey, bytes: u64, payer: Payer) {
        for (word, part) in self.key.iter().zip(key.parts()) {
            word.store(part, Ordering::Relaxed);
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        self.payer.store(payer.0, Ordering::Relaxed);
        self.until.store(u64::MAX, Ordering::Relaxed);
        self.outlives.store(0, Ordering::Relaxed);
        // A process that was about to hold the previous object finds the word changed.
        for word in &self.holders {
            Self::change(word, |_| true, |_| 0);
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a slot is below MAX_SLOTS, and so its word below HOLDER_WORDS"
    )]
    fn word_of(&self, slot: usize) -> (&AtomicU64, u64) {
        (&self.holders[slot / HOLDERS_A_WORD % HOLDER_WORDS], 1 << (slot % HOLDERS_A_WORD))
    }

    /// Changes a word of holders if `may` accepts the word as read. Returns whether it did.
    fn change(word: &AtomicU64, may: impl Fn(u64) -> bool, to: impl Fn(u64) -> u64) -> bool {
        let mut now = word.load(Ordering::Acquire);
        while may(now) {
            match word.compare_exchange(
                now,
                changed(now, to(holders(now))),
                Ordering::SeqCst,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    // Before any look at the state: see `Objects::close`.
                    fence(Ordering::SeqCst);
                    return true;
                }
                Err(other) => now = other,
            }
        }
        false
    }

    /// Makes `slot` a holder if `may` returns true. It is called after each look at the word: so it was true of the
    /// object whose word is changed.
    pub(crate) fn add_holder(&self, slot: usize, may: impl Fn() -> bool) -> bool {
        let (word, bit) = self.word_of(slot);
        Self::change(word, |_| may(), |holders| holders | bit)
    }

    /// Clears the holder `slot` if `may` returns true. It is called after each look at the word.
    pub(crate) fn remove_holder(&self, slot: usize, may: impl Fn() -> bool) {
        let (word, bit) = self.word_of(slot);
        Self::change(word, |now| now & bit != 0 && may(), |holders| holders & !bit);
    }

    /// Notes that `by` may keep it beyond its holders from now on.
    pub(crate) fn set_outlives(&self, by: Outlives) {
        // Done before anything is exported, and so before the last holder lets go.
        let mut known = self.outlives.load(Ordering::SeqCst);
        loop {
            let both = Outlives::of_word(known).and(by).word();
            match self.outlives.compare_exchange(known, both, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(other) => known = other,
            }
        }
    }

    /// Descriptors that may keep it beside its holders.
    pub(crate) fn outlives(&self) -> Outlives {
        Outlives::of_word(self.outlives.load(Ordering::SeqCst))
    }

    /// Whether `slot` holds it.
    pub(crate) fn is_held_by(&self, slot: usize) -> bool {
        let (word, bit) = self.word_of(slot);
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// Whether any process holds it.
    pub(crate) fn is_held(&self) -> bool {
        // After the look at the state, or its change: a holder that this look does not see finds the state changed.
        fence(Ordering::SeqCst);
        self.holders.iter().any(|word| holders(word.load(Ordering::SeqCst)) != 0)
    }
}
