//! Objects that no process holds and that descriptors may hold: to be asked about, and ended once that is proved.

use super::{ObjectKey, Outlives};
use crate::DeviceIndex;
use crate::ledger::COUNTABLE_BYTES;
use crate::primitive::Ordering;
use crate::slots::Usage;

/// An object that no process of the container holds, and that may still be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unheld {
    place: usize,
    /// Its name.
    pub key: ObjectKey,
    /// Where it is.
    pub device: DeviceIndex,
    /// What is counted for it (bytes).
    pub bytes: u64,
    /// What may keep it.
    pub outlives: Outlives,
}

impl Usage {
    /// The objects that no process holds and that may still be there. Empty, at the cost of one load, in a container that
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

    /// Ends an object of which the caller has proved, after it was told of it here, that nothing keeps it. A process that came to
    /// hold it since keeps it.
    pub fn end_released(&self, object: &Unheld) {
        let objects = self.objects();
        if object.place < objects.used() {
            objects.close_released(object.place, object.key);
        }
    }
}
