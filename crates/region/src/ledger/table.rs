//! A tenant's ledger outside of a mapped file, for the tests.

use super::*;
use crate::primitive::AtomicU64;
use crate::shared::ObjectRecord;

pub(crate) struct Table {
    pub(crate) records: Vec<SlotDevice>,
    pub(crate) identities: Vec<IdentityRecord>,
    pub(crate) slots_used: AtomicU32,
    states: Vec<AtomicU64>,
    objects: Vec<ObjectRecord>,
    objects_used: AtomicU32,
}

impl Table {
    /// A table with so many slots, each live and in its first incarnation, and so many places for objects.
    pub(crate) fn new(slots: u32, places: usize) -> Self {
        let identity = || {
            let identity = IdentityRecord::default();
            identity.state.store(1 << 40 | 2, Ordering::Relaxed);
            identity
        };
        Self {
            records: (0..slots).map(|_| SlotDevice::default()).collect(),
            identities: (0..slots).map(|_| identity()).collect(),
            slots_used: AtomicU32::new(slots),
            states: (0..places).map(|_| AtomicU64::new(0)).collect(),
            objects: (0..places).map(|_| ObjectRecord::default()).collect(),
            objects_used: AtomicU32::new(0),
        }
    }

    pub(crate) fn ledger(&self) -> Ledger<'_> {
        Ledger {
            records: &self.records,
            slots_used: &self.slots_used,
            device: 0,
            objects: self.objects(),
            identities: &self.identities,
        }
    }

    pub(crate) fn objects(&self) -> Objects<'_> {
        Objects { states: &self.states, records: &self.objects, used: &self.objects_used }
    }

    pub(crate) fn reserve(&self, slot: usize, bytes: u64, limit: u64) -> Result<(), Denied> {
        self.ledger().reserve(slot, &self.records[slot].ledger, bytes, limit)
    }

    pub(crate) fn record(&self, slot: usize) -> &Record {
        &self.records[slot].ledger
    }
}
