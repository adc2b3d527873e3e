//! The node's ResourceSlices at the API server, kept as the GPUs are: kubelet deletes all of its node's slices when it starts.

use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::gpus::Gpus;
use super::{DRIVER, quantity};

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
    /// What is wrong now.
    problem: watch::Sender<Option<String>>,
}

impl Publisher {
    /// One for `node`.
    #[must_use]
    pub(crate) fn new(client: &Client, node: String, gpus: Gpus) -> Self {
        Self {
            slices: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            node,
            gpus,
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

/// Whether the slices that were found are what is wanted, in whatever form the API server writes amounts.
fn is_same(found: &[ResourceSlice], wanted: &[Vec<Device>]) -> bool {
    let mut found: Vec<&ResourceSlice> = found.iter().collect();
    found.sort_by_key(|slice| slice.metadata.name.clone());
    let generation = found.first().map(|slice| slice.spec.pool.generation);
    let is_of_one = |slice: &&ResourceSlice| {
        let pool = &slice.spec.pool;
        Some(pool.generation) == generation && usize::try_from(pool.resource_slice_count) == Ok(wanted.len())
    };
    let plain = |devices: &[Device]| devices.iter().map(plain).collect::<Vec<_>>();
    let mut devices: Vec<Vec<Device>> = found
        .iter()
        .map(|slice| plain(slice.spec.devices.as_deref().unwrap_or_default()))
        .collect();
    let mut wanted_devices: Vec<Vec<Device>> = wanted.iter().map(|devices| plain(devices)).collect();
    // Names count slices: the tenth comes before the second.
    let by_first = |slice: &Vec<Device>| slice.first().map(|device| device.name.clone());
    devices.sort_by_key(by_first);
    wanted_devices.sort_by_key(by_first);
    found.len() == wanted.len() && found.iter().all(is_of_one) && devices == wanted_devices
}

/// A device with all amounts as plain numbers, and without the times that the API server adds.
fn plain(device: &Device) -> Device {
    let mut device = device.clone();
    let number = |quantity: &mut Quantity| {
        if let Ok(value) = quantity::parse(&quantity.0) {
            quantity.0 = value.to_string();
        }
    };
    for capacity in device.capacity.iter_mut().flat_map(|all| all.values_mut()) {
        number(&mut capacity.value);
        let Some(policy) = &mut capacity.request_policy else {
            continue;
        };
        policy.default.iter_mut().for_each(number);
        if let Some(range) = &mut policy.valid_range {
            number(&mut range.min);
            range.max.iter_mut().chain(&mut range.step).for_each(number);
        }
    }
    for taint in device.taints.iter_mut().flatten() {
        taint.time_added = None;
    }
    device
}

#[cfg(test)]
mod tests {
    use super::super::device::{device, tests::gpu};
    use super::*;

    fn slice(name: &str, devices: &[Device], (generation, count): (i64, i64)) -> ResourceSlice {
        ResourceSlice {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec: ResourceSliceSpec {
                pool: ResourcePool {
                    generation,
                    resource_slice_count: count,
                    ..ResourcePool::default()
                },
                devices: Some(devices.to_vec()),
                ..ResourceSliceSpec::default()
            },
        }
    }

    #[test]
    fn the_api_servers_form_of_amounts_is_no_change() {
        let wanted = device(&gpu(1)).unwrap();
        let mut found = wanted.clone();
        let memory = found.capacity.as_mut().unwrap().get_mut("memory").unwrap();
        memory.value.0 = "44Gi".to_owned();
        assert_ne!(found, wanted);
        assert!(is_same(
            &[slice("a", &[found.clone()], (3, 1))],
            &[vec![wanted.clone()]]
        ));
        let memory = found.capacity.as_mut().unwrap().get_mut("memory").unwrap();
        memory.value.0 = "43Gi".to_owned();
        assert!(!is_same(&[slice("a", &[found], (3, 1))], &[vec![wanted]]));
    }

    #[test]
    fn a_pool_is_whole_or_written_again() {
        let devices: Vec<Device> = (0..3).map(|number| device(&gpu(number)).unwrap()).collect();
        let wanted = [devices[..2].to_vec(), devices[2..].to_vec()];
        let first = slice("a", &wanted[0], (3, 2));
        assert!(is_same(&[slice("b", &wanted[1], (3, 2)), first.clone()], &wanted));
        for broken in [
            vec![first.clone()],
            vec![first.clone(), slice("b", &wanted[1], (2, 2))],
            vec![first.clone(), slice("b", &wanted[1], (3, 3))],
            vec![first, slice("b", &[], (3, 2))],
        ] {
            assert!(!is_same(&broken, &wanted));
        }
    }
}
