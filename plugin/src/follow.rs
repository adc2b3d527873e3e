//! Annotations that change while their pod runs: the grant follows, where the node can hold it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::bind::Binder;
use crate::cluster::Cluster;

/// Changes that come together are followed together.
const SETTLE: Duration = Duration::from_millis(50);
/// Pause before a refused change is tried again: the amounts may have become free.
const AGAIN: Duration = Duration::from_secs(10);

/// Follows until it is dropped.
pub async fn run(mut cluster: Cluster, binder: Arc<Binder>) {
    // The text that was reported for each grant, so that it is reported once.
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    loop {
        // A look on time is as good as one for a change.
        let _ = timeout(AGAIN, cluster.changed()).await;
        sleep(SETTLE).await;
        let refusals = match binder.follow(&cluster).await {
            Ok(refusals) => refusals,
            Err(error) => BTreeMap::from([(String::new(), error.to_string())]),
        };
        for (grant, why) in refusals
            .iter()
            .filter(|(grant, why)| told.get(*grant) != Some(*why))
        {
            warn!(grant, "its annotations are not followed: {why}");
        }
        told = refusals;
    }
}
