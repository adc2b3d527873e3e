//! What is left of the parts of overcommitted GPUs. A container counts as kubelet counts it, by the chunks that it holds, and a tenant
//! that is no container of kubelet's by its memory.

use std::collections::BTreeMap;

use tracing::warn;
use vcuda_manager_api::v1;
use vcuda_quota::Quota;
use vcuda_quota::pods::node_gpus::{FreeGpu, FreeTurns};

use super::Publisher;
use crate::cdi::SlotRecord;
use crate::ids::Kind;

/// Chunks that are taken of the parts of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TakenOfGpu {
    common: u32,
    suspendable: u32,
}

/// Chunks that are taken, by the GPU's UUID.
#[derive(Debug, Default)]
pub(super) struct Taken(BTreeMap<String, TakenOfGpu>);

impl Publisher {
    /// Chunks that are taken of the parts of the GPUs; `None` if no GPU has parts.
    pub(super) fn taken(&self, grants: &[v1::Grant], gpus: &[v1::Gpu]) -> Option<Taken> {
        let has_parts = gpus.iter().any(|gpu| gpu.memory_suspendable_bytes > 0);
        if !self.chunks.has_suspendable || !has_parts {
            return None;
        }
        let records = self.store.records().unwrap_or_else(|error| {
            warn!("which memory containers hold is unknown: {error}");
            Vec::new()
        });
        Some(Taken::count(grants, &records, self.chunks.bytes))
    }
}

impl Taken {
    fn count(grants: &[v1::Grant], records: &[SlotRecord], chunk_bytes: u64) -> Self {
        let mut taken = Self::default();
        for grant in grants {
            let record = records.iter().find(|record| record.grant == grant.id);
            let each = record.map_or_else(|| by_memory(grant, chunk_bytes), by_chunks);
            for uuid in &grant.gpu_uuids {
                let of_gpu = taken.0.entry(uuid.clone()).or_default();
                of_gpu.common = of_gpu.common.saturating_add(each.common);
                of_gpu.suspendable = of_gpu.suspendable.saturating_add(each.suspendable);
            }
        }
        taken
    }

    /// What is left of a GPU, of which `free` knows all but the memory.
    pub(super) fn free_of_parts(&self, gpu: &v1::Gpu, free: FreeGpu, chunk_bytes: u64) -> FreeGpu {
        let chunks = |bytes: u64| u32::try_from(bytes / chunk_bytes.max(1)).unwrap_or(u32::MAX);
        let taken = self.0.get(&gpu.uuid).copied().unwrap_or_default();
        let common = chunks(gpu.memory_common_bytes);
        let suspendable = chunks(gpu.memory_suspendable_bytes);
        FreeGpu {
            mem: common.saturating_sub(taken.common),
            turns: Some(FreeTurns {
                mem: suspendable.saturating_sub(taken.suspendable),
                most: chunks(gpu.memory_suspendable_largest_bytes),
            }),
            of: common,
            ..free
        }
    }
}

/// Chunks of each GPU that a container holds.
fn by_chunks(record: &SlotRecord) -> TakenOfGpu {
    let each = |kind| {
        let chunks = record.held.ids_of(kind).len() / record.gpus.len().max(1);
        u32::try_from(chunks).unwrap_or(u32::MAX)
    };
    TakenOfGpu { common: each(Kind::Memory), suspendable: each(Kind::SuspendableMemory) }
}

/// Chunks of each GPU that a tenant's memory is; all of them for a whole GPU.
fn by_memory(grant: &v1::Grant, chunk_bytes: u64) -> TakenOfGpu {
    let quota = Quota::from(&grant.amounts.unwrap_or_default());
    let chunks = quota.memory_bytes.map(|bytes| bytes.div_ceil(chunk_bytes.max(1)));
    let chunks = chunks.and_then(|chunks| u32::try_from(chunks).ok()).unwrap_or(u32::MAX);
    match grant.suspendable {
        true => TakenOfGpu { common: 0, suspendable: chunks },
        false => TakenOfGpu { common: chunks, suspendable: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdi::HeldDevices;

    const CHUNK: u64 = 256 << 20;

    fn grant(id: &str, gib: u64, suspendable: bool) -> v1::Grant {
        v1::Grant {
            id: id.to_owned(),
            amounts: Some(v1::Amounts { memory_bytes: gib << 30, ..v1::Amounts::default() }),
            gpu_uuids: vec!["a".to_owned()],
            suspendable,
            ..v1::Grant::default()
        }
    }

    #[test]
    fn each_part_has_what_its_own_containers_leave() {
        let gpu = v1::Gpu {
            uuid: "a".to_owned(),
            memory_common_bytes: 20 << 30,
            memory_suspendable_bytes: 120 << 30,
            memory_suspendable_largest_bytes: 60 << 30,
            ..v1::Gpu::default()
        };
        let mut held = HeldDevices::default();
        *Kind::SuspendableMemory.select_mut(&mut held.ids) = (0..200).collect();
        // Its annotation lowers it: kubelet counts 50 GiB all the same.
        let of_pod =
            SlotRecord { grant: "pod".to_owned(), gpus: vec!["a".to_owned()], held, asked: String::new() };
        let grants = [grant("pod", 30, true), grant("notebook", 10, true), grant("train", 4, false)];
        let taken = Taken::count(&grants, &[of_pod], CHUNK);
        let free = taken.free_of_parts(&gpu, FreeGpu::default(), CHUNK);
        assert_eq!((free.mem, free.of), (64, 80));
        assert_eq!(free.turns, Some(FreeTurns { mem: 240, most: 240 }));
        let taken = Taken::count(&[grant("whole", 0, false)], &[], CHUNK);
        assert_eq!(taken.free_of_parts(&gpu, FreeGpu::default(), CHUNK).mem, 0);
    }
}
