//! Grants of prepared claims follow the annotations of their claims, and of the pods that these were made for, within what was
//! allocated.
//!
//! A driver may not watch all claims of a cluster for the sake of its own. Pods of the node are watched, so a pod's annotations
//! are followed at once; claims are asked for, those of no one pod often, the others seldom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::GetParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::info;
use vcuda_manager_api::v1;
use vcuda_quota::pods::annotations::choice;

use super::chosen::{self, Annotations};
use super::claim::{self, Share};
use super::grants::granted;
use super::prepare::{PrepareError, Preparer, hash};
use crate::cdi::{ClaimRecord, Store};
use crate::cluster::Cluster;
use crate::follow::{AGAIN, Follow, Refusal};
use crate::manager::Manager;

/// Between two looks at claims of no one pod, at least.
const LOOK: Duration = Duration::from_secs(2);
/// The same for each of them, so that many claims are no more requests.
const LOOK_EACH: Duration = Duration::from_millis(100);
/// Between two looks at the claim of a pod.
const LOOK_OF_POD: Duration = Duration::from_secs(30);

/// Grants by key.
type Grants = BTreeMap<String, v1::Grant>;

/// What was followed of a claim.
#[derive(Debug)]
struct Seen {
    of_pod: Option<Annotations>,
    at: Instant,
    is_followed: bool,
}

/// Follows the annotations of this node's claims.
pub(crate) struct ClaimFollower {
    client: Client,
    manager: Arc<Manager>,
    store: Store,
    preparer: Arc<Preparer>,
    /// Name of the node's pool.
    pool: String,
    /// By UID.
    seen: Mutex<BTreeMap<String, Seen>>,
    pace: Mutex<Duration>,
}

impl ClaimFollower {
    /// One for the claims that `preparer` prepares.
    #[must_use]
    pub(crate) fn new(
        client: Client,
        manager: Arc<Manager>,
        store: Store,
        preparer: Arc<Preparer>,
        pool: String,
    ) -> Self {
        Self {
            client,
            manager,
            store,
            preparer,
            pool,
            seen: Mutex::default(),
            pace: Mutex::new(LOOK),
        }
    }

    async fn follow_all(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, PrepareError> {
        let store = self.store.clone();
        let records = spawn_blocking(move || store.claim_records()).await;
        let mut records = records.map_err(|_| PrepareError::NotYet)??;
        // Admin access has no limits to follow, and of an earlier release's claims it is not known which share is whose.
        records.retain(|record| record.prepared.iter().any(|share| share.key.is_some()));
        let alone = records.iter().filter(|record| !record.of_pod).count();
        *self.pace.lock() = match u32::try_from(alone) {
            Ok(0) => AGAIN,
            Ok(count) => LOOK.max(LOOK_EACH * count),
            Err(_) => LOOK_OF_POD,
        };
        self.seen
            .lock()
            .retain(|uid, _| records.iter().any(|record| record.uid == *uid));
        let mut refusals = BTreeMap::new();
        if records.is_empty() {
            return Ok(refusals);
        }
        let grants = self.manager.list().await?.into_iter();
        let grants: Grants = grants.map(|grant| (grant.key.clone(), grant)).collect();
        for record in &records {
            if let Err(error) = self.follow_one(cluster, record, &grants).await {
                let why = format!("claim {}/{}: {error}", record.namespace, record.name);
                let regarding = regarding(record, &grants);
                refusals.insert(record.uid.clone(), Refusal { why, regarding });
            }
        }
        Ok(refusals)
    }

    async fn follow_one(
        &self,
        cluster: &Cluster,
        record: &ClaimRecord,
        grants: &Grants,
    ) -> Result<(), PrepareError> {
        let mut of_pod = None;
        if record.of_pod {
            let holder = record
                .keys
                .iter()
                .find_map(|key| grants.get(key)?.holder.as_ref());
            // Nothing is known to have changed for a pod that is not known, or not any more.
            let Some(known) = holder.and_then(|holder| cluster.annotations(holder)) else {
                return Ok(());
            };
            of_pod = Some(known);
        }
        if !self.is_due(record, of_pod.as_ref()) {
            return Ok(());
        }
        let followed = self.follow_claim(record, of_pod.as_ref(), grants).await;
        let seen = Seen {
            of_pod,
            at: Instant::now(),
            is_followed: followed.is_ok(),
        };
        self.seen.lock().insert(record.uid.clone(), seen);
        followed
    }

    /// Whether the claim has to be looked at now.
    fn is_due(&self, record: &ClaimRecord, of_pod: Option<&Annotations>) -> bool {
        let seen = self.seen.lock();
        let Some(seen) = seen.get(&record.uid).filter(|_| record.of_pod) else {
            return true;
        };
        !seen.is_followed || seen.of_pod.as_ref() != of_pod || seen.at.elapsed() >= LOOK_OF_POD
    }

    async fn follow_claim(
        &self,
        record: &ClaimRecord,
        of_pod: Option<&Annotations>,
        grants: &Grants,
    ) -> Result<(), PrepareError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &record.namespace);
        // As the API server has it at hand: what is old is followed by what is new.
        let claim = match claims.get_with(&record.name, &GetParams::any()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            found => found?,
        };
        // Another one of this name, or one whose end kubelet will say.
        let Ok(shares) = claim::shares(&claim, &record.uid, &self.pool) else {
            return Ok(());
        };
        let annotations = chosen::annotations(&claim, of_pod);
        let mut first = Ok(());
        for grant in record.keys.iter().filter_map(|key| grants.get(key)) {
            let resized = self.resize(record, grant, &shares, &annotations).await;
            first = first.and(resized);
        }
        first
    }

    async fn resize(
        &self,
        record: &ClaimRecord,
        grant: &v1::Grant,
        shares: &[Share],
        annotations: &Annotations,
    ) -> Result<(), PrepareError> {
        let of_grant = record
            .prepared
            .iter()
            .find(|prepared| prepared.key.as_ref() == Some(&grant.key));
        let share = of_grant.and_then(|prepared| {
            let is_it = |share: &&Share| share.request == prepared.request && share.device == prepared.device;
            shares.iter().find(is_it)?.amounts.as_ref()
        });
        let (Some(share), Some(holder)) = (share, &grant.holder) else {
            return Ok(());
        };
        // A wrong name of a container was refused at the start, where the names are known.
        let chosen = choice(annotations, &holder.container, &BTreeSet::new())?;
        let (amounts, text) = granted(share, &chosen)?;
        if record.asked.get(&grant.key) == Some(&text) {
            return Ok(());
        }
        let resize = v1::ResizeGrantRequest {
            request_id: format!(
                "{}-{}",
                grant.key,
                hash(&format!("{text} {}", grant.generation), 8)
            ),
            id: grant.id.clone(),
            amounts: Some(amounts),
            expected_generation: grant.generation,
        };
        self.manager.resize(resize).await?;
        self.preparer.note(&record.uid, &grant.key, &text).await?;
        info!(grant = grant.id, asked = text, "follows its annotations");
        Ok(())
    }
}

#[tonic::async_trait]
impl Follow for ClaimFollower {
    async fn follow(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, String> {
        let refusals = self.follow_all(cluster).await;
        refusals.map_err(|error| error.to_string())
    }

    fn pace(&self) -> Duration {
        *self.pace.lock()
    }
}

/// The object that has the annotations, where people look: the pod of its own claim, or the claim.
fn regarding(record: &ClaimRecord, grants: &Grants) -> ObjectReference {
    let holder = record
        .keys
        .iter()
        .find_map(|key| grants.get(key)?.holder.as_ref());
    match holder.filter(|_| record.of_pod) {
        Some(holder) => crate::pod_events::pod(holder),
        None => ObjectReference {
            api_version: Some("resource.k8s.io/v1".to_owned()),
            kind: Some("ResourceClaim".to_owned()),
            name: Some(record.name.clone()),
            namespace: Some(record.namespace.clone()),
            uid: Some(record.uid.clone()),
            ..ObjectReference::default()
        },
    }
}
