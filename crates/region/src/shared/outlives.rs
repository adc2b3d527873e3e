//! Descriptors that may keep an object's memory beyond its holders. They may be open in any process.
//!
//! An object that was exported as a descriptor does not end with its last holder. It stays, and counts, until a
//! process of the tenant has proved that no descriptor is open
//! ([`Usage::end_released`](crate::slots::Usage::end_released)).

use super::ObjectKey;

/// Kind of descriptor that may keep an object beside its holders, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlives(u64);

const NOTHING: u64 = 0;
const UNPROVABLE: u64 = 1;
/// Set in the word of an inode, so that it differs from all others.
const INODE: u64 = 2;

impl Outlives {
    /// No descriptor keeps the object: it ends with its last holder.
    pub const NOTHING: Self = Self(NOTHING);
    /// Descriptors may keep the object, and no process can learn whether they still exist.
    pub const UNPROVABLE: Self = Self(UNPROVABLE);

    /// Open descriptions of this inode (`st_dev`, `st_ino` of stat(2)) that carry the object's lock.
    pub fn descriptions_of(device: u64, inode: u64) -> Self {
        let identity = [device.to_le_bytes(), inode.to_le_bytes()];
        let [word, _] = ObjectKey::of(identity.as_flattened()).parts();
        Self(word | INODE)
    }

    /// Descriptors of which those processes alone can tell that have the watch with this key.
    pub fn watched(by: ObjectKey) -> Self {
        let [_, word] = by.parts();
        Self(word & !INODE | UNPROVABLE)
    }

    /// Whether each process can ask the kernel about them that can open the inode.
    pub fn is_of_inode(self) -> bool {
        self.0 & INODE != 0
    }

    /// Two kinds, either of which may keep the object. If they differ, no single look can prove the release.
    pub(super) fn and(self, other: Self) -> Self {
        match (self.0, other.0) {
            (NOTHING, _) => other,
            (_, NOTHING) => self,
            (known, more) if known == more => self,
            _ => Self::UNPROVABLE,
        }
    }

    pub(super) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kinds_of_keepers_cannot_be_asked_by_one_question() {
        let [one, other] = [1, 2].map(|inode| Outlives::descriptions_of(7, inode));
        assert_ne!(one, other);
        assert_eq!(Outlives::NOTHING.and(one), one);
        assert_eq!(one.and(Outlives::NOTHING), one);
        assert_eq!(one.and(one), one);
        assert_eq!(one.and(other), Outlives::UNPROVABLE);
        assert_eq!(Outlives::UNPROVABLE.and(one), Outlives::UNPROVABLE);
        assert!(one != Outlives::NOTHING && one != Outlives::UNPROVABLE);
        let [watched, other] = [1, 2].map(|key| Outlives::watched(ObjectKey::of(&[key])));
        assert!(one.is_of_inode() && !watched.is_of_inode() && watched != other);
        assert!(watched != Outlives::NOTHING && watched != Outlives::UNPROVABLE);
    }
}
