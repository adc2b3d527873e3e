//! Holders of the grants of claims that several pods may share. Kubelet asks the driver once for such a claim, so that it does not hear of
//! later pods, nor of the end of the first one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;
use parking_lot::Mutex;
use tracing::{debug, info};
use vcuda_kubelet_api::dra;
use vcuda_manager_api::v1;

use super::claim;
use super::grants::grant_holder;
use super::prepare::{PrepareError, Preparer};
use super::shared::Shared;
use super::users::{Group, Requests, find_users};
use crate::cdi::ClaimRecord;

pub(super) struct ClaimHolders {
    shared: Arc<Shared>,
    preparer: Arc<Preparer>,
    /// UIDs of the pods for which a claim was reserved as its grants were looked at last, by the claim's UID.
    seen: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl ClaimHolders {
    pub(super) fn new(shared: Arc<Shared>, preparer: Arc<Preparer>) -> Self {
        Self { shared, preparer, seen: Mutex::default() }
    }

    /// Forgets the claims that have ended.
    pub(super) fn retain(&self, records: &[ClaimRecord]) {
        self.seen.lock().retain(|uid, _| records.iter().any(|record| record.uid == *uid));
    }

    /// Gives each of a claim's `grants` whose pod is gone to a container that uses it now; to none if there is none. What fails is tried
    /// again at the next call.
    pub(super) async fn follow(&self, record: &ClaimRecord, claim: &ResourceClaim, grants: &[&v1::Grant]) {
        if let Err(error) = self.try_follow(record, claim, grants).await {
            debug!(claim = record.name, "the holders of its grants stay: {error}");
        }
    }

    async fn try_follow(
        &self,
        record: &ClaimRecord,
        claim: &ResourceClaim,
        grants: &[&v1::Grant],
    ) -> Result<(), PrepareError> {
        let reserved = reserved_uids(claim);
        let is_gone = |grant: &&&v1::Grant| {
            grant.holder.as_ref().is_none_or(|holder| !reserved.contains(&holder.pod_uid))
        };
        let orphaned: Vec<&&v1::Grant> = grants.iter().filter(is_gone).collect();
        if orphaned.is_empty() || self.seen.lock().get(&record.uid) == Some(&reserved) {
            return Ok(());
        }
        let pods = match self.preparer.pods(&record.namespace, claim).await {
            // The claim is about to be undone.
            Err(PrepareError::NoPod) => return Ok(()),
            found => found?,
        };
        let ours = record.prepared.iter().map(|prepared| prepared.request.clone()).collect();
        let requests = Requests { all: &claim::request_names(claim), ours: &ours };
        // A later pod that uses the claim otherwise has no grant.
        let groups = find_users(&pods, &record.name, requests).map(|users| users.groups).unwrap_or_default();
        let named = dra::Claim {
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            uid: record.uid.clone(),
        };
        for grant in orphaned {
            let requests = requests_of(record, grant);
            let group = groups.iter().find(|group| group.requests == requests).cloned();
            let holder =
                grant_holder(&named, &group.unwrap_or(Group { requests, containers: Vec::new() }), &pods);
            if grant.holder.as_ref() != Some(&holder) {
                info!(grant = grant.id, pod = holder.pod, "its former pod is gone");
                self.shared.manager.set_holder(&grant.id, holder).await?;
            }
        }
        self.seen.lock().insert(record.uid.clone(), reserved);
        Ok(())
    }
}

/// UIDs of the pods for which a claim is reserved.
fn reserved_uids(claim: &ResourceClaim) -> BTreeSet<String> {
    let users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    users.filter(|user| user.resource == "pods").map(|user| user.uid.clone()).collect()
}

/// The requests of a claim that a grant is for.
fn requests_of(record: &ClaimRecord, grant: &v1::Grant) -> BTreeSet<String> {
    let of_grant = record.prepared.iter().filter(|prepared| prepared.key.as_ref() == Some(&grant.key));
    of_grant.map(|prepared| prepared.request.clone()).collect()
}
