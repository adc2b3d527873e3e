//! Preparation of a claim: a grant of the manager for each group of requests, and the specifications of the containers. If a step
//! fails the claim counts as not prepared, and kubelet asks again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use tokio::sync::{Mutex, Notify};
use tracing::{info, warn};
use vcuda_kubelet_api::dra;
use vcuda_manager_api::v1;

use super::claim::{self, Share};
use super::claim_annotations;
use super::grants::{create_request, grant_holder};
use super::shared::Shared;
use super::users::{Group, Requests, Users, find_users};
use crate::bind::BindSettings;
use crate::cdi::{CdiDevice, ClaimRecord, Prepared};

mod devices;
pub(super) mod error;
pub(super) mod names;
mod record;
mod restore;
mod unprepare;

pub(crate) use error::PrepareError;
use names::check_uid;
pub(super) use names::key_prefix;

pub(crate) struct Preparer {
    shared: Arc<Shared>,
    settings: BindSettings,
    /// Notified after a claim was prepared or unprepared.
    changed: Arc<Notify>,
    /// Serializes claims, so that the end of a claim does not remove a grant that another call creates.
    lock: Mutex<()>,
    /// Prepared claims by UID. Their files may be lost.
    known: parking_lot::Mutex<BTreeMap<String, dra::Claim>>,
}

/// A group's grant, and the device of its containers.
struct GroupGrant {
    device: CdiDevice,
    requests: BTreeSet<String>,
    key: Option<String>,
    /// The requested amounts, as a text to compare; `None` if they are not known.
    text: Option<String>,
}

struct PendingClaim<'a> {
    claim: &'a dra::Claim,
    found: ResourceClaim,
    shares: Vec<Share>,
    pods: Vec<Pod>,
    users: Users,
}

impl Preparer {
    pub(crate) fn new(shared: Arc<Shared>, settings: BindSettings) -> Self {
        Self {
            shared,
            settings,
            changed: Arc::default(),
            lock: Mutex::default(),
            known: parking_lot::Mutex::default(),
        }
    }

    /// Notified after a claim was prepared or unprepared.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Whether claims are prepared, whose pods cannot end without this driver.
    pub(crate) fn has_claims(&self) -> bool {
        !self.known.lock().is_empty()
    }

    pub(crate) fn known_uids(&self) -> Vec<String> {
        self.known.lock().keys().cloned().collect()
    }

    /// Prepares a claim. For a prepared claim it returns the earlier answer.
    pub(crate) async fn prepare(&self, asked: &dra::Claim) -> Result<Vec<Prepared>, PrepareError> {
        check_uid(&asked.uid)?;
        let _lock = self.lock.lock().await;
        let prepared = match self.earlier_answer(&asked.uid).await? {
            Some(prepared) => prepared,
            None => self.prepare_anew(asked).await?,
        };
        self.known.lock().insert(asked.uid.clone(), asked.clone());
        Ok(prepared)
    }

    /// Makes the grants that are not there yet, and the files.
    async fn prepare_anew(&self, asked: &dra::Claim) -> Result<Vec<Prepared>, PrepareError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.shared.client.clone(), &asked.namespace);
        let claim = claims.get_opt(&asked.name).await?.ok_or(PrepareError::Gone)?;
        let shares = claim::shares(&claim, &asked.uid, &self.shared.node)?;
        claim::check_asked(&claim, &shares)?;
        let pods = self.pods(&asked.namespace, &claim).await?;
        let ours = shares.iter().map(|share| share.request.clone()).collect();
        let requests = Requests { all: &claim::request_names(&claim), ours: &ours };
        let mut users = find_users(&pods, &asked.name, requests)?;
        if !claim_annotations::is_of_pod(&claim) {
            users.add_unused(&ours);
        }
        for name in &users.other_claims {
            if claims.get_opt(name).await?.as_ref().is_some_and(claim::is_ours) {
                return Err(PrepareError::TwoClaims(name.clone()));
            }
        }
        let asked = PendingClaim { claim: asked, found: claim, shares, pods, users };
        let mut granted = Vec::new();
        for group in &asked.users.groups {
            match self.grant(&asked, group).await {
                // What no container uses yet keeps none from what it uses.
                Err(error) if group.containers.is_empty() && !error.is_passing() => {
                    warn!(
                        claim = asked.claim.name,
                        "a request that no container uses is not granted: {error}"
                    );
                }
                grant => granted.push(grant?),
            }
        }
        let prepared = self.write_files(&asked, &granted).await?;
        info!(
            claim = format!("{}/{}", asked.claim.namespace, asked.claim.name),
            grants = granted.iter().filter_map(|one| one.key.as_deref()).collect::<Vec<_>>().join(" "),
            gpus = granted
                .iter()
                .flat_map(|one| &one.device.gpus)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(" "),
            "prepared"
        );
        Ok(prepared)
    }

    /// The answer of an earlier call; `None` if a grant is missing.
    async fn earlier_answer(&self, uid: &str) -> Result<Option<Vec<Prepared>>, PrepareError> {
        let Some(record) = self.shared.store.read::<ClaimRecord>(uid)? else {
            return Ok(None);
        };
        for key in record.keys() {
            if self.shared.manager.find(key).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(record.prepared))
    }

    /// The existing pods for which the claim is reserved.
    pub(super) async fn pods(
        &self,
        namespace: &str,
        claim: &ResourceClaim,
    ) -> Result<Vec<Pod>, PrepareError> {
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), namespace);
        let reserved = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
        let mut pods = Vec::new();
        for user in reserved.filter(|user| user.resource == "pods") {
            let pod = api.get_opt(&user.name).await?;
            pods.extend(pod.filter(|pod| pod.metadata.uid.as_deref() == Some(user.uid.as_str())));
        }
        match pods.is_empty() {
            true => Err(PrepareError::NoPod),
            false => Ok(pods),
        }
    }

    async fn grant(&self, asked: &PendingClaim<'_>, group: &Group) -> Result<GroupGrant, PrepareError> {
        let shares = asked.shares.iter();
        let shares: Vec<&Share> = shares.filter(|share| group.requests.contains(&share.request)).collect();
        let gpus = self.uuids(&shares)?;
        let is_whole = self.are_whole(&shares)?;
        let name = group.requests.first().cloned().unwrap_or_default();
        let mut granted = GroupGrant {
            device: CdiDevice {
                name: format!("{}-{name}", asked.claim.uid),
                gpus: gpus.clone(),
                limits: None,
            },
            requests: group.requests.clone(),
            key: None,
            text: None,
        };
        let holder = grant_holder(asked.claim, group, &asked.pods);
        let change =
            claim_annotations::quota_change(&asked.found, &asked.pods, &holder, &asked.users.groups)?;
        if let Some((request, text)) = create_request(asked.claim, holder, &shares, gpus, &change)? {
            Self::check_suspendable(&shares, request.suspendable)?;
            let (grant, is_new) = self.find_or_create_grant(request).await?;
            granted.text = is_new.then_some(text);
            granted.key = Some(grant.key);
            let is_limited = !is_whole || self.settings.shim_for_whole_gpus;
            granted.device.limits = is_limited.then(|| grant.directory.into());
        }
        Ok(granted)
    }

    /// The grant with the request's key on its GPUs, and whether it is new. A present grant is kept as it is, as an operator may
    /// have changed it.
    async fn find_or_create_grant(
        &self,
        request: v1::CreateGrantRequest,
    ) -> Result<(v1::Grant, bool), PrepareError> {
        if let Some(grant) = self.shared.manager.find(&request.key).await? {
            let set = |uuids: &[String]| uuids.iter().cloned().collect::<BTreeSet<String>>();
            if set(&grant.gpu_uuids) == set(&request.gpu_uuids) {
                return Ok((grant, false));
            }
            self.shared.manager.release(&grant.id).await?;
        }
        Ok((self.shared.manager.create(request).await?, true))
    }
}
