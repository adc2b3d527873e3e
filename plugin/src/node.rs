//! The node's GPUs: the lists for kubelet, made from the manager's answers and kept up to date.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::{info, warn};
use vcuda_kubelet_api::v1beta1::Device;
use vcuda_manager_api::v1;

use crate::cdi::Store;
use crate::ids::{Ids, Kind};
use crate::manager::{Manager, ManagerError};
use crate::metrics::Instruments;
use crate::resources::{self, Held, List, MEMORY_IDS_MAX, NodeGpu, State};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// The same, until the GPUs are known: kubelet refuses pods for good as long as no list is read.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// Time after a start in which an answer without a GPU is not believed: a list that is too short is final for the pods
/// that a node brings along from before its reboot.
const BELIEVE: u32 = 3;

/// Chunks of a GPU, at most: sums of them are numbers.
const CHUNKS_MAX: u32 = 1 << 20;

/// The node at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its GPUs, including those that cannot be used.
    pub gpus: Vec<NodeGpu>,
    /// The list of each resource, by [`Kind`].
    lists: [List; 3],
    /// The reason why no GPU can be given out, or why the manager does not answer.
    pub problem: Option<String>,
}

impl Seen {
    /// Kubelet's list of one resource.
    #[must_use]
    pub fn devices(&self, kind: Kind) -> Vec<Device> {
        resources::devices(kind, self.list(kind), resources::common_numa_node(&self.gpus))
    }

    /// The list of one resource.
    #[must_use]
    pub fn list(&self, kind: Kind) -> &List {
        let [gpu, memory, cores] = &self.lists;
        match kind {
            Kind::Gpu => gpu,
            Kind::Memory => memory,
            Kind::Cores => cores,
        }
    }
}

/// Knowledge of the node: nothing, until the manager has said it for the first time.
pub type Known = watch::Receiver<Option<Arc<Seen>>>;

/// Follows the manager.
#[derive(Debug)]
pub struct Follower {
    manager: Arc<Manager>,
    store: Store,
    chunk_bytes: u64,
    instruments: Arc<Instruments>,
    seen: watch::Sender<Option<Arc<Seen>>>,
}

impl Follower {
    /// Asks `manager`; memory is counted in chunks of `chunk_bytes`.
    #[must_use]
    pub fn new(manager: Arc<Manager>, store: Store, chunk_bytes: u64, instruments: Arc<Instruments>) -> Self {
        Self {
            manager,
            store,
            chunk_bytes,
            instruments,
            seen: watch::Sender::default(),
        }
    }

    /// Present knowledge of the node.
    #[must_use]
    pub fn known(&self) -> Known {
        self.seen.subscribe()
    }

    /// Looks until it is dropped.
    pub async fn run(self) {
        let mut empty = 0;
        loop {
            let pause = match self.manager.gpus().await {
                Ok(answer) if answer.gpus.is_empty() && empty < BELIEVE => {
                    empty += 1;
                    LOOK
                }
                Ok(answer) => {
                    let seen = self.see(answer).await;
                    self.publish(seen);
                    LOOK
                }
                Err(error) => {
                    self.keep(&error);
                    match self.seen.borrow().is_some() {
                        true => LOOK,
                        false => FIRST_LOOK,
                    }
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn see(&self, answer: v1::ListGpusResponse) -> Seen {
        let gpus: Vec<NodeGpu> = answer
            .gpus
            .iter()
            .map(|gpu| node_gpu(gpu, self.chunk_bytes))
            .collect();
        let problem = problem(&answer.problem, &gpus);
        let is_well = gpus.iter().all(|gpu| gpu.state == State::Usable);
        let before = self.seen.borrow().clone();
        // While all GPUs are healthy it makes no difference which IDs are on which.
        let lists = match before.filter(|before| is_well && before.gpus == gpus) {
            Some(before) => before.lists.clone(),
            None => {
                let held = self.held().await;
                Kind::ALL.map(|kind| resources::list(kind, &gpus, &held_of(&held, kind)))
            }
        };
        Seen { gpus, lists, problem }
    }

    /// The IDs that are in use on each GPU, by the plugin's own files.
    async fn held(&self) -> Vec<(String, [Ids; 3])> {
        let store = self.store.clone();
        let records = spawn_blocking(move || store.records()).await;
        let records = match records {
            Ok(Ok(records)) => records,
            Ok(Err(error)) => {
                warn!("which shares are on which gpu is unknown: {error}");
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        let shares = records.into_iter().flat_map(|record| {
            let gpus = record.gpus.len();
            record.gpus.into_iter().enumerate().map(move |(place, uuid)| {
                // The same part of each on each GPU.
                let part = |ids: &Ids| {
                    let each = ids.len() / gpus.max(1);
                    ids.iter().copied().skip(place * each).take(each).collect::<Ids>()
                };
                (uuid, record.held.ids.each_ref().map(part))
            })
        });
        shares.collect()
    }

    fn publish(&self, seen: Seen) {
        self.seen.send_if_modified(|known| {
            if known.as_deref() == Some(&seen) {
                return false;
            }
            let healthy = Kind::ALL.map(|kind| {
                let list = seen.list(kind);
                let healthy = list.values().filter(|healthy| **healthy).count();
                self.instruments.listed(kind, healthy, list.len() - healthy);
                healthy
            });
            info!(
                gpus = seen.gpus.len(),
                ?healthy,
                problem = seen.problem.as_deref().unwrap_or("none"),
                "the node's shares, chunks and percents"
            );
            *known = Some(Arc::new(seen));
            true
        });
    }

    /// The GPUs do not go because the manager does: it is restarted, and pods run on.
    fn keep(&self, error: &ManagerError) {
        self.seen.send_if_modified(|known| {
            let problem = error.to_string();
            let Some(seen) = known else {
                return false;
            };
            if seen.problem.as_ref() == Some(&problem) {
                return false;
            }
            warn!("{problem}");
            *known = Some(Arc::new(Seen {
                problem: Some(problem),
                ..Seen::clone(seen)
            }));
            true
        });
    }
}

/// The reason why the node's GPUs cannot be given out as they should, in the manager's words and in ours. While one GPU can be,
/// what the manager says of another is no reason: a plugin beside an ill GPU is ready, so that a rollout goes on.
fn problem(managers: &str, gpus: &[NodeGpu]) -> Option<String> {
    let chunks: u64 = gpus.iter().map(|gpu| u64::from(gpu.chunks)).sum();
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

fn held_of(held: &[(String, [Ids; 3])], kind: Kind) -> Held {
    let mut of_kind = Held::new();
    for (uuid, [shares, chunks, percents]) in held {
        let ids = match kind {
            Kind::Gpu => shares,
            Kind::Memory => chunks,
            Kind::Cores => percents,
        };
        of_kind.entry(uuid.clone()).or_default().extend(ids);
    }
    of_kind
}

fn node_gpu(gpu: &v1::Gpu, chunk_bytes: u64) -> NodeGpu {
    // A manager that is older than this field.
    let bytes = match gpu.memory_alone_bytes {
        0 => gpu.memory_grantable_bytes,
        bytes => bytes,
    };
    NodeGpu {
        uuid: gpu.uuid.clone(),
        minor_number: gpu.minor_number,
        chunks: u32::try_from(bytes / chunk_bytes.max(1)).map_or(CHUNKS_MAX, |chunks| chunks.min(CHUNKS_MAX)),
        state: match (gpu.healthy, gpu.cordoned) {
            (false, _) => State::Unhealthy,
            (true, true) => State::Cordoned,
            (true, false) => State::Usable,
        },
        numa_node: u32::try_from(gpu.numa_node).ok(),
    }
}
