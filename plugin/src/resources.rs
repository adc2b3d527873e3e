//! From GPUs to device lists: so many shares, chunks and percents as the node's GPUs have together.
//!
//! IDs name no GPU, so a GPU that falls ill takes with it the IDs that containers on it hold, and of the free ones as
//! many as it had free. IDs that containers hold stay in the list as long as it is long enough, whatever their numbers.

use std::collections::{BTreeMap, BTreeSet};

use vcuda_kubelet_api::v1beta1::{Device, NumaNode, TopologyInfo};
use vcuda_kubelet_api::{HEALTHY, UNHEALTHY};
use vcuda_quota::pods::CORES_PER_GPU;

use crate::ids::{Ids, Kind};

/// Shares of a GPU.
pub const SHARES_PER_CARD: u32 = 16;
/// Memory IDs of a node, at most: kubelet looks at each in every allocation, and a message is at most 4 MiB.
pub const MEMORY_IDS_MAX: u32 = 5_000;

/// State of a GPU as a source of grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All of it.
    Usable,
    /// The containers there stay; nothing is added.
    Cordoned,
    /// Nothing, and what runs there is told.
    Unhealthy,
}

/// A GPU as kubelet counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGpu {
    /// Its GPU.
    pub uuid: String,
    /// Minor number of its device node.
    pub minor_number: Option<u32>,
    /// Whole chunks of memory that one container alone could have.
    pub chunks: u32,
    /// State of the GPU.
    pub state: State,
    /// The node of memory and processors that it is near to.
    pub numa_node: Option<u32>,
}

impl NodeGpu {
    fn count(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Gpu => SHARES_PER_CARD,
            Kind::Memory => self.chunks,
            Kind::Cores => CORES_PER_GPU,
        }
    }
}

/// IDs that containers hold, by GPU.
pub type Held = BTreeMap<String, Ids>;

/// The IDs of one resource, and whether each is healthy.
pub type List = BTreeMap<u32, bool>;

/// The list of one resource.
#[must_use]
pub fn list(kind: Kind, gpus: &[NodeGpu], held: &Held) -> List {
    let sum: u32 = gpus.iter().map(|gpu| gpu.count(kind)).sum();
    let total = match kind {
        Kind::Memory => sum.min(MEMORY_IDS_MAX),
        Kind::Gpu | Kind::Cores => sum,
    };
    let on = |gpu: &NodeGpu| held.get(&gpu.uuid).cloned().unwrap_or_default();
    let all_held: BTreeSet<u32> = gpus.iter().flat_map(on).collect();
    let free = (0..).filter(|number| !all_held.contains(number));
    let length = usize::try_from(total).unwrap_or(usize::MAX);
    let mut list: List = all_held
        .iter()
        .copied()
        .chain(free)
        .take(length)
        .map(|number| (number, true))
        .collect();
    for gpu in gpus.iter().filter(|gpu| gpu.state != State::Usable) {
        let on_it = on(gpu);
        let count = usize::try_from(gpu.count(kind)).unwrap_or(usize::MAX);
        let mut missing = count.saturating_sub(on_it.len());
        if gpu.state == State::Unhealthy {
            for number in &on_it {
                list.entry(*number).and_modify(|healthy| *healthy = false);
            }
        }
        // The highest first: of the others, new containers get the lowest.
        let free = list
            .iter_mut()
            .rev()
            .filter(|(number, healthy)| **healthy && !all_held.contains(number));
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

/// The NUMA node that all GPUs are near to. An ID names no GPU, so with several nodes it is near to none of them.
#[must_use]
pub fn common_numa_node(gpus: &[NodeGpu]) -> Option<u32> {
    let node = gpus.first()?.numa_node?;
    gpus.iter().all(|gpu| gpu.numa_node == Some(node)).then_some(node)
}

/// As kubelet wants it, with the node that all GPUs are near to.
#[must_use]
pub fn devices(kind: Kind, list: &List, numa_node: Option<u32>) -> Vec<Device> {
    let topology = numa_node.map(|node| TopologyInfo {
        nodes: vec![NumaNode { id: node.into() }],
    });
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
            state,
            numa_node: None,
        }
    }

    fn healthy(list: &List) -> usize {
        list.values().filter(|healthy| **healthy).count()
    }

    #[test]
    fn counts_are_those_of_the_gpus() {
        let gpus = [gpu("a", 10, State::Usable), gpu("b", 20, State::Usable)];
        let lengths = Kind::ALL.map(|kind| list(kind, &gpus, &Held::new()).len());
        assert_eq!(lengths, [32, 30, 200]);
        assert!(list(Kind::Gpu, &[], &Held::new()).is_empty());
    }

    #[test]
    fn a_gpu_takes_with_it_what_is_on_it_and_its_part_of_the_free() {
        let mut gpus = [gpu("a", 10, State::Usable), gpu("b", 20, State::Unhealthy)];
        let held = Held::from([
            ("a".to_owned(), Ids::from([0, 5])),
            ("b".to_owned(), Ids::from([1, 2, 3])),
        ]);
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
    fn a_node_is_told_only_if_it_is_that_of_all_gpus() {
        let at = |nodes: &[Option<u32>]| {
            let gpus: Vec<NodeGpu> = nodes
                .iter()
                .map(|node| NodeGpu {
                    numa_node: *node,
                    ..gpu("a", 1, State::Usable)
                })
                .collect();
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
        let held = Held::from([
            ("a".to_owned(), Ids::from([25, 26])),
            ("gone".to_owned(), Ids::from([0])),
        ]);
        let left = list(Kind::Memory, &gpus, &held);
        assert_eq!(left.len(), 10);
        assert!(left.contains_key(&25) && left.contains_key(&26), "{left:?}");
        assert!(left.contains_key(&7) && !left.contains_key(&8), "{left:?}");
    }

    #[test]
    fn the_largest_list_is_well_below_the_largest_message() {
        let gpus: Vec<NodeGpu> = (0..16)
            .map(|n| gpu(&n.to_string(), 4000, State::Usable))
            .collect();
        for kind in Kind::ALL {
            let list = list(kind, &gpus, &Held::new());
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
            let held: Held = gpus
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
