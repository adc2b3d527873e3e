//! Objects that more than one process of the tenant may hold (memory opened by IPC, shareable handles, imported pool
//! pointers, external memory), each charged once.
//!
//! An object has a [state](state::State) and an [`ObjectRecord`] in a table of `usage`. It is counted in one of two
//! ways:
//!
//! * Its *payer's* own record in the ledger includes it: memory that a process of the tenant has allocated and then
//!   [`Slot::share`]d with others.
//! * Else the object counts itself: memory from outside, which a process has joined ([`Slot::join_foreign`]), and
//!   memory whose payer let go or died while others held it.
//!
//! *Never uncounted, never twice*: the payer's record includes the object as long as three things hold. Its slot is
//! still the same process's, its head is not empty, and the head's tag is at most the object's `until`. The payer
//! first sets `until` to the tag that its record has, and then gives the bytes back. The one store of the head that
//! takes them out of the record makes the object count. An exchange of the head empties the record of a dead process,
//! with the same effect. An object that is no longer paid is never paid again. So a sum that reads the records first
//! and the objects then cannot miss it.
//!
//! *Outliving*: an object that was exported as descriptors may be held by them alone. Without holders it stays, and
//! counts by itself, until a process proves that no descriptor is open ([`Outlives`], [`Unheld`]).
//!
//! *Held*: each holder has a bit. It sets the bit itself, and clears it itself, or the bit is cleared with the slot
//! of a dead holder. A process may find an object without holders, and with nothing that outlives them. It then marks
//! the object closing, looks again, and frees it. A holder that arrives meanwhile sees the mark and takes it away.
//!
//! *One object a key*: an object to be joined is a party of the ledger like a process. It is announced, then all
//! other parties' records and objects are read. Then it is granted by one exchange, or cancelled by others. A process
//! that wants the same object meanwhile holds it too and continues these steps. Of two objects with the same key one
//! yields before any is granted.
//!
//! Every step may be the last one of its process or take for ever. No process waits for another: what is left half
//! done counts nothing or is finished by others. The bytes of the table are the tenant's: all of them are valid.

#[cfg(doc)]
use crate::slots::Slot;
use crate::{DeviceIndex, MAX_SLOTS};

#[cfg(not(loom))]
pub mod descriptors;
mod foreign;
#[cfg(not(loom))]
mod holds;
mod key;
#[cfg(not(loom))]
mod left;
mod outlives;
mod record;
#[cfg(not(loom))]
mod released;
pub(crate) mod state;
mod table;
#[cfg(not(loom))]
pub(crate) use holds::Holds;
pub use key::ObjectKey;
#[cfg(not(loom))]
pub use left::Left;
pub use outlives::Outlives;
pub use record::ObjectRecord;
pub(crate) use record::Payer;
#[cfg(not(loom))]
pub use released::Unheld;
pub(crate) use table::Objects;

/// Number of objects that a tenant can share at a time. (Miri follows each word of their records.)
pub const MAX_OBJECTS: usize = if cfg!(miri) { 8 } else { 1024 };

/// Holders that one word can name.
const HOLDERS_A_WORD: usize = 32;
/// Words of holders. (Loom follows each of them.)
pub(crate) const HOLDER_WORDS: usize = if cfg!(loom) { 1 } else { MAX_SLOTS.div_ceil(HOLDERS_A_WORD) };

/// A process's hold on an object that others may hold too, until [`Slot::part`]. A forked child must leave its
/// parent's alone, as it must leave the slot.
#[must_use = "the object is held until `Slot::part`"]
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Shared {
    /// Place in the table. `None` if it is counted in its process's own record, like memory of its own.
    place: Option<usize>,
    device: DeviceIndex,
    bytes: u64,
}

impl Shared {
    /// The device it is on.
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// Bytes counted for it, once for the tenant.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
