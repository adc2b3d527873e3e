//! Applies annotations that change while their pod runs: the grant is resized if the node has the amounts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::cluster::Cluster;
use crate::event_writer::EventWriter;

/// Changes within this time are applied together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Pause before a refused change is tried again: other tenants may have ended by then.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Reason of the events about annotations that were not applied.
const REASON: &str = "VcudaAnnotationRefused";

/// An annotation that was not applied to its grant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) why: String,
    /// The object that has the annotations.
    pub(crate) regarding: ObjectReference,
}

#[tonic::async_trait]
pub(crate) trait Reconcile: Send + Sync {
    /// Applies the present annotations. Returns the refusals by grant.
    async fn reconcile(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, String>;

    /// Longest time between two calls of [`Reconcile::reconcile`].
    fn resync_interval(&self) -> Duration {
        RETRY_INTERVAL
    }
}

/// Reconciles until the task is dropped. Each refusal is logged, and written to `events`, once.
pub(crate) async fn run(
    mut cluster: Cluster,
    reconciler: Arc<dyn Reconcile>,
    mut events: Option<EventWriter>,
) {
    let mut logged: BTreeMap<String, String> = BTreeMap::new();
    loop {
        // After the interval it reconciles in any case, so that a timeout is no error.
        let _ = timeout(reconciler.resync_interval(), cluster.changed()).await;
        sleep(DEBOUNCE).await;
        let refusals = match reconciler.reconcile(&cluster).await {
            Ok(refusals) => refusals,
            Err(error) => {
                if logged.insert(String::new(), error.clone()) != Some(error.clone()) {
                    warn!("annotations are not followed: {error}");
                }
                continue;
            }
        };
        for (grant, refusal) in &refusals {
            if logged.get(grant) == Some(&refusal.why) {
                continue;
            }
            warn!(grant, "its annotations are not followed: {}", refusal.why);
            if let Some(events) = &mut events {
                events.write(&refusal.regarding, REASON, refusal.why.clone()).await;
            }
        }
        let why = |(grant, refusal): (String, Refusal)| (grant, refusal.why);
        logged = refusals.into_iter().map(why).collect();
    }
}
