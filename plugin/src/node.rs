//! The node's GPUs and the device lists for kubelet, made from the manager's answers and kept up to date.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::{info, warn};
use vcuda_kubelet_api::v1beta1::Device;
use vcuda_manager_api::v1;

use crate::cdi::{SlotRecord, Store};
use crate::ids::{Ids, Kind};
use crate::manager::{self, Manager, poll_gpus};
use crate::metrics::Instruments;
use crate::resources::{self, HeldIds, List, MEMORY_IDS_MAX, NodeGpu, State, SuspendableChunks};

/// Most chunks of a GPU, so that the sum over all GPUs does not overflow.
const CHUNKS_MAX: u32 = 1 << 20;

/// The node's GPUs and lists at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    /// All GPUs, including those that cannot be used.
    pub(crate) gpus: Vec<NodeGpu>,
    /// The list of each resource, by [`Kind`].
    lists: [List; 4],
    /// The reason why no GPU can be given out, or why the manager does not answer.
    pub(crate) problem: Option<String>,
}

impl NodeState {
    pub(crate) fn devices(&self, kind: Kind) -> Vec<Device> {
        resources::devices(kind, self.list(kind), resources::common_numa_node(&self.gpus))
    }

    pub(crate) fn list(&self, kind: Kind) -> &List {
        kind.select(&self.lists)
    }
}

impl manager::NodeGpus for NodeState {
    fn with_problem(&self, problem: String) -> Self {
        Self { problem: Some(problem), ..self.clone() }
    }
}

/// Receiver of the node's state; `None` until the manager has answered once.
pub(crate) type NodeReceiver = watch::Receiver<Option<Arc<NodeState>>>;

#[derive(Debug)]
pub(crate) struct NodeWatcher {
    manager: Arc<Manager>,
    store: Store,
    chunks: Chunks,
    instruments: Arc<Instruments>,
    state: watch::Sender<Option<Arc<NodeState>>>,
}

impl NodeWatcher {
    /// Creates a watcher that polls `manager` and counts memory in `chunks`.
    pub(crate) fn new(
        manager: Arc<Manager>,
        store: Store,
        chunks: Chunks,
        instruments: Arc<Instruments>,
    ) -> Self {
        Self { manager, store, chunks, instruments, state: watch::Sender::default() }
    }

    pub(crate) fn subscribe(&self) -> NodeReceiver {
        self.state.subscribe()
    }

    pub(crate) async fn run(self) {
        let read = |answer, before: Option<&NodeState>| self.node_state(answer, before);
        poll_gpus(&self.manager, &self.state, read, |state| self.note(state)).await;
    }

    fn node_state(&self, answer: v1::ListGpusResponse, before: Option<&NodeState>) -> NodeState {
        let gpus: Vec<NodeGpu> = answer.gpus.iter().map(|gpu| node_gpu(gpu, self.chunks)).collect();
        let problem = problem(&answer.problem, &gpus);
        let all_usable = gpus.iter().all(|gpu| gpu.state == State::Usable);
        // While all GPUs are healthy it makes no difference which IDs are on which.
        let lists = match before.filter(|before| all_usable && before.gpus == gpus) {
            Some(before) => before.lists.clone(),
            None => {
                let held = self.held_ids();
                Kind::ALL.map(|kind| resources::list(kind, &gpus, &held_by_gpu(&held, kind)))
            }
        };
        NodeState { gpus, lists, problem }
    }

    /// IDs in use on each GPU, read from the plugin's records.
    fn held_ids(&self) -> Vec<(String, [Ids; 4])> {
        let records = self.store.records::<SlotRecord>().unwrap_or_else(|error| {
            warn!("which shares are on which gpu is unknown: {error}");
            Vec::new()
        });
        let shares = records.into_iter().flat_map(|record| {
            let gpus = record.gpus.len();
            record.gpus.into_iter().enumerate().map(move |(place, uuid)| {
                // Each GPU has an equal part of the container's IDs.
                let part = |ids: &Ids| {
                    let each = ids.len() / gpus.max(1);
                    ids.iter().copied().skip(place * each).take(each).collect::<Ids>()
                };
                (uuid, record.held.ids.each_ref().map(part))
            })
        });
        shares.collect()
    }

    /// Logs a state, and counts the devices in it.
    fn note(&self, state: &NodeState) {
        let is_listed = |kind: &Kind| self.chunks.has_suspendable || *kind != Kind::SuspendableMemory;
        let listed = Kind::ALL.into_iter().filter(is_listed).map(|kind| {
            let list = state.list(kind);
            let healthy = list.values().filter(|healthy| **healthy).count();
            self.instruments.listed(kind, healthy, list.len() - healthy);
            healthy
        });
        let healthy: Vec<usize> = listed.collect();
        info!(
            gpus = state.gpus.len(),
            ?healthy,
            problem = state.problem.as_deref().unwrap_or("none"),
            "the node's shares, chunks and percents"
        );
        if let Some(problem) = &state.problem {
            warn!("{problem}");
        }
    }
}

/// The reason why the node's GPUs cannot be given out as they should, in the manager's words and in ours. While one GPU can be,
/// what the manager says of another is no reason: a plugin beside an ill GPU is ready, so that a rollout goes on.
fn problem(managers: &str, gpus: &[NodeGpu]) -> Option<String> {
    let most_of = |chunks: fn(&NodeGpu) -> u32| gpus.iter().map(|gpu| u64::from(chunks(gpu))).sum::<u64>();
    let chunks = most_of(|gpu| gpu.chunks).max(most_of(NodeGpu::suspendable_chunks));
    let too_many = (chunks > u64::from(MEMORY_IDS_MAX)).then(|| {
        format!(
            "this node has {chunks} chunks of memory, and kubelet can be told of {MEMORY_IDS_MAX}: raise resources.chunk \
             on all nodes"
        )
    });
    let is_outage = !managers.is_empty() && gpus.iter().all(|gpu| gpu.state == State::Unhealthy);
    let managers = is_outage.then(|| managers.to_owned());
    let problems: Vec<String> = managers.into_iter().chain(too_many).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

fn held_by_gpu(held: &[(String, [Ids; 4])], kind: Kind) -> HeldIds {
    let mut of_kind = HeldIds::new();
    for (uuid, ids) in held {
        of_kind.entry(uuid.clone()).or_default().extend(kind.select(ids));
    }
    of_kind
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks {
    pub(crate) bytes: u64,
    /// Whether kubelet is told of memory for suspendable containers, as it has a name.
    pub(crate) has_suspendable: bool,
}

fn node_gpu(gpu: &v1::Gpu, chunks: Chunks) -> NodeGpu {
    let count = |bytes: u64| {
        u32::try_from(bytes / chunks.bytes.max(1)).map_or(CHUNKS_MAX, |count| count.min(CHUNKS_MAX))
    };
    let suspendable =
        (chunks.has_suspendable && gpu.memory_suspendable_bytes > 0).then(|| SuspendableChunks {
            count: count(gpu.memory_suspendable_bytes),
            largest: count(gpu.memory_suspendable_largest_bytes),
        });
    let bytes = match suspendable {
        Some(_) => gpu.memory_common_bytes,
        None => gpu.memory_alone_bytes,
    };
    NodeGpu {
        uuid: gpu.uuid.clone(),
        minor_number: gpu.minor_number,
        chunks: count(bytes),
        suspendable,
        state: match (gpu.healthy, gpu.cordoned) {
            (false, _) => State::Unhealthy,
            (true, true) => State::Cordoned,
            (true, false) => State::Usable,
        },
        numa_node: u32::try_from(gpu.numa_node).ok(),
    }
}
