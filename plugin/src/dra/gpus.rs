//! The node's GPUs for slices and the preparation of claims, polled from the manager.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::Device;
use tokio::sync::watch;
use tracing::{info, warn};
use vcuda_manager_api::v1;
use vcuda_quota::pods::quantity;

use super::device::{Effect, MEMORY, device_name, devices, is_overcommitted, suspendable_device_name};
use crate::manager::{self, Manager, poll_gpus};

/// Receiver of the node's GPUs; `None` until the manager has answered once.
pub(crate) type Gpus = watch::Receiver<Option<Arc<NodeGpus>>>;

/// The node's GPUs at a moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NodeGpus {
    devices: Vec<Device>,
    /// GPUs by the name of the device.
    known: BTreeMap<String, KnownGpu>,
    /// Whether the manager's last call was answered.
    pub(crate) is_current: bool,
    /// The reason why GPUs are missing, or why the manager does not answer.
    pub(crate) problem: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct KnownGpu {
    uuid: String,
    minor: Option<u32>,
    /// Whether suspendable tenants take turns on the GPU.
    is_overcommitted: bool,
    /// The reason why the GPU is unhealthy; `None` if it is healthy.
    unhealthy_reason: Option<String>,
}

impl KnownGpu {
    fn from_gpu(gpu: &v1::Gpu) -> Self {
        Self {
            uuid: gpu.uuid.clone(),
            minor: gpu.minor_number,
            is_overcommitted: is_overcommitted(gpu),
            unhealthy_reason: (!gpu.healthy).then(|| gpu.health_reason.clone()),
        }
    }
}

impl NodeGpus {
    /// The GPUs of the manager's answer. `effect` is that of the taint of unhealthy GPUs.
    pub(crate) fn from_response(answer: &v1::ListGpusResponse, effect: Effect) -> Self {
        let known = |gpu: &v1::Gpu| {
            let suspendable = is_overcommitted(gpu).then(|| suspendable_device_name(&gpu.uuid));
            let names = [device_name(&gpu.uuid)].into_iter().chain(suspendable);
            names.map(|device| (device, KnownGpu::from_gpu(gpu))).collect::<Vec<_>>()
        };
        Self {
            devices: answer.gpus.iter().flat_map(|gpu| devices(gpu, effect)).collect(),
            known: answer.gpus.iter().flat_map(known).collect(),
            is_current: true,
            problem: is_outage(answer).then(|| answer.problem.clone()),
        }
    }

    /// Devices of the ResourceSlices.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// UUID of this device's GPU; `None` if there is no such device.
    pub(crate) fn uuid(&self, device: &str) -> Option<&str> {
        self.known.get(device).map(|known| known.uuid.as_str())
    }

    /// Whether suspendable tenants take turns on this device's GPU.
    pub(crate) fn is_overcommitted(&self, device: &str) -> bool {
        self.known.get(device).is_some_and(|known| known.is_overcommitted)
    }

    /// Memory of this device in its ResourceSlice (bytes).
    pub(crate) fn memory_bytes(&self, device: &str) -> Option<u64> {
        let device = self.devices.iter().find(|known| known.name == device)?;
        let memory = device.capacity.as_ref()?.get(MEMORY)?;
        quantity::parse(&memory.value.0).ok()
    }

    /// Name of each GPU's device, and the reason why the GPU is unhealthy if it is.
    pub(crate) fn health(&self) -> impl Iterator<Item = (&String, Option<&str>)> {
        self.known.iter().map(|(device, known)| (device, known.unhealthy_reason.as_deref()))
    }

    /// Minor numbers of the device nodes, by UUID.
    pub(crate) fn minors(&self) -> impl Iterator<Item = (String, Option<u32>)> {
        let minor = |known: &KnownGpu| (known.uuid.clone(), known.minor);
        self.known.values().map(minor)
    }
}

/// Whether no GPU can be given out, for the reason that the manager names. While one can be, the driver is ready, so that a
/// rollout goes on beside an ill GPU.
fn is_outage(answer: &v1::ListGpusResponse) -> bool {
    !answer.problem.is_empty() && answer.gpus.iter().all(|gpu| !gpu.healthy)
}

impl manager::NodeGpus for NodeGpus {
    fn with_problem(&self, problem: String) -> Self {
        Self { problem: Some(problem), is_current: false, ..self.clone() }
    }
}

/// Asks the manager until the task is dropped. Ill GPUs have a taint with this `effect`.
pub(crate) async fn poll_manager(
    manager: Arc<Manager>,
    gpus: watch::Sender<Option<Arc<NodeGpus>>>,
    effect: Effect,
) {
    let read = |answer, _: Option<&NodeGpus>| NodeGpus::from_response(&answer, effect);
    let note = |now: &NodeGpus| match &now.problem {
        Some(problem) => warn!("{problem}"),
        None => info!(gpus = now.devices.len(), "the node's GPUs"),
    };
    poll_gpus(&manager, &gpus, read, note).await;
}
