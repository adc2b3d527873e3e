//! Holders of the grants of claims that several pods may share. Kubelet asks the driver once for such a claim, so that it does not hear of
//! later pods, nor of the end of the first one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use parking_lot::Mutex;
use tonic::Code;
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

    /// Gives each of a claim's `grants` whose pod is gone to a container that uses it now, to none if there is none, if the grant `keeps` its
    /// amounts with that holder. Returns whether there was a change. What fails for now is tried again at the next call.
    pub(super) async fn follow(
        &self,
        record: &ClaimRecord,
        claim: &ResourceClaim,
        grants: &[&v1::Grant],
        keeps: impl Fn(&v1::Grant) -> bool,
    ) -> bool {
        let followed = self.try_follow(record, claim, grants, keeps).await;
        followed.unwrap_or_else(|error| {
            debug!(claim = record.name, "the holders of its grants stay: {error}");
            false
        })
    }

    async fn try_follow(
        &self,
        record: &ClaimRecord,
        claim: &ResourceClaim,
        grants: &[&v1::Grant],
        keeps: impl Fn(&v1::Grant) -> bool,
    ) -> Result<bool, PrepareError> {
        let reserved = reserved_uids(claim);
        let is_gone = |grant: &&&v1::Grant| {
            grant.holder.as_ref().is_none_or(|holder| !reserved.contains(&holder.pod_uid))
        };
        let orphaned: Vec<&&v1::Grant> = grants.iter().filter(is_gone).collect();
        if orphaned.is_empty() || self.seen.lock().get(&record.uid) == Some(&reserved) {
            return Ok(false);
        }
        let pods = match self.preparer.pods(&record.namespace, claim).await {
            // The claim is about to be undone.
            Err(PrepareError::NoPod) => return Ok(false),
            found => found?,
        };
        let mut has_changed = false;
        for (grant, holder) in new_holders(record, claim, &orphaned, &pods) {
            if grant.holder.as_ref() == Some(&holder)
                || !keeps(&v1::Grant { holder: Some(holder.clone()), ..grant.clone() })
            {
                continue;
            }
            let pod = holder.pod.clone();
            match self.shared.manager.set_holder(&grant.id, holder).await {
                Ok(()) => info!(grant = grant.id, pod, "its former pod is gone"),
                Err(error) if error.code() == Code::Unavailable => return Err(error.into()),
                Err(error) => debug!(grant = grant.id, "its holder stays: {error}"),
            }
            has_changed = true;
        }
        self.seen.lock().insert(record.uid.clone(), reserved);
        Ok(has_changed)
    }
}

/// Whom each of these grants is for now.
fn new_holders<'a>(
    record: &ClaimRecord,
    claim: &ResourceClaim,
    grants: &[&&'a v1::Grant],
    pods: &[Pod],
) -> Vec<(&'a v1::Grant, v1::Holder)> {
    let ours = record.prepared.iter().map(|prepared| prepared.request.clone()).collect();
    let requests = Requests { all: &claim::request_names(claim), ours: &ours };
    // A later pod that uses the claim otherwise has no grant.
    let groups = find_users(pods, &record.name, requests).map(|users| users.groups).unwrap_or_default();
    let named = dra::Claim {
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        uid: record.uid.clone(),
    };
    let holder = |grant: &v1::Grant| {
        let requests = requests_of(record, grant);
        let group = groups.iter().find(|group| group.requests == requests).cloned();
        grant_holder(&named, &group.unwrap_or(Group { requests, containers: Vec::new() }), pods)
    };
    grants.iter().map(|grant| (**grant, holder(grant))).collect()
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
