//! Preparation of a claim: a grant of the manager for each group of requests, and the files by which containers receive it.
//! Whatever fails leaves a claim that is not prepared, and kubelet asks again.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};
use tokio::sync::{Mutex, Notify};
use tokio::task::spawn_blocking;
use tracing::info;
use vcuda_kubelet_api::dra;
use vcuda_manager_api::v1;

use super::chosen;
use super::claim::{self, Share};
use super::gpus::Gpus;
use super::grants::{holder, request};
use super::users::{Group, Users, users};
use crate::bind::Rules;
use crate::cdi::{ClaimDevice, Prepared, Store, StoreError};
use crate::manager::Manager;

mod devices;
mod error;
mod names;
mod record;

pub use error::PrepareError;
pub(super) use error::REASONS;
use names::check;
pub(super) use names::{hash, prefix};

/// Prepares claims.
pub(crate) struct Preparer {
    client: Client,
    manager: Arc<Manager>,
    store: Store,
    rules: Rules,
    gpus: Gpus,
    /// Name of the node, and of its pool.
    node: String,
    /// Notified when a claim was prepared or undone.
    changed: Arc<Notify>,
    /// One claim at a time: what one gives, another's end must not take away.
    turn: Mutex<()>,
}

/// A group's grant, and what its containers receive.
struct Granted {
    device: ClaimDevice,
    requests: BTreeSet<String>,
    key: Option<String>,
    /// The amounts that were asked of the manager for it, as a text to compare; `None` where they are not known.
    text: Option<String>,
}

/// A claim that is being prepared.
struct Asked<'a> {
    claim: &'a dra::Claim,
    found: ResourceClaim,
    shares: Vec<Share>,
    pods: Vec<Pod>,
    users: Users,
}

impl Preparer {
    /// One for the claims of `node`.
    #[must_use]
    pub(crate) fn new(
        client: Client,
        manager: Arc<Manager>,
        store: Store,
        rules: Rules,
        gpus: Gpus,
        node: String,
    ) -> Self {
        Self {
            client,
            manager,
            store,
            rules,
            gpus,
            node,
            changed: Arc::default(),
            turn: Mutex::default(),
        }
    }

    /// Notified when a claim was prepared or undone.
    #[must_use]
    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Prepares a claim; one that is prepared is answered as before.
    ///
    /// # Errors
    /// See [`PrepareError`].
    pub(crate) async fn prepare(&self, asked: &dra::Claim) -> Result<Vec<Prepared>, PrepareError> {
        check(&asked.uid)?;
        let _turn = self.turn.lock().await;
        if let Some(prepared) = self.prepared(&asked.uid).await? {
            return Ok(prepared);
        }
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &asked.namespace);
        let claim = claims.get_opt(&asked.name).await?.ok_or(PrepareError::Gone)?;
        let shares = claim::shares(&claim, &asked.uid, &self.node)?;
        let pods = self.pods(&asked.namespace, &claim).await?;
        let requests = shares.iter().map(|share| share.request.clone()).collect();
        let users = users(&pods, &asked.name, &requests)?;
        for name in &users.beside {
            if claims.get_opt(name).await?.as_ref().is_some_and(claim::is_ours) {
                return Err(PrepareError::TwoClaims(name.clone()));
            }
        }
        let asked = Asked {
            claim: asked,
            found: claim,
            shares,
            pods,
            users,
        };
        let mut granted = Vec::new();
        for group in &asked.users.groups {
            granted.push(self.grant(&asked, group).await?);
        }
        self.write(&asked, &granted).await
    }

    /// The answer of an earlier call, if all its grants are there.
    async fn prepared(&self, uid: &str) -> Result<Option<Vec<Prepared>>, PrepareError> {
        let (store, of) = (self.store.clone(), uid.to_owned());
        let Some(record) = blocking(move || store.claim(&of)).await? else {
            return Ok(None);
        };
        for key in &record.keys {
            if self.manager.find(key).await?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(record.prepared))
    }

    /// The pods for which the claim is reserved, as far as they are there.
    async fn pods(&self, namespace: &str, claim: &ResourceClaim) -> Result<Vec<Pod>, PrepareError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let reserved = claim
            .status
            .iter()
            .flat_map(|status| status.reserved_for.iter().flatten());
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

    async fn grant(&self, asked: &Asked<'_>, group: &Group) -> Result<Granted, PrepareError> {
        let shares = asked.shares.iter();
        let shares: Vec<&Share> = shares
            .filter(|share| group.requests.contains(&share.request))
            .collect();
        let gpus = self.uuids(&shares)?;
        let is_whole = self.are_whole(&shares)?;
        let name = group.requests.first().cloned().unwrap_or_default();
        let mut granted = Granted {
            device: ClaimDevice {
                name: format!("{}-{name}", asked.claim.uid),
                gpus: gpus.clone(),
                limits: None,
            },
            requests: group.requests.clone(),
            key: None,
            text: None,
        };
        let holder = holder(asked.claim, group, &asked.pods);
        let choice = chosen::at_start(&asked.found, &asked.pods, &holder, &asked.users.groups)?;
        if let Some((request, text)) = request(asked.claim, holder, &shares, gpus, &choice)? {
            let (grant, is_new) = self.granted(request).await?;
            info!(
                claim = format!("{}/{}", asked.claim.namespace, asked.claim.name),
                grant = grant.id,
                gpus = granted.device.gpus.join(" "),
                "prepared"
            );
            granted.text = is_new.then_some(text);
            granted.key = Some(grant.key);
            let is_limited = !is_whole || self.rules.shim_for_whole_cards;
            granted.device.limits = is_limited.then(|| grant.directory.into());
        }
        Ok(granted)
    }

    /// The grant of this key on these GPUs: the one that there is, as an operator may have changed it since, or a new one; and
    /// whether it is new.
    async fn granted(&self, request: v1::CreateGrantRequest) -> Result<(v1::Grant, bool), PrepareError> {
        if let Some(grant) = self.manager.find(&request.key).await? {
            let set = |uuids: &[String]| uuids.iter().cloned().collect::<BTreeSet<String>>();
            if set(&grant.gpu_uuids) == set(&request.gpu_uuids) {
                return Ok((grant, false));
            }
            self.manager.release(&grant.id).await?;
        }
        Ok((self.manager.create(request).await?, true))
    }

    /// Undoes what was done for a claim. One that is not prepared is undone.
    ///
    /// # Errors
    /// Processes of its containers still run, the manager is away, or the files cannot be removed.
    pub(crate) async fn unprepare(&self, uid: &str) -> Result<(), PrepareError> {
        check(uid)?;
        let _turn = self.turn.lock().await;
        // The files go first: no container may start with a grant that is being released.
        let (store, of) = (self.store.clone(), uid.to_owned());
        blocking(move || store.remove_claim(&of)).await?;
        self.changed.notify_one();
        let prefix = prefix(uid);
        for grant in self.manager.list().await? {
            if grant.key.starts_with(&prefix) {
                self.manager.release(&grant.id).await?;
                info!(uid, grant = grant.id, "undone");
            }
        }
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, PrepareError> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(PrepareError::NotYet),
    }
}
