//! Applies the annotations of prepared claims, and of the pods that they were made for, to the grants, within the allocation.
//!
//! A watch of all claims of the cluster would be too costly. The node's pods are watched, so their annotations are applied at
//! once. Claims are read one by one: shared claims often, claims of a single pod seldom.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::GetParams;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;
use vcuda_manager_api::v1;
use vcuda_quota::pods::annotations::quota_change;

use super::claim::{self, Share};
use super::claim_annotations::{self, Annotations};
use super::claim_holders::ClaimHolders;
use super::grants::grant_amounts;
use super::prepare::{PrepareError, Preparer};
use super::shared::Shared;
use super::shared_claims::claim_reference;
use crate::amounts::Asked;
use crate::annotation_reconciler::{RETRY_INTERVAL, Reconcile, Refusal};
use crate::cdi::ClaimRecord;
use crate::cluster::Cluster;
use crate::ids::digest;

/// Shortest interval of reads of the shared claims.
const CLAIMS_INTERVAL: Duration = Duration::from_secs(2);
/// Interval for each shared claim, which bounds the rate of requests if there are many.
const INTERVAL_PER_CLAIM: Duration = Duration::from_millis(100);
/// Interval of reads of a claim that was made for a single pod.
const POD_CLAIM_INTERVAL: Duration = Duration::from_secs(30);

type Grants = BTreeMap<String, v1::Grant>;

/// Last application of a claim's annotations.
#[derive(Debug)]
struct LastApplied {
    of_pod: Option<Annotations>,
    at: Instant,
    is_done: bool,
}

pub(crate) struct ClaimReconciler {
    shared: Arc<Shared>,
    preparer: Arc<Preparer>,
    /// Last application by the claim's UID.
    last_applied: Mutex<BTreeMap<String, LastApplied>>,
    interval: Mutex<Duration>,
    holders: ClaimHolders,
}

impl ClaimReconciler {
    /// Creates a reconciler for the claims that `preparer` prepares.
    pub(crate) fn new(shared: Arc<Shared>, preparer: Arc<Preparer>) -> Self {
        let holders = ClaimHolders::new(Arc::clone(&shared), Arc::clone(&preparer));
        let interval = Mutex::new(CLAIMS_INTERVAL);
        Self { shared, preparer, last_applied: Mutex::default(), interval, holders }
    }

    async fn reconcile_all(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, PrepareError> {
        let mut records = self.shared.store.records::<ClaimRecord>()?;
        // Admin access has no limits.
        records.retain(|record| !record.keys().is_empty());
        let alone = records.iter().filter(|record| !record.of_pod).count();
        *self.interval.lock() = match u32::try_from(alone) {
            Ok(0) => RETRY_INTERVAL,
            Ok(count) => CLAIMS_INTERVAL.max(INTERVAL_PER_CLAIM * count),
            Err(_) => POD_CLAIM_INTERVAL,
        };
        self.last_applied.lock().retain(|uid, _| records.iter().any(|record| record.uid == *uid));
        self.holders.retain(&records);
        let mut refusals = BTreeMap::new();
        if records.is_empty() {
            return Ok(refusals);
        }
        let grants = self.shared.manager.list().await?.into_iter();
        let grants: Grants = grants.map(|grant| (grant.key.clone(), grant)).collect();
        for record in &records {
            if let Err(error) = self.reconcile_if_due(cluster, record, &grants).await {
                let why = format!("claim {}/{}: {error}", record.namespace, record.name);
                let regarding = annotated_object(record, &grants);
                refusals.insert(record.uid.clone(), Refusal { why, regarding });
            }
        }
        Ok(refusals)
    }

    async fn reconcile_if_due(
        &self,
        cluster: &Cluster,
        record: &ClaimRecord,
        grants: &Grants,
    ) -> Result<(), PrepareError> {
        let mut of_pod = None;
        if record.of_pod {
            let holder = record.keys().into_iter().find_map(|key| grants.get(key)?.holder.as_ref());
            // Without the pod in the watch there is no known change.
            let Some(known) = holder.and_then(|holder| cluster.annotations(holder)) else {
                return Ok(());
            };
            of_pod = Some(known);
        }
        if !self.is_due(record, of_pod.as_ref()) {
            return Ok(());
        }
        let result = self.reconcile_claim(record, of_pod.as_ref(), grants).await;
        let applied = LastApplied { of_pod, at: Instant::now(), is_done: result.is_ok() };
        self.last_applied.lock().insert(record.uid.clone(), applied);
        result
    }

    /// Whether the claim has to be read now.
    fn is_due(&self, record: &ClaimRecord, of_pod: Option<&Annotations>) -> bool {
        let last = self.last_applied.lock();
        let Some(applied) = last.get(&record.uid).filter(|_| record.of_pod) else {
            return true;
        };
        !applied.is_done || applied.of_pod.as_ref() != of_pod || applied.at.elapsed() >= POD_CLAIM_INTERVAL
    }

    /// Applies the annotations if they changed. A watch and the API server's cache may be behind what the claim was prepared with, so
    /// they only tell that something may have changed: what is applied is read anew.
    async fn reconcile_claim(
        &self,
        record: &ClaimRecord,
        of_pod: Option<&Annotations>,
        grants: &Grants,
    ) -> Result<(), PrepareError> {
        let own = || record.keys().into_iter().filter_map(|key| grants.get(key));
        let Some((claim, shares)) = self.find_claim(record, &GetParams::any()).await? else {
            return Ok(());
        };
        let seen = claim_annotations::merged(&claim, of_pod);
        // Annotations may name containers: what runs keeps its amounts if its grant gets another one's name.
        let keeps = |grant: &v1::Grant| matches!(wanted(record, grant, &shares, &seen), Ok(None));
        if !record.of_pod && self.holders.follow(record, &claim, &own().collect::<Vec<_>>(), keeps).await {
            // The grants have changed.
            return Ok(());
        }
        let may_differ = |grant| !matches!(wanted(record, grant, &shares, &seen), Ok(None));
        if !own().any(may_differ) {
            return Ok(());
        }
        let Some((claim, shares)) = self.find_claim(record, &GetParams::default()).await? else {
            return Ok(());
        };
        let pods = match self.preparer.pods(&record.namespace, &claim).await {
            Err(PrepareError::NoPod) => return Ok(()),
            found => found?,
        };
        let mut result = Ok(());
        for grant in own() {
            let resized = self.resize(record, grant, (&claim, &shares), &pods).await;
            result = result.and(resized);
        }
        result
    }

    /// The record's claim and its shares; `None` for another claim of this name, and for one that kubelet will unprepare.
    async fn find_claim(
        &self,
        record: &ClaimRecord,
        version: &GetParams,
    ) -> Result<Option<(ResourceClaim, Vec<Share>)>, PrepareError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.shared.client.clone(), &record.namespace);
        let claim = match claims.get_with(&record.name, version).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            found => found?,
        };
        let shares = claim::shares(&claim, &record.uid, &self.shared.node).ok();
        Ok(shares.map(|shares| (claim, shares)))
    }

    async fn resize(
        &self,
        record: &ClaimRecord,
        grant: &v1::Grant,
        (claim, shares): (&ResourceClaim, &[Share]),
        pods: &[Pod],
    ) -> Result<(), PrepareError> {
        let holder = grant.holder.as_ref();
        let of_pod = holder.and_then(|holder| claim_annotations::of_pod(claim, pods, holder));
        let annotations = claim_annotations::merged(claim, of_pod);
        let Some(Asked { amounts, text }) = wanted(record, grant, shares, &annotations)? else {
            return Ok(());
        };
        let id = format!("{}-{}", grant.key, digest(&format!("{text} {}", grant.generation), 8));
        self.shared.manager.resize(grant, id, Some(amounts)).await?;
        self.preparer.note_amounts(&record.uid, &grant.key, &text).await?;
        info!(grant = grant.id, asked = text, "follows its annotations");
        Ok(())
    }
}

/// The amounts of a grant under these annotations; `None` if it has them already.
fn wanted(
    record: &ClaimRecord,
    grant: &v1::Grant,
    shares: &[Share],
    annotations: &Annotations,
) -> Result<Option<Asked>, PrepareError> {
    let mut prepared = record.prepared.iter();
    let of_grant = prepared.find(|prepared| prepared.key.as_ref() == Some(&grant.key));
    let share = of_grant.and_then(|prepared| {
        let is_same_share =
            |share: &&Share| share.request == prepared.request && share.device == prepared.device;
        shares.iter().find(is_same_share)?.counted.as_ref()
    });
    let (Some(share), Some(holder)) = (share, &grant.holder) else {
        return Ok(None);
    };
    // A wrong name of a container was refused at the start, where the names are known.
    let change = quota_change(annotations, &holder.container, &BTreeSet::new())?;
    let asked = grant_amounts(share, &change)?;
    let has_them = record.asked.get(&grant.key) == Some(&asked.text);
    Ok((!has_them).then_some(asked))
}

#[tonic::async_trait]
impl Reconcile for ClaimReconciler {
    async fn reconcile(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, String> {
        let refusals = self.reconcile_all(cluster).await;
        refusals.map_err(|error| error.to_string())
    }

    fn resync_interval(&self) -> Duration {
        *self.interval.lock()
    }
}

/// The object for events about the annotations: the pod if the claim was made for it, else the claim.
fn annotated_object(record: &ClaimRecord, grants: &Grants) -> ObjectReference {
    let holder = record.keys().into_iter().find_map(|key| grants.get(key)?.holder.as_ref());
    match holder.filter(|_| record.of_pod) {
        Some(holder) => crate::pod_events::pod_reference(holder),
        None => claim_reference(record),
    }
}
