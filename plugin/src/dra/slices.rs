//! Publication of the node's GPUs as ResourceSlices. They are also checked without a change of the GPUs, as kubelet deletes all
//! slices of its node when it starts.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::DRIVER;
use super::shared::Shared;
use compare::is_desired;

mod compare;

/// Most devices of a slice whose devices may have taints (Kubernetes, `resource.k8s.io/v1`).
const DEVICES_MAX: usize = 64;
/// Time without a change after which the slices are checked.
const RESYNC_INTERVAL: Duration = Duration::from_secs(60);
/// Changes within this time are handled together.
const DEBOUNCE: Duration = Duration::from_millis(100);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Error)]
pub(crate) enum SliceError {
    #[error("ResourceSlices: {0}")]
    Api(#[from] kube::Error),
    #[error(
        "ResourceSlices: the API server drops allowMultipleAllocations, so that one claim would have a whole GPU: turn the \
         feature gate DRAConsumableCapacity on in the API server, the scheduler and kubelet (it is from 1.36). The slices are \
         withdrawn"
    )]
    Gate,
    #[error("ResourceSlices: the API server has not answered within {DEADLINE:?}")]
    Late,
}

pub(crate) struct Publisher {
    slices: Api<ResourceSlice>,
    nodes: Api<Node>,
    shared: Arc<Shared>,
    problem: watch::Sender<Option<String>>,
}

impl Publisher {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            slices: Api::all(shared.client.clone()),
            nodes: Api::all(shared.client.clone()),
            shared,
            problem: watch::Sender::new(Some("the ResourceSlices are not published yet".to_owned())),
        }
    }

    /// Receiver of the present problem; `None` while the slices are published.
    pub(crate) fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.subscribe()
    }

    pub(crate) async fn run(self) {
        // No slice is better than one without devices, with which the scheduler would lose the GPUs of running pods.
        let mut gpus = self.shared.gpus.clone();
        if gpus.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let config = watcher::Config::default().fields(&self.selector());
        let mut changes = watcher(self.slices.clone(), config).default_backoff().boxed();
        loop {
            let result = timeout(DEADLINE, self.reconcile()).await.unwrap_or(Err(SliceError::Late));
            let pause = self.note_result(result);
            tokio::select! {
                _ = gpus.changed() => {}
                // The driver's own writes come back here; then the slices are as desired.
                _ = changes.next() => {}
                () = sleep(pause) => {}
            }
            sleep(DEBOUNCE).await;
        }
    }

    /// Updates the problem by the result. Returns the pause until the next check.
    fn note_result(&self, result: Result<(), SliceError>) -> Duration {
        let problem = result.err().map(|error| error.to_string());
        let pause = if problem.is_some() { RETRY_INTERVAL } else { RESYNC_INTERVAL };
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
        format!("spec.driver={DRIVER},spec.nodeName={}", self.shared.node)
    }

    /// Writes the slices if they differ from the desired ones.
    async fn reconcile(&self) -> Result<(), SliceError> {
        let found = self.slices.list(&ListParams::default().fields(&self.selector())).await?.items;
        let desired = self.desired();
        if is_desired(&found, &desired) {
            return Ok(());
        }
        let generation = found.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(0) + 1;
        let owner = self.owner().await?;
        for (number, devices) in desired.iter().enumerate() {
            let mut slice = self.slice(number, devices, (generation, desired.len()), owner.clone());
            let name = slice.metadata.name.clone().unwrap_or_default();
            let existing = found.iter().find(|slice| slice.metadata.name.as_ref() == Some(&name));
            let written = match existing {
                Some(existing) => {
                    slice.metadata.resource_version = existing.metadata.resource_version.clone();
                    self.slices.replace(&name, &PostParams::default(), &slice).await?
                }
                None => self.slices.create(&PostParams::default(), &slice).await?,
            };
            self.shared.instruments.slice_written();
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
            if (0..desired.len()).all(|number| self.name(number) != name) {
                self.delete(&name).await?;
            }
        }
        info!(slices = desired.len(), generation, "the node's GPUs are published");
        Ok(())
    }

    async fn withdraw(&self) -> Result<(), SliceError> {
        for slice in self.slices.list(&ListParams::default().fields(&self.selector())).await?.items {
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

    /// The desired devices of each slice. A node without a GPU has an empty slice, which supersedes older ones with devices.
    fn desired(&self) -> Vec<Vec<Device>> {
        let gpus = self.shared.gpus.borrow().clone();
        let devices: Vec<Device> = gpus.iter().flat_map(|gpus| gpus.devices()).cloned().collect();
        match devices.is_empty() {
            true => vec![Vec::new()],
            false => devices.chunks(DEVICES_MAX).map(<[Device]>::to_vec).collect(),
        }
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{DRIVER}-{number}", self.shared.node)
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
                node_name: Some(self.shared.node.clone()),
                pool: ResourcePool {
                    name: self.shared.node.clone(),
                    generation,
                    resource_slice_count: i64::try_from(count).unwrap_or(1),
                },
                devices: Some(devices.to_vec()).filter(|devices| !devices.is_empty()),
                ..ResourceSliceSpec::default()
            },
        }
    }

    /// Owner reference to the node, so that its slices are deleted with it.
    async fn owner(&self) -> Result<Option<OwnerReference>, SliceError> {
        let node = self.nodes.get_opt(&self.shared.node).await?;
        Ok(node.and_then(|node| {
            Some(OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: self.shared.node.clone(),
                uid: node.metadata.uid?,
                ..OwnerReference::default()
            })
        }))
    }
}
