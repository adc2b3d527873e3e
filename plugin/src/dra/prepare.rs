//! Preparation of a claim: a grant of the manager for each group of requests, and the files by which containers receive it.
//! Whatever fails leaves a claim that is not prepared, and kubelet asks again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tracing::info;
use vcuda_kubelet_api::dra;
use vcuda_manager_api::v1;

use super::claim::{self, Share};
use super::gpus::Gpus;
use super::grants::request;
use super::users::{Group, users};
use crate::bind::{Rules, facts};
use crate::cdi::{ClaimDevice, ClaimRecord, Prepared, Store, StoreError, claim_spec};
use crate::manager::Manager;

mod error;
mod names;

pub use error::PrepareError;
use names::check;
pub(super) use names::{KEYS, hash, prefix};

/// Prepares claims.
pub(crate) struct Preparer {
    client: Client,
    manager: Arc<Manager>,
    store: Store,
    rules: Rules,
    gpus: Gpus,
    /// Name of the node, and of its pool.
    node: String,
    /// One claim at a time: what one gives, another's end must not take away.
    turn: Mutex<()>,
}

/// A group's grant, and what its containers receive.
struct Granted {
    device: ClaimDevice,
    requests: BTreeSet<String>,
    key: Option<String>,
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
            turn: Mutex::default(),
        }
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
        let mut granted = Vec::new();
        for group in &users.groups {
            granted.push(self.grant(asked, group, &shares, &pods).await?);
        }
        self.write(asked, &shares, &granted).await
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

    async fn grant(
        &self,
        asked: &dra::Claim,
        group: &Group,
        shares: &[Share],
        pods: &[Pod],
    ) -> Result<Granted, PrepareError> {
        let shares: Vec<&Share> = shares
            .iter()
            .filter(|share| group.requests.contains(&share.request))
            .collect();
        let gpus = self.uuids(&shares)?;
        let name = group.requests.first().cloned().unwrap_or_default();
        let mut granted = Granted {
            device: ClaimDevice {
                name: format!("{}-{name}", asked.uid),
                gpus: gpus.clone(),
                limits: None,
            },
            requests: group.requests.clone(),
            key: None,
        };
        if let Some(request) = request(asked, group, &shares, gpus, pods)? {
            let grant = self.granted(request).await?;
            info!(
                claim = format!("{}/{}", asked.namespace, asked.name),
                grant = grant.id,
                gpus = granted.device.gpus.join(" "),
                "prepared"
            );
            granted.key = Some(grant.key);
            granted.device.limits = Some(grant.directory.into());
        }
        Ok(granted)
    }

    /// The grant of this key on these GPUs: the one that there is, as an operator may have changed it since, or a new one.
    async fn granted(&self, request: v1::CreateGrantRequest) -> Result<v1::Grant, PrepareError> {
        if let Some(grant) = self.manager.find(&request.key).await? {
            let set = |uuids: &[String]| uuids.iter().cloned().collect::<BTreeSet<String>>();
            if set(&grant.gpu_uuids) == set(&request.gpu_uuids) {
                return Ok(grant);
            }
            self.manager.release(&grant.id).await?;
        }
        Ok(self.manager.create(request).await?)
    }

    /// UUIDs of the shares' GPUs, each once.
    fn uuids(&self, shares: &[&Share]) -> Result<Vec<String>, PrepareError> {
        let known = self.gpus.borrow().clone();
        let known = known.ok_or(PrepareError::NotYet)?;
        let mut uuids: BTreeMap<String, &Share> = BTreeMap::new();
        for share in shares {
            let uuid = known
                .uuid(&share.device)
                .ok_or_else(|| PrepareError::NoDevice(share.device.clone()))?;
            if let Some(other) = uuids.insert(uuid.to_owned(), share) {
                let [first, second] = [other, *share].map(|share| share.request.clone());
                return Err(PrepareError::SameGpu(first, second, share.device.clone()));
            }
        }
        Ok(uuids.into_keys().collect())
    }

    async fn write(
        &self,
        asked: &dra::Claim,
        shares: &[Share],
        granted: &[Granted],
    ) -> Result<Vec<Prepared>, PrepareError> {
        let known = self.gpus.borrow().clone();
        let minors = known.iter().flat_map(|gpus| gpus.minors());
        let facts = facts(&self.manager, &self.rules, minors.collect::<Vec<_>>().into_iter()).await?;
        let devices: Vec<ClaimDevice> = granted.iter().map(|granted| granted.device.clone()).collect();
        let spec = claim_spec(&facts, &devices)?;
        let record = ClaimRecord {
            namespace: asked.namespace.clone(),
            name: asked.name.clone(),
            uid: asked.uid.clone(),
            keys: granted.iter().filter_map(|granted| granted.key.clone()).collect(),
            prepared: answer(&self.node, shares, granted),
        };
        let (store, written) = (self.store.clone(), record.clone());
        blocking(move || store.write_claim(&spec, &written)).await?;
        Ok(record.prepared)
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

/// One answer for each share. The group's CDI device is named once: all its containers use all its requests, and would receive it
/// twice.
fn answer(pool: &str, shares: &[Share], granted: &[Granted]) -> Vec<Prepared> {
    let mut named = BTreeSet::new();
    let cdi = |share: &Share, named: &mut BTreeSet<String>| {
        let of = granted
            .iter()
            .find(|granted| granted.requests.contains(&share.request))?;
        let name = of.device.qualified();
        named.insert(name.clone()).then_some(name)
    };
    shares
        .iter()
        .map(|share| Prepared {
            request: share.request.clone(),
            pool: pool.to_owned(),
            device: share.device.clone(),
            share_id: share.share_id.clone(),
            cdi: cdi(share, &mut named).into_iter().collect(),
        })
        .collect()
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, PrepareError> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(PrepareError::NotYet),
    }
}
