//! Objects that no process holds and that descriptors may keep. They end once their release is proved.

use super::{ObjectKey, Outlives};
use crate::DeviceIndex;
use crate::ledger::COUNTABLE_BYTES;
use crate::primitive::Ordering;
use crate::slots::Usage;

/// An object that no process of the tenant holds, and that may still exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unheld {
    place: usize,
    /// The object's name.
    pub key: ObjectKey,
    /// The device that it is on.
    pub device: DeviceIndex,
    /// Bytes counted for it.
    pub bytes: u64,
    /// Descriptors that may keep it.
    pub outlives: Outlives,
}

impl Usage {
    /// Whether the tenant ever shared anything.
    #[inline]
    pub fn has_ever_shared(&self) -> bool {
        self.objects().is_ever_used()
    }

    /// The objects that no process holds and that may still exist. Empty, at the cost of one load, for a tenant that
    /// never shared anything.
    pub fn unheld(&self) -> impl Iterator<Item = Unheld> + '_ {
        let objects = self.objects();
        objects.all().filter_map(move |(place, _, record)| {
            let state = objects.state(place);
            let outlives = record.outlives();
            if !state.is_granted() || outlives == Outlives::NOTHING || record.is_held() {
                return None;
            }
            Some(Unheld {
                place,
                key: record.key(),
                device: DeviceIndex::new(state.device())?,
                bytes: record.bytes.load(Ordering::Relaxed).min(COUNTABLE_BYTES),
                outlives,
            })
        })
    }

    /// Ends an object that the caller has proved to be released, after it got it from [`Usage::unheld`]. A process
    /// that came to hold it since keeps it.
    pub fn end_released(&self, object: &Unheld) {
        let objects = self.objects();
        if object.place < objects.used() {
            objects.close_released(object.place, object.key);
        }
    }
}
