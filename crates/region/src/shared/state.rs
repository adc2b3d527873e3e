//! State of an object of the table, in one word.

/// A free place.
pub(crate) const FREE: u64 = 0;
/// Its owner writes the record; no other process looks at it.
pub(crate) const WRITING: u64 = 1;
/// Announced, neither granted nor refused.
pub(crate) const ASKED: u64 = 2;
/// The announcement was cancelled by others. The process that joins the object announces it again.
pub(crate) const CANCELLED: u64 = 3;
/// Known, and counted unless its payer's record includes it.
pub(crate) const LIVE: u64 = 4;
/// As [`LIVE`], while a process checks whether it has holders left.
pub(crate) const CLOSING: u64 = 5;
/// Never granted, and never will be.
pub(crate) const ABANDONED: u64 = 6;

const STATUS: u64 = 7;
const DEVICE_SHIFT: u32 = 3;
const RANK_SHIFT: u32 = 7;
const NIBBLE: u64 = 15;
const OWNER_SHIFT: u32 = 11;
const OWNER: u64 = 0x3ff;
const TAG_SHIFT: u32 = 21;

/// Status, device (4 bits), rank of the announcement (4 bits), the slot that claimed the place (10 bits), and a tag
/// of 43 bits that grows with every change. So an exchange fails if anything has happened since the state was read,
/// and as a number a state only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64);

impl State {
    #[inline]
    pub(crate) fn status(self) -> u64 {
        self.0 & STATUS
    }

    /// Position of its device.
    #[inline]
    pub(crate) fn device(self) -> usize {
        (self.0 >> DEVICE_SHIFT & NIBBLE) as usize
    }

    pub(crate) fn rank(self) -> u64 {
        self.0 >> RANK_SHIFT & NIBBLE
    }

    /// The slot that claimed the place.
    pub(crate) fn owner(self) -> usize {
        (self.0 >> OWNER_SHIFT & OWNER) as usize
    }

    /// Whether others can find the object by its key.
    pub(crate) fn is_known(self) -> bool {
        matches!(self.status(), ASKED | CANCELLED | LIVE | CLOSING)
    }

    /// Whether the object was granted, and counts if no process pays.
    #[inline]
    pub(crate) fn is_granted(self) -> bool {
        matches!(self.status(), LIVE | CLOSING)
    }

    /// The next state.
    pub(crate) fn next(self, status: u64) -> Self {
        Self(self.0.wrapping_add(1 << TAG_SHIFT) & !STATUS | status)
    }

    /// The next state, announced (again) with this rank.
    pub(crate) fn announced(self, rank: u64) -> Self {
        Self(self.next(ASKED).0 & !(NIBBLE << RANK_SHIFT) | rank.min(NIBBLE) << RANK_SHIFT)
    }

    /// The next state: claimed by slot `owner` for an object on `device`.
    pub(crate) fn claimed(self, owner: usize, device: usize) -> Self {
        let tag = self.next(WRITING).0 >> TAG_SHIFT << TAG_SHIFT;
        Self(tag | (owner as u64 & OWNER) << OWNER_SHIFT | (device as u64 & NIBBLE) << DEVICE_SHIFT | WRITING)
    }
}

const _: () = assert!(crate::MAX_SLOTS <= 1 << 10 && crate::MAX_DEVICES <= 16);
