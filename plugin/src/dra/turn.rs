//! The driver's turn on its node: after the end of another driver or plugin, and while nothing of mode `plugin` lives there.

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
use crate::cdi::Store;
use crate::ids::Slot;
use crate::manager::Manager;
use crate::mode::Mode;
use crate::register::Directories;

/// Label of a node that names its mode.
pub const LABEL: &str = "vcuda.io/mode";
/// Between two looks at pods that have ended.
const LOOK_ENDED: Duration = Duration::from_secs(10);
/// The longest wait for the node's label: without an answer none is known.
const DEADLINE: Duration = Duration::from_secs(2);

/// Whether this driver is at work; if not, what is in the way, unless it is the daemon before it.
pub(crate) type Turn = Result<(), Option<String>>;

/// Waits for the turn.
pub(crate) struct Waiter {
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

impl Waiter {
    /// Waits until it has come.
    pub(crate) async fn wait(&self, turn: &watch::Sender<Turn>) -> [Flock<File>; 2] {
        let ended = Mutex::new(Instant::now());
        let refusal = || async {
            if let Some(why) = self.label().await {
                return Some(why);
            }
            let why = Mode::Dra.refusal(&self.store, &self.manager).await?;
            if ended.lock().elapsed() >= LOOK_ENDED {
                *ended.lock() = Instant::now();
                // A plugin that is at work does so itself, and better.
                if let Ok(_locks) = Mode::Dra.take(&self.directories)
                    && let Err(error) = self.end().await
                {
                    debug!("grants of mode plugin: {error}");
                }
            }
            Some(why)
        };
        let locks = Mode::Dra.turn(&self.directories, refusal, |why| tell(turn, why));
        let locks = locks.await;
        turn.send_modify(|turn| *turn = Ok(()));
        locks
    }

    /// What the node's label says against this mode.
    async fn label(&self) -> Option<String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = timeout(DEADLINE, nodes.get_metadata_opt(&self.node)).await;
        let node = found.ok()?.ok()??;
        let label = node.metadata.labels?.remove(LABEL)?;
        (label != Mode::Dra.name())
            .then(|| format!("the node's label {LABEL} is \"{label}\", and this is the driver of mode dra"))
    }

    /// Ends grants of pods that are gone: where the node's label was changed, no plugin is left to do so. One whose processes
    /// still run is kept by the manager.
    async fn end(&self) -> Result<(), PrepareError> {
        for grant in self.manager.list().await? {
            let holder = match (&grant.holder, Mode::of(&grant)) {
                (Some(holder), Some(Mode::Plugin)) if !holder.pod.is_empty() => holder,
                _ => continue,
            };
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &holder.namespace);
            let found = pods.get_opt(&holder.pod).await?;
            let is_it =
                |pod: Pod| holder.pod_uid.is_empty() || pod.metadata.uid.as_ref() == Some(&holder.pod_uid);
            if found.is_some_and(is_it) {
                continue;
            }
            // The file goes first: no container may start with a grant that is being released.
            if let Some(slot) = Slot::named(&grant.key) {
                self.store.remove(&slot)?;
            }
            self.manager.release(&grant.id).await?;
            info!(
                grant = grant.id,
                pod = holder.pod,
                "its pod of mode plugin is gone"
            );
        }
        Ok(())
    }
}

/// Notes what is in the way; logs it once.
fn tell(turn: &watch::Sender<Turn>, waits: Option<String>) {
    turn.send_if_modified(|known| {
        let is_new = *known != Err(waits.clone());
        if let Some(why) = waits.as_ref().filter(|_| is_new) {
            warn!("{why}");
        }
        *known = Err(waits);
        is_new
    });
}
