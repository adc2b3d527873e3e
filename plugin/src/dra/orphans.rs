//! What kubelet does not ask for: files of claims that were lost are written again, and claims that are gone are undone, as after the
//! loss of kubelet's state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::prepare::{PrepareError, Preparer, key_prefix};
use super::shared::Shared;
use crate::cdi::ClaimRecord;
use crate::mode::CLAIM_KEYS;

/// Interval of checks whether files were lost.
const RESTORE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of those between two checks for claims that are gone, which ask the API server.
const RESTORES: u32 = 6;

/// Keeps the files of prepared claims, and removes files and grants of claims that are gone.
pub(crate) struct OrphanCleaner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) preparer: Arc<Preparer>,
}

impl OrphanCleaner {
    pub(crate) async fn run(self) {
        let mut missing = BTreeSet::new();
        let mut said = String::new();
        loop {
            for _ in 0..RESTORES {
                sleep(RESTORE_INTERVAL).await;
                let restored = self.preparer.restore_files().await;
                let problem = restored.err().map_or_else(String::new, |error| error.to_string());
                if problem != said && !problem.is_empty() {
                    warn!("files of claims were lost and cannot be written again: {problem}");
                }
                said = problem;
            }
            if let Err(error) = self.unprepare_gone_claims().await {
                debug!("claims that are gone: {error}");
            }
            match self.release_orphaned_grants(&missing).await {
                Ok(now_missing) => missing = now_missing,
                Err(error) => debug!("grants without a claim: {error}"),
            }
        }
    }

    /// Unprepares claims that have files and are no longer at the API server.
    async fn unprepare_gone_claims(&self) -> Result<(), PrepareError> {
        for record in self.shared.store.records::<ClaimRecord>()? {
            let api: Api<ResourceClaim> = Api::namespaced(self.shared.client.clone(), &record.namespace);
            let found = api.get_opt(&record.name).await?;
            let is_there = found.is_some_and(|claim| claim.metadata.uid.as_ref() == Some(&record.uid));
            if !is_there {
                info!(claim = format!("{}/{}", record.namespace, record.name), "is gone: it is undone");
                self.preparer.unprepare(&record.uid).await?;
            }
        }
        Ok(())
    }

    /// Releases the grants whose claims had no record in this check and in the one before, and removes what files they have: a disk
    /// may have had room for a specification and not for its record. Returns the IDs of the grants whose claims had none in this check.
    async fn release_orphaned_grants(
        &self,
        missing: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, PrepareError> {
        let of_records = self.shared.store.records::<ClaimRecord>()?.into_iter().map(|record| record.uid);
        let kept: BTreeSet<String> = of_records.chain(self.preparer.known_uids()).collect();
        let prefixes: Vec<String> = kept.iter().map(|uid| key_prefix(uid)).collect();
        let mut now_missing = BTreeSet::new();
        for grant in self.shared.manager.list().await? {
            let is_claimed = prefixes.iter().any(|prefix| grant.key.starts_with(prefix));
            if !grant.key.starts_with(CLAIM_KEYS) || is_claimed {
                continue;
            }
            if missing.contains(&grant.id) {
                // The manager refuses while processes still run; each check tries again.
                match self.shared.manager.release(&grant.id).await {
                    Ok(_) => {
                        let mut uids = self.shared.store.names::<ClaimRecord>()?;
                        uids.retain(|uid| grant.key.starts_with(&key_prefix(uid)));
                        for uid in uids {
                            self.shared.store.remove::<ClaimRecord>(&uid)?;
                        }
                    }
                    Err(error) => debug!(grant = grant.id, "kept: {error}"),
                }
            }
            now_missing.insert(grant.id);
        }
        Ok(now_missing)
    }
}
