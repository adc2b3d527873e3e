//! The choice of GPUs by the parts of their memory. On a node with several overcommitted GPUs the scheduler counts the parts of all
//! together, so each GPU's parts must be filled by what was counted as theirs: the manager alone would put pods that are not
//! suspendable into all memory of one GPU, and suspendable ones would find less than was counted.

use std::collections::BTreeSet;

use vcuda_manager_api::v1;

use super::{BindError, Binder};
use crate::cdi::{HeldDevices, SlotRecord};
use crate::ids::{Kind, Slot};
use crate::resources::NodeGpu;

impl Binder {
    /// Creates the grant of a starting container, on GPUs whose part of the memory has room for it.
    pub(super) async fn create(
        &self,
        slot: &Slot,
        held: &HeldDevices,
        mut request: v1::CreateGrantRequest,
    ) -> Result<v1::Grant, BindError> {
        let node = self.node.borrow().clone().unwrap_or_default();
        if request.include_gpu_uuids.is_empty() && node.gpus.iter().any(|gpu| gpu.suspendable.is_some()) {
            request.include_gpu_uuids = gpus_with_room(&node.gpus, &self.store.records()?, slot, held);
        }
        Ok(self.manager.create(request).await?)
    }
}

/// UUIDs of the GPUs whose part has room for these devices beside the other containers'. Empty, which leaves the choice to the
/// manager, if these are too few, as where only the sum over GPUs has room.
fn gpus_with_room(gpus: &[NodeGpu], records: &[SlotRecord], slot: &Slot, held: &HeldDevices) -> Vec<String> {
    let kind = match held.ids_of(Kind::SuspendableMemory).is_empty() {
        true => Kind::Memory,
        false => Kind::SuspendableMemory,
    };
    let count = held.ids_of(Kind::Gpu).len().max(1);
    let each = held.ids_of(kind).len() / count;
    let has_room = |gpu: &&NodeGpu| {
        let others =
            records.iter().filter(|record| record.slot() != *slot && record.gpus.contains(&gpu.uuid));
        let taken: usize =
            others.map(|record| record.held.ids_of(kind).len() / record.gpus.len().max(1)).sum();
        let part = usize::try_from(gpu.count(kind)).unwrap_or(usize::MAX);
        taken.saturating_add(each) <= part
    };
    let found: BTreeSet<String> = gpus.iter().filter(has_room).map(|gpu| gpu.uuid.clone()).collect();
    match found.len() < count {
        true => Vec::new(),
        false => found.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ids;
    use crate::resources::{State, SuspendableChunks};

    fn gpu(uuid: &str) -> NodeGpu {
        NodeGpu {
            uuid: uuid.to_owned(),
            minor_number: None,
            chunks: 10,
            suspendable: Some(SuspendableChunks { count: 20, largest: 10 }),
            state: State::Usable,
            numa_node: None,
        }
    }

    /// Devices of a container: shares, and chunks of this kind.
    fn held(shares: std::ops::Range<u32>, kind: Kind, chunks: u32) -> HeldDevices {
        let mut held = HeldDevices::default();
        *Kind::Gpu.select_mut(&mut held.ids) = shares.collect();
        *kind.select_mut(&mut held.ids) = (0..chunks).collect();
        held
    }

    fn record(share: u32, gpus: &[&str], kind: Kind, chunks: u32) -> SlotRecord {
        SlotRecord {
            grant: String::new(),
            gpus: gpus.iter().map(|uuid| (*uuid).to_owned()).collect(),
            held: held(share..share + 1, kind, chunks),
            asked: String::new(),
        }
    }

    #[test]
    fn each_part_of_a_gpu_is_filled_by_its_own_containers() {
        let gpus = [gpu("a"), gpu("b")];
        // On a: 6 of 10 common chunks, 15 of 20 for suspendable ones. On both: 4 common ones each.
        let records = [
            record(1, &["a"], Kind::Memory, 6),
            record(2, &["a"], Kind::SuspendableMemory, 15),
            record(3, &["a", "b"], Kind::Memory, 8),
        ];
        let own = Slot::from_shares(&Ids::from([9]));
        let found = |shares: u32, kind, chunks| {
            gpus_with_room(&gpus, &records, &own, &held(9..9 + shares, kind, chunks))
        };
        assert_eq!(found(1, Kind::Memory, 6), ["b"], "a is full");
        assert_eq!(found(1, Kind::SuspendableMemory, 5), ["a", "b"]);
        assert_eq!(found(1, Kind::SuspendableMemory, 6), ["b"]);
        assert_eq!(found(2, Kind::SuspendableMemory, 10), ["a", "b"]);
        assert!(found(1, Kind::Memory, 7).is_empty() && found(2, Kind::Memory, 12).is_empty());
        // A container that starts again has its own place.
        let again = gpus_with_room(&gpus, &records, &records[0].slot(), &records[0].held);
        assert_eq!(again, ["a", "b"]);
    }
}
