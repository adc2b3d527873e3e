//! The driver's locks of its node. It waits for the end of another driver or plugin, and of all shares of mode `plugin`.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use nix::fcntl::Flock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use super::prepare::PrepareError;
use super::shared::Shared;
use crate::cdi::SlotRecord;
use crate::ids::Slot;
use crate::mode::{LockState, Mode};
use crate::register::Directories;

/// Label of a node with its mode.
pub(crate) const LABEL: &str = "vcuda.io/mode";
/// Interval of checks for ended pods of mode `plugin`.
const ENDED_PODS_INTERVAL: Duration = Duration::from_secs(10);
/// Longest wait for the node's label. Without an answer the label counts as missing.
const DEADLINE: Duration = Duration::from_secs(2);

/// Waits for the locks of the node.
pub(crate) struct NodeLock {
    pub(crate) shared: Arc<Shared>,
    /// Kubelet's directories, with the locks.
    pub(crate) directories: Directories,
}

impl NodeLock {
    /// Waits until the driver has the locks, and keeps `state` up to date.
    pub(crate) async fn acquire(&self, state: &watch::Sender<LockState>) -> [Flock<File>; 2] {
        let checked = Mutex::new(Instant::now());
        let refusal = || async {
            if let Some(why) = self.label_refusal().await {
                return Some(why);
            }
            let why = Mode::Dra.refusal(&self.shared.store, &self.shared.manager).await?;
            if checked.lock().elapsed() >= ENDED_PODS_INTERVAL {
                *checked.lock() = Instant::now();
                // A plugin that is at work holds the locks, and releases its grants itself.
                if let Ok(_locks) = Mode::Dra.lock_node(&self.directories)
                    && let Err(error) = self.release_ended_pods().await
                {
                    debug!("grants of mode plugin: {error}");
                }
            }
            Some(why)
        };
        Mode::Dra.wait_for_node(&self.directories, refusal, state).await
    }

    /// The reason against this mode by the node's label; `None` if there is none.
    async fn label_refusal(&self) -> Option<String> {
        let nodes: Api<Node> = Api::all(self.shared.client.clone());
        let found = timeout(DEADLINE, nodes.get_metadata_opt(&self.shared.node)).await;
        let node = found.ok()?.ok()??;
        let label = node.metadata.labels?.remove(LABEL)?;
        (label != Mode::Dra.name())
            .then(|| format!("the node's label {LABEL} is \"{label}\", and this is the driver of mode dra"))
    }

    /// Releases the plugin's grants of pods that are gone: after a change of the node's label, no plugin is left to do so. The
    /// manager keeps a grant with living processes.
    async fn release_ended_pods(&self) -> Result<(), PrepareError> {
        for grant in self.shared.manager.list().await? {
            let holder = match (&grant.holder, Mode::from_grant(&grant)) {
                (Some(holder), Some(Mode::Plugin)) if !holder.pod.is_empty() => holder,
                _ => continue,
            };
            let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), &holder.namespace);
            let found = pods.get_opt(&holder.pod).await?;
            let is_same_pod =
                |pod: Pod| holder.pod_uid.is_empty() || pod.metadata.uid.as_ref() == Some(&holder.pod_uid);
            if found.is_some_and(is_same_pod) {
                continue;
            }
            // The file goes first, so that no container starts with a grant that is being released.
            if let Some(slot) = Slot::named(&grant.key) {
                self.shared.store.remove::<SlotRecord>(slot.as_str())?;
            }
            self.shared.manager.release(&grant.id).await?;
            info!(grant = grant.id, pod = holder.pod, "its pod of mode plugin is gone");
        }
        Ok(())
    }
}
