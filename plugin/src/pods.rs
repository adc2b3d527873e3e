//! The devices of each container according to kubelet itself (I14). PodResources lists containers with their pods; the checkpoint
//! adds plain init containers and the pods' UIDs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::Channel;
use vcuda_kubelet_api::podresources::pod_resources_lister_client::PodResourcesListerClient;
use vcuda_kubelet_api::podresources::{ContainerResources, ListPodResourcesRequest};
use vcuda_kubelet_api::{POD_RESOURCES_MAX, connect};
use vcuda_quota::pods::ResourceNames;

use crate::ids::{Ids, Kind};

mod checkpoint;
mod holder;

pub(crate) use checkpoint::CheckpointError;
pub(crate) use holder::{Holder, HolderError, find_holder};

/// Shortest interval of requests: kubelet answers 100 a second for all clients, and refuses more
/// (pkg/kubelet/apis/podresources).
const MIN_INTERVAL: Duration = Duration::from_millis(15);
/// Most retries of a request that kubelet refuses for its rate.
const RETRIES_MAX: u32 = 20;
const DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtendedResources {
    /// By [`Kind`]; `None` if the plugin has no such resource.
    names: [Option<String>; 4],
}

impl ExtendedResources {
    /// Creates the names of shares, chunks and percents, and of chunks for suspendable containers if kubelet is told of them.
    pub(crate) fn new([gpu, memory, cores]: [String; 3], suspendable_memory: Option<String>) -> Self {
        Self { names: [Some(gpu), Some(memory), Some(cores), suspendable_memory] }
    }

    /// Name of a resource; empty if the plugin has no such resource.
    pub(crate) fn name(&self, kind: Kind) -> &str {
        kind.select(&self.names).as_deref().unwrap_or_default()
    }

    /// Kinds of which the plugin has a resource.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| kind.select(&self.names).is_some())
    }

    /// Whether kubelet is told of chunks for suspendable containers.
    pub(crate) fn has_suspendable_memory(&self) -> bool {
        Kind::SuspendableMemory.select(&self.names).is_some()
    }

    /// Names of shares, percents, and of this kind of memory.
    pub(crate) fn resources(&self, memory: Kind) -> ResourceNames<'_> {
        let [gpu, memory, cores] = [Kind::Gpu, memory, Kind::Cores].map(|kind| self.name(kind));
        ResourceNames { gpu, memory, cores }
    }

    /// The resource of this name; `None` if it is not ours.
    pub(crate) fn kind(&self, name: &str) -> Option<Kind> {
        self.kinds().find(|kind| self.name(*kind) == name)
    }
}

#[derive(Debug, Clone, Error)]
#[error("kubelet's PodResources ({}) does not answer: {why}", .socket.display())]
pub(crate) struct PodsError {
    socket: PathBuf,
    why: String,
}

/// Our devices of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    /// By [`Kind`].
    pub(crate) ids: [Ids; 4],
    /// Device IDs of our resources that the plugin never listed.
    pub(crate) foreign: BTreeSet<String>,
}

impl Devices {
    pub(crate) fn ids_of(&self, kind: Kind) -> &Ids {
        kind.select(&self.ids)
    }

    fn add(&mut self, kind: Kind, ids: impl IntoIterator<Item = impl AsRef<str>>) {
        let own = kind.select_mut(&mut self.ids);
        for id in ids {
            match kind.number(id.as_ref()) {
                Some(number) => own.extend([number]),
                None => self.foreign.extend([id.as_ref().chars().take(64).collect()]),
            }
        }
    }

    /// Whether the container has no device of our resources.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.iter().all(BTreeSet::is_empty) && self.foreign.is_empty()
    }
}

/// A pod's containers that have devices of ours, by name.
pub(crate) type Containers = BTreeMap<String, Devices>;

/// Kubelet's answers at a moment.
#[derive(Debug, Default)]
pub(crate) struct PodsSnapshot {
    /// From PodResources: namespace and name of each pod, and its containers without plain init containers.
    pub(crate) listed: Vec<(String, String, Containers)>,
    /// From the checkpoint: all containers of each pod, by the pod's UID.
    pub(crate) checkpoint: BTreeMap<String, Containers>,
    pub(crate) checkpoint_problem: Option<CheckpointError>,
}

impl PodsSnapshot {
    /// The containers in PodResources, without plain init containers.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &Devices> {
        self.listed.iter().flat_map(|(_, _, containers)| containers.values())
    }

    /// The containers in the checkpoint, including those of pods that ended since it was written.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = &Devices> {
        self.checkpoint.values().flat_map(BTreeMap::values)
    }
}

/// Version of the checkpoint's file (inode, seconds and nanoseconds of its change): kubelet replaces the file each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckpointVersion(u64, i64, i64);

/// Reads from kubelet which devices each container has.
#[derive(Debug)]
pub(crate) struct Pods {
    socket: PathBuf,
    checkpoint: PathBuf,
    names: ExtendedResources,
    channel: Mutex<Option<Channel>>,
    calls: AtomicU64,
    last: Mutex<LastAnswer>,
}

#[derive(Debug, Default)]
struct LastAnswer {
    /// Number of calls that had been made when kubelet was asked.
    calls_before: u64,
    at: Option<Instant>,
    answer: Option<Result<Arc<PodsSnapshot>, PodsError>>,
}

impl Pods {
    /// Creates a reader of PodResources at `socket` and of the file `checkpoint`.
    pub(crate) fn new(socket: &Path, checkpoint: &Path, names: ExtendedResources) -> Self {
        Self {
            socket: socket.to_owned(),
            checkpoint: checkpoint.to_owned(),
            names,
            channel: Mutex::default(),
            calls: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    pub(crate) fn names(&self) -> &ExtendedResources {
        &self.names
    }

    /// All containers with devices now. A checkpoint that cannot be used is left out, with the reason.
    ///
    /// Concurrent callers share an answer. No caller gets an answer from before its call.
    pub(crate) async fn snapshot(&self) -> Result<Arc<PodsSnapshot>, PodsError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some(answer) = last.answer.as_ref().filter(|_| last.calls_before > number) {
            return answer.clone();
        }
        if let Some(at) = last.at {
            tokio::time::sleep_until(at + MIN_INTERVAL).await;
        }
        let calls_before = self.calls.load(Ordering::SeqCst);
        let answer = self.read_snapshot().await.map(Arc::new);
        *last = LastAnswer { calls_before, at: Some(Instant::now()), answer: Some(answer.clone()) };
        answer
    }

    /// The present version of the checkpoint's file; `None` if there is no file.
    pub(crate) fn checkpoint_version(&self) -> Option<CheckpointVersion> {
        let metadata = std::fs::metadata(&self.checkpoint).ok()?;
        Some(CheckpointVersion(metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
    }

    async fn read_snapshot(&self) -> Result<PodsSnapshot, PodsError> {
        let listed = self.list().await?;
        let (path, names) = (self.checkpoint.clone(), self.names.clone());
        let read = tokio::task::spawn_blocking(move || checkpoint::read(&path, &names)).await;
        let (checkpoint, checkpoint_problem) = match read {
            Ok(Ok(checkpoint)) => (checkpoint, None),
            Ok(Err(error)) => (BTreeMap::new(), Some(error)),
            Err(_) => (BTreeMap::new(), Some(CheckpointError::NotRead(self.checkpoint.clone()))),
        };
        Ok(PodsSnapshot { listed, checkpoint, checkpoint_problem })
    }

    async fn list(&self) -> Result<Vec<(String, String, Containers)>, PodsError> {
        let error = |why: String| PodsError { socket: self.socket.clone(), why };
        let channel = self.channel().await.map_err(|source| error(source.to_string()))?;
        let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(POD_RESOURCES_MAX);
        let list = async {
            let mut retries = 0;
            loop {
                match client.list(ListPodResourcesRequest {}).await {
                    Err(status) if status.code() == Code::ResourceExhausted && retries < RETRIES_MAX => {
                        retries += 1
                    }
                    answer => return answer,
                }
                tokio::time::sleep(3 * MIN_INTERVAL).await;
            }
        };
        let answer = match tokio::time::timeout(DEADLINE, list).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => {
                *self.channel.lock().await = None;
                return Err(error(format!("{}: {}", status.code(), status.message())));
            }
            Err(_) => {
                *self.channel.lock().await = None;
                return Err(error(format!("nothing within {DEADLINE:?}")));
            }
        };
        let pods = answer.pod_resources.into_iter().map(|pod| {
            let containers = pod.containers.iter();
            let ours = containers
                .map(|container| (container.name.clone(), self.devices(container)))
                .filter(|(_, devices)| !devices.is_empty());
            (pod.namespace, pod.name, ours.collect())
        });
        Ok(pods.collect())
    }

    async fn channel(&self) -> std::io::Result<Channel> {
        let mut channel = self.channel.lock().await;
        match &*channel {
            Some(channel) => Ok(channel.clone()),
            None => Ok(channel.insert(connect(&self.socket, DEADLINE).await?).clone()),
        }
    }

    /// The container's devices. PodResources has an entry for each device and NUMA node; they are united.
    fn devices(&self, container: &ContainerResources) -> Devices {
        let mut devices = Devices::default();
        for entry in &container.devices {
            if let Some(kind) = self.names.kind(&entry.resource_name) {
                devices.add(kind, &entry.device_ids);
            }
        }
        devices
    }
}
