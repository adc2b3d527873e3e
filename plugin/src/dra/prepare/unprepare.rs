//! The end of a claim: its files and grants go, unless a process uses them.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::info;

use super::{PrepareError, Preparer, check_uid, key_prefix};
use crate::cdi::ClaimRecord;

/// Longest time in which the manager notices that a container's processes have ended: it looks once a second.
const USE_ENDS: Duration = Duration::from_secs(2);

impl Preparer {
    /// Removes a claim's files and releases its grants. A claim that is not prepared counts as unprepared.
    pub(crate) async fn unprepare(&self, uid: &str) -> Result<(), PrepareError> {
        check_uid(uid)?;
        let _lock = self.lock.lock().await;
        let prefix = key_prefix(uid);
        let mut grants = self.shared.manager.list().await?;
        grants.retain(|grant| grant.key.starts_with(&prefix));
        // Kubelet before 1.37 also asks at the end of a pod whose own claim failed, while another pod uses the claim
        // (kubernetes/kubernetes#140212). That one keeps its files, with which its containers start again.
        for grant in &grants {
            let ended = timeout(USE_ENDS, self.wait_for_use_to_end(&grant.id)).await;
            ended.unwrap_or_else(|_| Err(PrepareError::Used(grant.id.clone())))?;
        }
        // The files go first, so that no container starts with a grant that is being released.
        self.shared.store.remove::<ClaimRecord>(uid)?;
        self.changed.notify_one();
        for grant in grants {
            self.shared.manager.release(&grant.id).await?;
            info!(uid, grant = grant.id, "undone");
        }
        // Last: if a process began meanwhile, the manager refuses, and the files are written again.
        self.known.lock().remove(uid);
        Ok(())
    }

    async fn wait_for_use_to_end(&self, id: &str) -> Result<(), PrepareError> {
        while self.shared.manager.is_used(id).await? {
            sleep(USE_ENDS / 10).await;
        }
        Ok(())
    }
}
