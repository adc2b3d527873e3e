//! The node's GPUs as the manager tells them, as far as slices and preparation need them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::Device;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use vcuda_manager_api::v1;
use vcuda_quota::pods::quantity;

use super::device::{Effect, MEMORY, device, name};
use crate::manager::Manager;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// The same, until the GPUs are known.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// Answers without a GPU that are not believed after a start: the driver may still be loading.
const BELIEVE: u32 = 3;

/// The GPUs: nothing, until the manager has told them for the first time.
pub type Gpus = watch::Receiver<Option<Arc<NodeGpus>>>;

/// The node's GPUs at a moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeGpus {
    devices: Vec<Device>,
    /// By the name of the device.
    known: BTreeMap<String, Known>,
    /// Whether the manager has told them just now; not while it does not answer.
    pub is_current: bool,
    /// The reason why there are none, or not all, or why the manager does not answer.
    pub problem: Option<String>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq)]
struct Known {
    uuid: String,
    minor: Option<u32>,
    /// The reason why it is ill, if it is.
    illness: Option<String>,
}

impl Known {
    fn of(gpu: &v1::Gpu) -> Self {
        Self {
            uuid: gpu.uuid.clone(),
            minor: gpu.minor_number,
            illness: (!gpu.healthy).then(|| gpu.health_reason.clone()),
        }
    }
}

impl NodeGpus {
    /// The GPUs of the manager's answer. Ill ones have a taint with this `effect`.
    #[must_use]
    pub fn of(answer: &v1::ListGpusResponse, effect: Effect) -> Self {
        let known = |gpu: &v1::Gpu| (name(&gpu.uuid), Known::of(gpu));
        Self {
            devices: answer.gpus.iter().filter_map(|gpu| device(gpu, effect)).collect(),
            known: answer.gpus.iter().map(known).collect(),
            is_current: true,
            problem: (!answer.problem.is_empty()).then(|| answer.problem.clone()),
        }
    }

    /// Their devices.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// UUID of the GPU that is this device.
    #[must_use]
    pub fn uuid(&self, device: &str) -> Option<&str> {
        self.known.get(device).map(|known| known.uuid.as_str())
    }

    /// Memory of this device, as its slice has it (bytes).
    #[must_use]
    pub fn memory_bytes(&self, device: &str) -> Option<u64> {
        let device = self.devices.iter().find(|known| known.name == device)?;
        let memory = device.capacity.as_ref()?.get(MEMORY)?;
        quantity::parse(&memory.value.0).ok()
    }

    /// The device of each GPU, with the reason why it is ill if it is.
    pub fn health(&self) -> impl Iterator<Item = (&String, Option<&str>)> {
        self.known
            .iter()
            .map(|(device, known)| (device, known.illness.as_deref()))
    }

    /// Minor numbers of the device nodes, by UUID.
    pub fn minors(&self) -> impl Iterator<Item = (String, Option<u32>)> {
        let minor = |known: &Known| (known.uuid.clone(), known.minor);
        self.known.values().map(minor)
    }
}

/// Asks the manager until the task is dropped. Ill GPUs have a taint with this `effect`.
pub async fn follow(manager: Arc<Manager>, gpus: watch::Sender<Option<Arc<NodeGpus>>>, effect: Effect) {
    let mut empty = 0;
    loop {
        match manager.gpus().await {
            Ok(answer) if answer.gpus.is_empty() && empty < BELIEVE => empty += 1,
            Ok(answer) => publish(&gpus, NodeGpus::of(&answer, effect)),
            // The GPUs do not go because the manager does: it is restarted, and pods run on.
            Err(error) => {
                let known = gpus.borrow().clone();
                if let Some(known) = known {
                    let problem = Some(error.to_string());
                    publish(
                        &gpus,
                        NodeGpus {
                            problem,
                            is_current: false,
                            ..NodeGpus::clone(&known)
                        },
                    );
                }
            }
        }
        let is_known = gpus.borrow().is_some();
        sleep(if is_known { LOOK } else { FIRST_LOOK }).await;
    }
}

fn publish(gpus: &watch::Sender<Option<Arc<NodeGpus>>>, now: NodeGpus) {
    gpus.send_if_modified(|known| {
        if known.as_deref() == Some(&now) {
            return false;
        }
        match &now.problem {
            Some(problem) => warn!("{problem}"),
            None => info!(gpus = now.devices.len(), "the node's GPUs"),
        }
        *known = Some(Arc::new(now));
        true
    });
}
