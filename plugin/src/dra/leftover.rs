//! Claims that are gone although kubelet did not say so, as after the loss of its state: their files and grants end here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{debug, info};

use super::prepare::{PrepareError, Preparer, prefix};
use crate::cdi::Store;
use crate::manager::Manager;
use crate::mode::CLAIM_KEYS;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(30);

/// Ends what is left over.
pub(crate) struct Leftovers {
    /// The API server's client.
    pub client: Client,
    /// The manager.
    pub manager: Arc<Manager>,
    /// The claims' files.
    pub store: Store,
    /// Prepares claims, and undoes it.
    pub preparer: Arc<Preparer>,
}

impl Leftovers {
    /// Looks until it is dropped.
    pub(crate) async fn run(self) {
        let mut missing = BTreeSet::new();
        loop {
            sleep(LOOK).await;
            if let Err(error) = self.claims().await {
                debug!("claims that are gone: {error}");
            }
            match self.grants(&missing).await {
                Ok(now_missing) => missing = now_missing,
                Err(error) => debug!("grants without a claim: {error}"),
            }
        }
    }

    /// Claims with files.
    async fn claims(&self) -> Result<(), PrepareError> {
        let store = self.store.clone();
        let records = spawn_blocking(move || store.claim_records()).await;
        for record in records.map_err(|_| PrepareError::NotYet)?? {
            let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &record.namespace);
            let found = api.get_opt(&record.name).await?;
            let is_there = found.is_some_and(|claim| claim.metadata.uid.as_ref() == Some(&record.uid));
            if !is_there {
                info!(
                    claim = format!("{}/{}", record.namespace, record.name),
                    "is gone: it is undone"
                );
                self.preparer.unprepare(&record.uid).await?;
            }
        }
        Ok(())
    }

    /// Ends grants of claims that had no files in this look and in the one before. Returns those that had none in this one.
    async fn grants(&self, missing: &BTreeSet<String>) -> Result<BTreeSet<String>, PrepareError> {
        let store = self.store.clone();
        let uids = spawn_blocking(move || store.claims()).await;
        let uids = uids.map_err(|_| PrepareError::NotYet)??;
        let prefixes: Vec<String> = uids.iter().map(|uid| prefix(uid)).collect();
        let mut now_missing = BTreeSet::new();
        for grant in self.manager.list().await? {
            let has_files = prefixes.iter().any(|prefix| grant.key.starts_with(prefix));
            if !grant.key.starts_with(CLAIM_KEYS) || has_files {
                continue;
            }
            if missing.contains(&grant.id) {
                // One whose processes still run is tried again at each look.
                if let Err(error) = self.manager.release(&grant.id).await {
                    debug!(grant = grant.id, "kept: {error}");
                }
            }
            now_missing.insert(grant.id);
        }
        Ok(now_missing)
    }
}
