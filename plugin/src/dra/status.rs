//! Writer of the status of prepared claims (`status.devices`): GPU, quota and policy of each share, as the manager has them now.
//! Users and controllers read it. The preparation does not wait for it or depend on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::time::timeout;
use tracing::{info, warn};

use super::prepare::PrepareError;
use super::shared::Shared;
use crate::cdi::ClaimRecord;
use crate::manager::ManagerError;

mod entries;

/// Field manager of server-side apply.
const FIELD_MANAGER: &str = "vcuda-dra-driver";
/// Interval of checks of the grants, which an operator may change.
const GRANTS_INTERVAL: Duration = Duration::from_secs(10);
/// First pause after a failure; it doubles with each.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
enum StatusError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("the API server has not answered within {DEADLINE:?}")]
    Late,
}

struct WrittenStatus {
    claim: ClaimRecord,
    /// Entries without the times at which conditions changed.
    entries: Vec<AllocatedDeviceStatus>,
}

pub(crate) struct StatusWriter {
    shared: Arc<Shared>,
    wake: Arc<Notify>,
    written: BTreeMap<String, WrittenStatus>,
    /// Logged failure of each claim, by UID.
    logged: BTreeMap<String, String>,
}

impl StatusWriter {
    /// Creates a writer that checks when `wake` is notified, and at intervals.
    pub(crate) fn new(shared: Arc<Shared>, wake: Arc<Notify>) -> Self {
        Self { shared, wake, written: BTreeMap::new(), logged: BTreeMap::new() }
    }

    pub(crate) async fn run(mut self) {
        let mut retry = RETRY_MIN;
        loop {
            let pause = match self.write_changed().await {
                Ok(()) if self.logged.is_empty() => {
                    retry = RETRY_MIN;
                    GRANTS_INTERVAL
                }
                // The readiness page reports a manager that does not answer.
                Ok(()) | Err(_) => {
                    let pause = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                    pause
                }
            };
            // A missed notification loses nothing, as each check reads all claims.
            let _ = timeout(pause, self.wake.notified()).await;
        }
    }

    async fn write_changed(&mut self) -> Result<(), PrepareError> {
        let records = self.shared.store.records::<ClaimRecord>()?;
        self.shared.instruments.claims(records.len());
        if !records.is_empty() {
            let grants = self.grants().await?;
            for record in &records {
                let desired = entries::status_entries(record, &grants);
                let written = self.written.get(&record.uid);
                if written.is_none_or(|known| known.entries != desired) {
                    self.write(record.clone(), desired).await;
                }
            }
        }
        let is_there = |uid: &String| records.iter().any(|record| record.uid == *uid);
        let gone = self.written.iter().filter(|(uid, _)| !is_there(uid));
        let gone: Vec<ClaimRecord> = gone.map(|(_, written)| written.claim.clone()).collect();
        self.logged.retain(|uid, _| is_there(uid) || gone.iter().any(|claim| claim.uid == *uid));
        for claim in gone {
            self.write(claim, Vec::new()).await;
        }
        Ok(())
    }

    async fn grants(&self) -> Result<entries::Grants, ManagerError> {
        let grants = self.shared.manager.list().await?;
        Ok(grants.into_iter().map(|grant| (grant.key.clone(), grant)).collect())
    }

    /// Writes a claim's entries and remembers them. A failure is logged once.
    async fn write(&mut self, claim: ClaimRecord, entries: Vec<AllocatedDeviceStatus>) {
        let done = timeout(DEADLINE, self.apply(&claim, &entries)).await;
        let named = format!("{}/{}", claim.namespace, claim.name);
        match done.unwrap_or(Err(StatusError::Late)) {
            Ok(()) => {
                if self.logged.remove(&claim.uid).is_some() {
                    info!(claim = named, "its status is written now");
                }
                let uid = claim.uid.clone();
                match entries.is_empty() {
                    true => drop(self.written.remove(&uid)),
                    false => drop(self.written.insert(uid, WrittenStatus { claim, entries })),
                }
            }
            Err(error) => {
                let why = error.to_string();
                if self.logged.get(&claim.uid) != Some(&why) {
                    warn!(claim = named, "its status is not written, it is tried again: {why}");
                }
                self.logged.insert(claim.uid, why);
            }
        }
    }

    /// Makes these the claim's only entries of this driver. A claim that is gone needs none.
    async fn apply(&self, claim: &ClaimRecord, entries: &[AllocatedDeviceStatus]) -> Result<(), StatusError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.shared.client.clone(), &claim.namespace);
        let found = claims.get_opt(&claim.name).await?;
        let Some(found) = found.filter(|found| found.metadata.uid.as_ref() == Some(&claim.uid)) else {
            return Ok(());
        };
        let current = entries::current_entries(&found);
        if entries::is_current(&current, entries) {
            return Ok(());
        }
        let body = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            // With the UID the API server refuses another claim of this name.
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "status": {"devices": entries::with_transition_times(entries, &current)},
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match claims.patch_status(&claim.name, &params, &Patch::Apply(body)).await {
            // The claim was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }
}
