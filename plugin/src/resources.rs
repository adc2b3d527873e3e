//! Device lists for kubelet: as many shares, chunks and percents as the node's GPUs have together.
//!
//! An ID names no GPU. If a GPU becomes unhealthy, so do the IDs that containers on it hold, and as many free IDs as the GPU
//! had free. IDs that containers hold stay in the list while the list is long enough, whatever their numbers.

use std::collections::{BTreeMap, BTreeSet};

use vcuda_kubelet_api::v1beta1::{Device, NumaNode, TopologyInfo};
use vcuda_kubelet_api::{HEALTHY, UNHEALTHY};
use vcuda_quota::pods::CORES_PER_GPU;

use crate::ids::{Ids, Kind};

pub(crate) const SHARES_PER_GPU: u32 = 16;
/// Most memory IDs of a node: kubelet iterates over all of them in every allocation, and a message has at most 4 MiB.
pub(crate) const MEMORY_IDS_MAX: u32 = 5_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Usable,
    /// Running containers stay; the GPU takes no new ones.
    Cordoned,
    /// The GPU takes no new containers, and the devices of running ones are reported as unhealthy.
    Unhealthy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeGpu {
    pub(crate) uuid: String,
    pub(crate) minor_number: Option<u32>,
    /// Whole chunks of memory that a single container could have.
    pub(crate) chunks: u32,
    /// Chunks beside these for suspendable containers; `None` if the GPU's memory is not overcommitted.
    pub(crate) suspendable: Option<SuspendableChunks>,
    pub(crate) state: State,
    /// NUMA node of the GPU; `None` if unknown.
    pub(crate) numa_node: Option<u32>,
}

/// Chunks of a GPU for suspendable containers, which take turns in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SuspendableChunks {
    /// Number of chunks of all containers together.
    pub(crate) count: u32,
    /// Most chunks of one container.
    pub(crate) largest: u32,
}

impl NodeGpu {
    /// Number of chunks for suspendable containers.
    pub(crate) fn suspendable_chunks(&self) -> u32 {
        self.suspendable.map_or(0, |chunks| chunks.count)
    }

    /// Number of devices of this kind that kubelet is told of.
    pub(crate) fn count(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Gpu => SHARES_PER_GPU,
            Kind::Memory => self.chunks,
            Kind::Cores => CORES_PER_GPU,
            Kind::SuspendableMemory => self.suspendable_chunks(),
        }
    }
}

/// IDs that containers hold, by GPU.
pub(crate) type HeldIds = BTreeMap<String, Ids>;

/// The IDs of one resource, and whether each is healthy.
pub(crate) type List = BTreeMap<u32, bool>;

pub(crate) fn list(kind: Kind, gpus: &[NodeGpu], held: &HeldIds) -> List {
    let sum: u32 = gpus.iter().map(|gpu| gpu.count(kind)).sum();
    let total = match kind {
        Kind::Memory | Kind::SuspendableMemory => sum.min(MEMORY_IDS_MAX),
        Kind::Gpu | Kind::Cores => sum,
    };
    let on = |gpu: &NodeGpu| held.get(&gpu.uuid).cloned().unwrap_or_default();
    let all_held: BTreeSet<u32> = gpus.iter().flat_map(on).collect();
    let free = (0..).filter(|number| !all_held.contains(number));
    let length = usize::try_from(total).unwrap_or(usize::MAX);
    let mut list: List =
        all_held.iter().copied().chain(free).take(length).map(|number| (number, true)).collect();
    for gpu in gpus.iter().filter(|gpu| gpu.state != State::Usable) {
        let on_it = on(gpu);
        let count = usize::try_from(gpu.count(kind)).unwrap_or(usize::MAX);
        let mut missing = count.saturating_sub(on_it.len());
        if gpu.state == State::Unhealthy {
            for number in &on_it {
                list.entry(*number).and_modify(|healthy| *healthy = false);
            }
        }
        // The highest first, as new containers get the lowest.
        let free = list.iter_mut().rev().filter(|(number, healthy)| **healthy && !all_held.contains(number));
        for (_, healthy) in free {
            if missing == 0 {
                break;
            }
            *healthy = false;
            missing -= 1;
        }
    }
    list
}

/// The NUMA node of all GPUs. Returns `None` if the GPUs are on several nodes: an ID names no GPU, so it has no node then.
pub(crate) fn common_numa_node(gpus: &[NodeGpu]) -> Option<u32> {
    let node = gpus.first()?.numa_node?;
    gpus.iter().all(|gpu| gpu.numa_node == Some(node)).then_some(node)
}

/// The list in kubelet's form. `numa_node` is that of all GPUs.
pub(crate) fn devices(kind: Kind, list: &List, numa_node: Option<u32>) -> Vec<Device> {
    let topology = numa_node.map(|node| TopologyInfo { nodes: vec![NumaNode { id: node.into() }] });
    let device = |(number, healthy): (&u32, &bool)| Device {
        id: kind.id(*number),
        health: if *healthy { HEALTHY } else { UNHEALTHY }.to_owned(),
        topology: topology.clone(),
    };
    list.iter().map(device).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;
    use vcuda_kubelet_api::v1beta1::ListAndWatchResponse;
    use vcuda_kubelet_api::{ID_MAX, MESSAGE_MAX};

    use super::*;

    fn gpu(uuid: &str, chunks: u32, state: State) -> NodeGpu {
        NodeGpu {
            uuid: uuid.to_owned(),
            minor_number: Some(0),
            chunks,
            suspendable: None,
            state,
            numa_node: None,
        }
    }

    fn healthy(list: &List) -> usize {
        list.values().filter(|healthy| **healthy).count()
    }

    #[test]
    fn counts_are_those_of_the_gpus() {
        let mut gpus = [gpu("a", 10, State::Usable), gpu("b", 20, State::Usable)];
        let lengths = |gpus: &[NodeGpu]| Kind::ALL.map(|kind| list(kind, gpus, &HeldIds::new()).len());
        assert_eq!(lengths(&gpus), [32, 30, 200, 0]);
        gpus[0].suspendable = Some(SuspendableChunks { count: 7, largest: 4 });
        assert_eq!(lengths(&gpus), [32, 30, 200, 7]);
        assert!(list(Kind::Gpu, &[], &HeldIds::new()).is_empty());
    }

    #[test]
    fn an_unhealthy_gpu_takes_its_ids_and_its_part_of_the_free_ones() {
        let mut gpus = [gpu("a", 10, State::Usable), gpu("b", 20, State::Unhealthy)];
        let held =
            HeldIds::from([("a".to_owned(), Ids::from([0, 5])), ("b".to_owned(), Ids::from([1, 2, 3]))]);
        let ill = list(Kind::Memory, &gpus, &held);
        assert_eq!((ill.len(), healthy(&ill)), (30, 10));
        assert!([1, 2, 3].iter().all(|number| !ill[number]), "{ill:?}");
        assert!([0, 5].iter().all(|number| ill[number]), "{ill:?}");
        // Cordoned: running containers stay.
        gpus[1].state = State::Cordoned;
        let cordoned = list(Kind::Memory, &gpus, &held);
        assert_eq!(healthy(&cordoned), 13);
        assert!([1, 2, 3].iter().all(|number| cordoned[number]), "{cordoned:?}");
    }

    #[test]
    fn a_numa_node_is_listed_only_if_all_gpus_have_it() {
        let at = |nodes: &[Option<u32>]| {
            let gpus: Vec<NodeGpu> =
                nodes.iter().map(|node| NodeGpu { numa_node: *node, ..gpu("a", 1, State::Usable) }).collect();
            common_numa_node(&gpus)
        };
        assert_eq!(at(&[Some(1), Some(1)]), Some(1));
        assert_eq!(at(&[Some(1), Some(0)]), None);
        assert_eq!(at(&[Some(1), None]), None);
        assert_eq!(at(&[]), None);
    }

    #[test]
    fn held_ids_stay_when_a_gpu_vanishes() {
        let gpus = [gpu("a", 10, State::Usable)];
        let held =
            HeldIds::from([("a".to_owned(), Ids::from([25, 26])), ("gone".to_owned(), Ids::from([0]))]);
        let left = list(Kind::Memory, &gpus, &held);
        assert_eq!(left.len(), 10);
        assert!(left.contains_key(&25) && left.contains_key(&26), "{left:?}");
        assert!(left.contains_key(&7) && !left.contains_key(&8), "{left:?}");
    }

    #[test]
    fn the_largest_list_is_well_below_the_largest_message() {
        let gpus: Vec<NodeGpu> = (0..16).map(|n| gpu(&n.to_string(), 4000, State::Usable)).collect();
        for kind in Kind::ALL {
            let list = list(kind, &gpus, &HeldIds::new());
            let devices = devices(kind, &list, Some(u32::MAX));
            assert!(devices.len() <= 5_000 && devices.iter().all(|device| device.id.len() <= ID_MAX));
            let bytes = ListAndWatchResponse { devices }.encoded_len();
            assert!(bytes < MESSAGE_MAX / 16, "{kind:?}: {bytes}");
        }
    }

    proptest! {
        #[test]
        fn no_more_than_the_healthy_gpus_have_is_healthy(
            chunks in prop::collection::vec((1_u32..50, 0..3_u8), 1..6),
            held in prop::collection::vec(prop::collection::btree_set(0_u32..300, 0..10), 6),
        ) {
            let states = [State::Usable, State::Cordoned, State::Unhealthy];
            let gpus: Vec<NodeGpu> = chunks
                .iter()
                .enumerate()
                .map(|(n, (chunks, state))| gpu(&n.to_string(), *chunks, states[usize::from(*state)]))
                .collect();
            // No container holds another's devices, nor more than the GPU has.
            let mut taken = Ids::new();
            let held: HeldIds = gpus
                .iter()
                .zip(held)
                .map(|(gpu, ids)| {
                    let own: Ids = ids.into_iter().filter(|id| taken.insert(*id)).take(gpu.chunks as usize).collect();
                    (gpu.uuid.clone(), own)
                })
                .collect();
            let list = list(Kind::Memory, &gpus, &held);
            let count = |state| -> usize {
                gpus.iter().filter(|gpu| gpu.state == state).map(|gpu| gpu.chunks as usize).sum()
            };
            prop_assert_eq!(list.len(), chunks.iter().map(|(chunks, _)| *chunks as usize).sum::<usize>());
            let on_cordoned: usize = gpus.iter().filter(|c| c.state == State::Cordoned).map(|c| held[&c.uuid].len()).sum();
            prop_assert_eq!(healthy(&list), count(State::Usable) + on_cordoned);
        }
    }
}
