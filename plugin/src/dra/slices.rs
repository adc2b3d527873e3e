//! The node's ResourceSlices at the API server, kept as the GPUs are: kubelet deletes all of its node's slices when it starts.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::DRIVER;
use super::gpus::Gpus;
use super::metrics::Instruments;
use compare::is_same;

mod compare;

/// The most devices of a slice whose devices may have taints (Kubernetes, `resource.k8s.io/v1`).
const DEVICES_MAX: usize = 64;
/// Time without news after which the slices are looked at all the same.
const LOOK: Duration = Duration::from_secs(60);
/// Pause after a change, so that many changes at once are one.
const SETTLE: Duration = Duration::from_millis(100);
/// Pause after a failure.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest time for all of it.
const DEADLINE: Duration = Duration::from_secs(20);

/// The slices are not as they should be.
#[derive(Debug, Error)]
pub enum SliceError {
    /// The API server.
    #[error("ResourceSlices: {0}")]
    Api(#[from] kube::Error),
    /// It did not keep what makes shares of a GPU.
    #[error(
        "ResourceSlices: the API server drops allowMultipleAllocations, so that one claim would have a whole GPU: turn the \
         feature gate DRAConsumableCapacity on in the API server, the scheduler and kubelet (it is from 1.36). The slices are \
         withdrawn"
    )]
    Gate,
    /// It took too long.
    #[error("ResourceSlices: the API server has not answered within {DEADLINE:?}")]
    Late,
}

/// Publishes the slices of one node.
pub(crate) struct Publisher {
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    node: String,
    gpus: Gpus,
    instruments: Arc<Instruments>,
    /// What is wrong now.
    problem: watch::Sender<Option<String>>,
}

impl Publisher {
    /// One for `node`.
    #[must_use]
    pub(crate) fn new(client: &Client, node: String, gpus: Gpus, instruments: Arc<Instruments>) -> Self {
        Self {
            slices: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            node,
            gpus,
            instruments,
            problem: watch::Sender::new(Some("the ResourceSlices are not published yet".to_owned())),
        }
    }

    /// What is wrong with the slices now.
    #[must_use]
    pub(crate) fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.subscribe()
    }

    /// Keeps the slices until it is dropped.
    pub(crate) async fn run(mut self) {
        // No slice is better than an empty one: running pods' GPUs would be gone for the scheduler.
        if self.gpus.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let config = watcher::Config::default().fields(&self.selector());
        let mut changes = watcher(self.slices.clone(), config).default_backoff().boxed();
        loop {
            let kept = timeout(DEADLINE, self.keep())
                .await
                .unwrap_or(Err(SliceError::Late));
            let pause = self.tell(kept);
            tokio::select! {
                _ = self.gpus.changed() => {}
                // Our own writes come back too: then nothing is to be done.
                _ = changes.next() => {}
                () = sleep(pause) => {}
            }
            sleep(SETTLE).await;
        }
    }

    /// Notes how it went; returns the time until the next try.
    fn tell(&self, kept: Result<(), SliceError>) -> Duration {
        let problem = kept.err().map(|error| error.to_string());
        let pause = if problem.is_some() { AGAIN } else { LOOK };
        self.problem.send_if_modified(|known| {
            let is_new = *known != problem;
            if let Some(problem) = problem.as_ref().filter(|_| is_new) {
                warn!("{problem}");
            }
            *known = problem;
            is_new
        });
        pause
    }

    fn selector(&self) -> String {
        format!("spec.driver={DRIVER},spec.nodeName={}", self.node)
    }

    /// Writes the slices if they are not as they should be.
    async fn keep(&self) -> Result<(), SliceError> {
        let found = self
            .slices
            .list(&ListParams::default().fields(&self.selector()))
            .await?
            .items;
        let wanted = self.wanted();
        if is_same(&found, &wanted) {
            return Ok(());
        }
        let generation = found
            .iter()
            .map(|slice| slice.spec.pool.generation)
            .max()
            .unwrap_or(0)
            + 1;
        let owner = self.owner().await?;
        for (number, devices) in wanted.iter().enumerate() {
            let mut slice = self.slice(number, devices, (generation, wanted.len()), owner.clone());
            let name = slice.metadata.name.clone().unwrap_or_default();
            let existing = found
                .iter()
                .find(|slice| slice.metadata.name.as_ref() == Some(&name));
            let written = match existing {
                Some(existing) => {
                    slice.metadata.resource_version = existing.metadata.resource_version.clone();
                    self.slices.replace(&name, &PostParams::default(), &slice).await?
                }
                None => self.slices.create(&PostParams::default(), &slice).await?,
            };
            self.instruments.slice_written();
            if written
                .spec
                .devices
                .iter()
                .flatten()
                .any(|device| device.allow_multiple_allocations != Some(true))
            {
                self.withdraw().await?;
                return Err(SliceError::Gate);
            }
        }
        for slice in &found {
            let name = slice.metadata.name.clone().unwrap_or_default();
            if (0..wanted.len()).all(|number| self.name(number) != name) {
                self.delete(&name).await?;
            }
        }
        info!(slices = wanted.len(), generation, "the node's GPUs are published");
        Ok(())
    }

    async fn withdraw(&self) -> Result<(), SliceError> {
        for slice in self
            .slices
            .list(&ListParams::default().fields(&self.selector()))
            .await?
            .items
        {
            self.delete(&slice.metadata.name.unwrap_or_default()).await?;
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), SliceError> {
        match self.slices.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }

    /// The devices of each slice. A node without a GPU has one slice without devices, which is newer than one with some.
    fn wanted(&self) -> Vec<Vec<Device>> {
        let gpus = self.gpus.borrow().clone();
        let devices: Vec<Device> = gpus.iter().flat_map(|gpus| gpus.devices()).cloned().collect();
        match devices.is_empty() {
            true => vec![Vec::new()],
            false => devices.chunks(DEVICES_MAX).map(<[Device]>::to_vec).collect(),
        }
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{DRIVER}-{number}", self.node)
    }

    fn slice(
        &self,
        number: usize,
        devices: &[Device],
        (generation, count): (i64, usize),
        owner: Option<OwnerReference>,
    ) -> ResourceSlice {
        ResourceSlice {
            metadata: ObjectMeta {
                name: Some(self.name(number)),
                owner_references: owner.map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: ResourceSliceSpec {
                driver: DRIVER.to_owned(),
                node_name: Some(self.node.clone()),
                pool: ResourcePool {
                    name: self.node.clone(),
                    generation,
                    resource_slice_count: i64::try_from(count).unwrap_or(1),
                },
                devices: Some(devices.to_vec()).filter(|devices| !devices.is_empty()),
                ..ResourceSliceSpec::default()
            },
        }
    }

    /// The node, with which its slices go.
    async fn owner(&self) -> Result<Option<OwnerReference>, SliceError> {
        let node = self.nodes.get_opt(&self.node).await?;
        Ok(node.and_then(|node| {
            Some(OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: self.node.clone(),
                uid: node.metadata.uid?,
                ..OwnerReference::default()
            })
        }))
    }
}
