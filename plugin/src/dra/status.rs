//! What the API server shows of a prepared claim (`status.devices`): GPU, quota and policy of each share, as the manager has them
//! now. It is for people and controllers: nothing waits for it, and a claim whose status cannot be written is prepared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use super::metrics::Instruments;
use super::prepare::PrepareError;
use crate::cdi::{ClaimRecord, Store};
use crate::manager::{Manager, ManagerError};

mod entries;

/// Owner of the fields at the API server.
const FIELD_MANAGER: &str = "vcuda-dra-driver";
/// Between two looks at the grants: an operator may change them.
const LOOK: Duration = Duration::from_secs(10);
/// The first pause after a failure; it doubles, to the longest.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest pause after failures.
const AGAIN_MOST: Duration = Duration::from_secs(60);
/// The longest time for one claim.
const DEADLINE: Duration = Duration::from_secs(10);

/// The status of a claim is not as it should be.
#[derive(Debug, Error)]
enum StatusError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("the API server has not answered within {DEADLINE:?}")]
    Late,
}

/// A claim at the API server.
#[derive(Debug, Clone)]
struct Named {
    namespace: String,
    name: String,
    uid: String,
}

/// What was written of a claim, or is to be taken back.
struct Written {
    claim: Named,
    /// Without the times at which conditions changed.
    entries: Vec<AllocatedDeviceStatus>,
}

/// Writes the statuses of this node's claims.
pub(crate) struct StatusWriter {
    client: Client,
    manager: Arc<Manager>,
    store: Store,
    instruments: Arc<Instruments>,
    wake: Arc<Notify>,
    written: BTreeMap<String, Written>,
    /// The failure of each claim that was logged, by UID.
    told: BTreeMap<String, String>,
}

impl StatusWriter {
    /// One that looks when `wake` is notified, and now and then.
    #[must_use]
    pub(crate) fn new(
        client: Client,
        manager: Arc<Manager>,
        store: Store,
        instruments: Arc<Instruments>,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            client,
            manager,
            store,
            instruments,
            wake,
            written: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Writes until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut again = AGAIN;
        loop {
            let pause = match self.look().await {
                Ok(()) if self.told.is_empty() => {
                    again = AGAIN;
                    LOOK
                }
                // A manager that is away is told by the page of problems.
                Ok(()) | Err(_) => {
                    let pause = again;
                    again = (again * 2).min(AGAIN_MOST);
                    pause
                }
            };
            // A look that fails or is woken loses nothing: the next one sees all of it.
            let _ = timeout(pause, self.wake.notified()).await;
        }
    }

    async fn look(&mut self) -> Result<(), PrepareError> {
        let store = self.store.clone();
        let records = spawn_blocking(move || store.claim_records()).await;
        let mut records = records.map_err(|_| PrepareError::NotYet)??;
        self.instruments.claims(records.len());
        // Of an earlier release's claims it is not known which share is whose.
        records.retain(|record| record.prepared.iter().all(|share| !share.uuid.is_empty()));
        if !records.is_empty() {
            let grants = self.grants().await?;
            for record in &records {
                let wanted = entries::of(record, &grants);
                let is_known = self.written.get(&record.uid);
                if is_known.is_none_or(|known| known.entries != wanted) {
                    self.write(Named::of(record), wanted).await;
                }
            }
        }
        let is_there = |uid: &String| records.iter().any(|record| record.uid == *uid);
        let gone = self.written.iter().filter(|(uid, _)| !is_there(uid));
        let gone: Vec<Named> = gone.map(|(_, written)| written.claim.clone()).collect();
        self.told
            .retain(|uid, _| is_there(uid) || gone.iter().any(|claim| claim.uid == *uid));
        for claim in gone {
            self.write(claim, Vec::new()).await;
        }
        Ok(())
    }

    /// The node's grants, by key.
    async fn grants(&self) -> Result<entries::Grants, ManagerError> {
        let grants = self.manager.list().await?;
        Ok(grants
            .into_iter()
            .map(|grant| (grant.key.clone(), grant))
            .collect())
    }

    /// Writes one claim's entries, and remembers it; a failure is logged once.
    async fn write(&mut self, claim: Named, entries: Vec<AllocatedDeviceStatus>) {
        let done = timeout(DEADLINE, self.apply(&claim, &entries)).await;
        let named = format!("{}/{}", claim.namespace, claim.name);
        match done.unwrap_or(Err(StatusError::Late)) {
            Ok(()) => {
                if self.told.remove(&claim.uid).is_some() {
                    info!(claim = named, "its status is written now");
                }
                let uid = claim.uid.clone();
                match entries.is_empty() {
                    true => drop(self.written.remove(&uid)),
                    false => drop(self.written.insert(uid, Written { claim, entries })),
                }
            }
            Err(error) => {
                let why = error.to_string();
                if self.told.get(&claim.uid) != Some(&why) {
                    warn!(
                        claim = named,
                        "its status is not written, it is tried again: {why}"
                    );
                }
                self.told.insert(claim.uid, why);
            }
        }
    }

    /// Has the API server show these entries, and no others of ours. A claim that is gone needs none.
    async fn apply(&self, claim: &Named, entries: &[AllocatedDeviceStatus]) -> Result<(), StatusError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        let found = claims.get_opt(&claim.name).await?;
        let Some(found) = found.filter(|found| found.metadata.uid.as_ref() == Some(&claim.uid)) else {
            return Ok(());
        };
        let shown = entries::shown(&found);
        if entries::is_same(&shown, entries) {
            return Ok(());
        }
        let body = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            // Another claim of this name is refused.
            "metadata": {"name": claim.name, "namespace": claim.namespace, "uid": claim.uid},
            "status": {"devices": entries::timed(entries, &shown)},
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        match claims
            .patch_status(&claim.name, &params, &Patch::Apply(body))
            .await
        {
            // It went at this moment.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }
}

impl Named {
    fn of(record: &ClaimRecord) -> Self {
        Self {
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            uid: record.uid.clone(),
        }
    }
}
