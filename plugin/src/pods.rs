//! Which container holds which devices, as kubelet itself says (I14): PodResources, and its checkpoint for what that leaves
//! out: plain init containers, and pods' UIDs.

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

pub use checkpoint::CheckpointError;
pub use holder::{Holder, HolderError, holder};

/// Pause between two questions: kubelet answers 100 a second to all clients, and refuses more
/// (pkg/kubelet/apis/podresources).
const BETWEEN: Duration = Duration::from_millis(15);
/// Number of repeats of a question that kubelet refuses for that.
const REPEATS: u32 = 20;
/// For one answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// The names under which kubelet knows our resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// By [`Kind`].
    names: [String; 3],
}

impl Names {
    /// These, in the order of [`Kind::ALL`].
    #[must_use]
    pub fn new(names: [String; 3]) -> Self {
        Self { names }
    }

    /// Name of one resource.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &str {
        kind.of::<String>(&self.names)
    }

    /// All three.
    #[must_use]
    pub fn resources(&self) -> ResourceNames<'_> {
        let [gpu, memory, cores] = Kind::ALL.map(|kind| self.of(kind));
        ResourceNames { gpu, memory, cores }
    }

    /// The resource of this name.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| self.of(*kind) == name)
    }
}

/// PodResources does not answer which container holds which devices.
#[derive(Debug, Clone, Error)]
#[error("kubelet's PodResources ({}) does not answer: {why}", .socket.display())]
pub struct PodsError {
    socket: PathBuf,
    why: String,
}

/// Our devices of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// By [`Kind`].
    pub ids: [Ids; 3],
    /// Devices under our names that are not ours.
    pub foreign: BTreeSet<String>,
}

impl Devices {
    /// The IDs of one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &Ids {
        kind.of(&self.ids)
    }

    fn add(&mut self, kind: Kind, ids: impl IntoIterator<Item = impl AsRef<str>>) {
        let own = kind.of_mut(&mut self.ids);
        for id in ids {
            match kind.number(id.as_ref()) {
                Some(number) => own.extend([number]),
                None => self.foreign.extend([id.as_ref().chars().take(64).collect()]),
            }
        }
    }

    /// Whether it has anything of ours.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.iter().all(BTreeSet::is_empty) && self.foreign.is_empty()
    }
}

/// A pod's containers that have devices of ours, by name.
pub type Containers = BTreeMap<String, Devices>;

/// Kubelet's answers at a moment.
#[derive(Debug, Default)]
pub struct Told {
    /// By PodResources: namespace and name of a pod, and its containers but for plain init containers.
    pub listed: Vec<(String, String, Containers)>,
    /// By the checkpoint: by the pod's UID, all of its containers.
    pub checkpoint: BTreeMap<String, Containers>,
    /// The reason why the checkpoint could not be used.
    pub checkpoint_problem: Option<CheckpointError>,
}

impl Told {
    /// The containers that PodResources list. Plain init containers are not among them.
    pub fn listed(&self) -> impl Iterator<Item = &Devices> {
        self.listed
            .iter()
            .flat_map(|(_, _, containers)| containers.values())
    }

    /// The containers in the checkpoint, including those of pods that ended since it was written.
    pub fn recorded(&self) -> impl Iterator<Item = &Devices> {
        self.checkpoint.values().flat_map(BTreeMap::values)
    }
}

/// One writing of the checkpoint: kubelet replaces the file each time (inode, time of its change).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written(u64, i64, i64);

/// Kubelet, asked which containers hold which devices.
#[derive(Debug)]
pub struct Pods {
    socket: PathBuf,
    checkpoint: PathBuf,
    names: Names,
    channel: Mutex<Option<Channel>>,
    /// Number of callers so far.
    asked: AtomicU64,
    last: Mutex<Last>,
}

/// The last answer.
#[derive(Debug, Default)]
struct Last {
    /// It was asked for after so many had come.
    after: u64,
    at: Option<Instant>,
    answer: Option<Result<Arc<Told>, PodsError>>,
}

impl Pods {
    /// Asks at `socket`, and reads `checkpoint`.
    #[must_use]
    pub fn new(socket: &Path, checkpoint: &Path, names: Names) -> Self {
        Self {
            socket: socket.to_owned(),
            checkpoint: checkpoint.to_owned(),
            names,
            channel: Mutex::default(),
            asked: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// Under which names kubelet knows our resources.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Holders of all devices now. A checkpoint that cannot be used is said, and left out.
    ///
    /// One of the callers at the same time asks kubelet. No caller gets an answer that was asked for before its call.
    ///
    /// # Errors
    /// PodResources do not answer.
    pub async fn ask(&self) -> Result<Arc<Told>, PodsError> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some(answer) = last.answer.as_ref().filter(|_| last.after > number) {
            return answer.clone();
        }
        if let Some(at) = last.at {
            tokio::time::sleep_until(at + BETWEEN).await;
        }
        let after = self.asked.load(Ordering::SeqCst);
        let answer = self.ask_kubelet().await.map(Arc::new);
        *last = Last {
            after,
            at: Some(Instant::now()),
            answer: Some(answer.clone()),
        };
        answer
    }

    /// The present version of the checkpoint's file; `None` if there is no file.
    #[must_use]
    pub fn written(&self) -> Option<Written> {
        let metadata = std::fs::metadata(&self.checkpoint).ok()?;
        Some(Written(metadata.ino(), metadata.ctime(), metadata.ctime_nsec()))
    }

    async fn ask_kubelet(&self) -> Result<Told, PodsError> {
        let listed = self.list().await?;
        let (path, names) = (self.checkpoint.clone(), self.names.clone());
        let read = tokio::task::spawn_blocking(move || checkpoint::read(&path, &names)).await;
        let (checkpoint, checkpoint_problem) = match read {
            Ok(Ok(checkpoint)) => (checkpoint, None),
            Ok(Err(error)) => (BTreeMap::new(), Some(error)),
            Err(_) => (
                BTreeMap::new(),
                Some(CheckpointError::NotRead(self.checkpoint.clone())),
            ),
        };
        Ok(Told {
            listed,
            checkpoint,
            checkpoint_problem,
        })
    }

    async fn list(&self) -> Result<Vec<(String, String, Containers)>, PodsError> {
        let silent = |why: String| PodsError {
            socket: self.socket.clone(),
            why,
        };
        let channel = self.channel().await.map_err(|error| silent(error.to_string()))?;
        let mut client = PodResourcesListerClient::new(channel).max_decoding_message_size(POD_RESOURCES_MAX);
        let list = async {
            let mut repeats = 0;
            loop {
                match client.list(ListPodResourcesRequest {}).await {
                    Err(status) if status.code() == Code::ResourceExhausted && repeats < REPEATS => {
                        repeats += 1
                    }
                    answer => return answer,
                }
                tokio::time::sleep(3 * BETWEEN).await;
            }
        };
        let answer = match tokio::time::timeout(DEADLINE, list).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => {
                *self.channel.lock().await = None;
                return Err(silent(format!("{}: {}", status.code(), status.message())));
            }
            Err(_) => {
                *self.channel.lock().await = None;
                return Err(silent(format!("nothing within {DEADLINE:?}")));
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

    /// One entry for each device (and NUMA node): united.
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
