//! The node's GPUs as the manager tells them, as far as slices and preparation need them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::Device;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};
use vcuda_manager_api::v1;

use super::device::{device, name};
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
    /// UUID and minor number by the name of the device.
    known: BTreeMap<String, (String, Option<u32>)>,
    /// The reason why there are none, or not all, or why the manager does not answer.
    pub problem: Option<String>,
}

impl NodeGpus {
    /// The GPUs of the manager's answer.
    #[must_use]
    pub fn of(answer: &v1::ListGpusResponse) -> Self {
        let known = |gpu: &v1::Gpu| (name(&gpu.uuid), (gpu.uuid.clone(), gpu.minor_number));
        Self {
            devices: answer.gpus.iter().filter_map(device).collect(),
            known: answer.gpus.iter().map(known).collect(),
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
        self.known.get(device).map(|(uuid, _)| uuid.as_str())
    }

    /// Minor numbers of the device nodes, by UUID.
    pub fn minors(&self) -> impl Iterator<Item = (String, Option<u32>)> {
        self.known.values().cloned()
    }
}

/// Asks the manager until the task is dropped.
pub async fn follow(manager: Arc<Manager>, gpus: watch::Sender<Option<Arc<NodeGpus>>>) {
    let mut empty = 0;
    loop {
        match manager.gpus().await {
            Ok(answer) if answer.gpus.is_empty() && empty < BELIEVE => empty += 1,
            Ok(answer) => publish(&gpus, NodeGpus::of(&answer)),
            // The GPUs do not go because the manager does: it is restarted, and pods run on.
            Err(error) => {
                let known = gpus.borrow().clone();
                if let Some(known) = known {
                    let problem = Some(error.to_string());
                    publish(
                        &gpus,
                        NodeGpus {
                            problem,
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
