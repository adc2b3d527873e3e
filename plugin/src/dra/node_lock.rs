//! The driver's locks of its node. It waits for the end of another driver or plugin, and of all shares of mode `plugin`.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client};
use nix::fcntl::Flock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::prepare::PrepareError;
use crate::cdi::{SlotRecord, Store};
use crate::ids::Slot;
use crate::manager::Manager;
use crate::mode::Mode;
use crate::register::Directories;

/// Label of a node with its mode.
pub const LABEL: &str = "vcuda.io/mode";
/// Interval of checks for ended pods of mode `plugin`.
const ENDED_PODS_INTERVAL: Duration = Duration::from_secs(10);
/// Longest wait for the node's label. Without an answer the label counts as missing.
const DEADLINE: Duration = Duration::from_secs(2);

/// Whether the driver has the locks. If not, the reason; `None` while another daemon is at work.
pub(crate) type LockState = Result<(), Option<String>>;

/// Waits for the locks of the node.
pub(crate) struct NodeLock {
    /// The API server's client.
    pub client: Client,
    /// The manager.
    pub manager: Arc<Manager>,
    /// The files of both modes.
    pub store: Store,
    /// Kubelet's directories, with the locks.
    pub directories: Directories,
    /// Name of the node.
    pub node: String,
}

impl NodeLock {
    /// Waits until the driver has the locks, and keeps `state` up to date.
    pub(crate) async fn acquire(&self, state: &watch::Sender<LockState>) -> [Flock<File>; 2] {
        let checked = Mutex::new(Instant::now());
        let refusal = || async {
            if let Some(why) = self.label_refusal().await {
                return Some(why);
            }
            let why = Mode::Dra.refusal(&self.store, &self.manager).await?;
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
        let locks = Mode::Dra.wait_for_node(&self.directories, refusal, |why| set_waiting(state, why));
        let locks = locks.await;
        state.send_modify(|state| *state = Ok(()));
        locks
    }

    /// The reason against this mode by the node's label; `None` if there is none.
    async fn label_refusal(&self) -> Option<String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = timeout(DEADLINE, nodes.get_metadata_opt(&self.node)).await;
        let node = found.ok()?.ok()??;
        let label = node.metadata.labels?.remove(LABEL)?;
        (label != Mode::Dra.name())
            .then(|| format!("the node's label {LABEL} is \"{label}\", and this is the driver of mode dra"))
    }

    /// Releases the plugin's grants of pods that are gone: after a change of the node's label, no plugin is left to do so. The
    /// manager keeps a grant with living processes.
    async fn release_ended_pods(&self) -> Result<(), PrepareError> {
        for grant in self.manager.list().await? {
            let holder = match (&grant.holder, Mode::from_grant(&grant)) {
                (Some(holder), Some(Mode::Plugin)) if !holder.pod.is_empty() => holder,
                _ => continue,
            };
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &holder.namespace);
            let found = pods.get_opt(&holder.pod).await?;
            let is_same_pod =
                |pod: Pod| holder.pod_uid.is_empty() || pod.metadata.uid.as_ref() == Some(&holder.pod_uid);
            if found.is_some_and(is_same_pod) {
                continue;
            }
            // The file goes first, so that no container starts with a grant that is being released.
            if let Some(slot) = Slot::named(&grant.key) {
                self.store.remove::<SlotRecord>(slot.as_str())?;
            }
            self.manager.release(&grant.id).await?;
            info!(grant = grant.id, pod = holder.pod, "its pod of mode plugin is gone");
        }
        Ok(())
    }
}

/// Sets the reason for the wait, and logs it once.
fn set_waiting(state: &watch::Sender<LockState>, waits: Option<String>) {
    state.send_if_modified(|known| {
        let is_new = *known != Err(waits.clone());
        if let Some(why) = waits.as_ref().filter(|_| is_new) {
            warn!("{why}");
        }
        *known = Err(waits);
        is_new
    });
}
