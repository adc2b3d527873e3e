//! Annotations that change while their pod runs: the grant follows, where the node can hold it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::cluster::Cluster;
use crate::event_writer::EventWriter;

/// Changes that come together are followed together.
const SETTLE: Duration = Duration::from_millis(50);
/// Pause before a refused change is tried again: the amounts may have become free.
pub(crate) const AGAIN: Duration = Duration::from_secs(10);
/// Reason of the events about annotations that are not followed.
const REASON: &str = "VcudaAnnotationRefused";

/// The reason why a grant does not follow its annotations.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The reason, for the log and for an event.
    pub why: String,
    /// The object whose annotations they are.
    pub regarding: ObjectReference,
}

/// Lets grants follow annotations.
#[tonic::async_trait]
pub trait Follow: Send + Sync {
    /// Applies the present annotations. Returns why some do not follow, by grant.
    ///
    /// # Errors
    /// Nothing can be followed now.
    async fn follow(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, String>;

    /// The longest time between two looks.
    fn pace(&self) -> Duration {
        AGAIN
    }
}

/// Follows until it is dropped. Refusals are logged, and written as `events`, once.
pub async fn run(mut cluster: Cluster, followed: Arc<dyn Follow>, mut events: Option<EventWriter>) {
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    loop {
        // A look on time is as good as one for a change.
        let _ = timeout(followed.pace(), cluster.changed()).await;
        sleep(SETTLE).await;
        let refusals = match followed.follow(&cluster).await {
            Ok(refusals) => refusals,
            Err(error) => {
                if told.insert(String::new(), error.clone()) != Some(error.clone()) {
                    warn!("annotations are not followed: {error}");
                }
                continue;
            }
        };
        for (grant, refusal) in &refusals {
            if told.get(grant) == Some(&refusal.why) {
                continue;
            }
            warn!(grant, "its annotations are not followed: {}", refusal.why);
            if let Some(events) = &mut events {
                events
                    .write(&refusal.regarding, REASON, refusal.why.clone())
                    .await;
            }
        }
        let why = |(grant, refusal): (String, Refusal)| (grant, refusal.why);
        told = refusals.into_iter().map(why).collect();
    }
}
