//! Binding at a container's start: which container this is, what it was promised, which GPUs it gets; and the files that
//! tell it so. In any doubt it does not start, and kubelet asks again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tonic::Code;
use tracing::info;
use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;

use crate::amounts::{self, amounts};
use crate::cdi::{self, Holding, Inject, Store, StoreError};
use crate::demand::{Demand, Wanted, wanted};
use crate::ids::{Ids, Kind, Slot};
use crate::manager::Manager;
use crate::node::{Known, Seen};
use crate::pod_choices::PodChoices;
use crate::pods::{Holder, Pods, holder};
use crate::room::Asks;

mod error;
mod facts;
mod follow;
mod grants;

pub use error::BindError;
pub(crate) use facts::facts;

/// For all of it: kubelet waits 30 s.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Facts that do not change.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Size of a chunk of memory.
    pub chunk_bytes: u64,
    /// Whether a container that has its GPUs alone gets the shim too.
    pub shim_for_whole_cards: bool,
    /// Whether a container starts only if the shim is loaded in it.
    pub strict: bool,
    /// Folder of the device nodes.
    pub devices: PathBuf,
    /// The part that brings device nodes and the driver's libraries.
    pub inject: Inject,
    /// The driver's root on the host, and where it is seen from here.
    pub driver: (PathBuf, PathBuf),
}

/// Binds containers.
#[derive(Debug)]
pub struct Binder {
    rules: Rules,
    pods: Arc<Pods>,
    manager: Arc<Manager>,
    store: Store,
    node: Known,
    pod_choices: Arc<dyn PodChoices>,
    room: Asks,
    /// One container at a time from here on: one must not take a grant away that another is giving.
    turn: Mutex<()>,
}

/// A container at its start.
struct Bound<'a> {
    slot: Slot,
    /// The container's name.
    name: &'a str,
    /// Whether it gets the shim.
    is_limited: bool,
    holder: &'a Holder,
    held: Holding,
    /// The amounts that it wants, defaults included, as a text to compare.
    asked: String,
}

impl Binder {
    /// One with these.
    #[must_use]
    pub fn new(
        rules: Rules,
        pods: Arc<Pods>,
        manager: Arc<Manager>,
        store: Store,
        node: Known,
        pod_choices: Arc<dyn PodChoices>,
        room: Asks,
    ) -> Self {
        Self {
            rules,
            pods,
            manager,
            store,
            node,
            pod_choices,
            room,
            turn: Mutex::default(),
        }
    }

    /// Removes the specification of a slot before another container gets the slot.
    ///
    /// # Errors
    /// It may still be there.
    pub async fn forget(&self, slot: &Slot) -> Result<(), BindError> {
        let (store, slot) = (self.store.clone(), slot.clone());
        blocking(move || store.remove(&slot)).await?;
        Ok(())
    }

    /// Binds the container that holds these shares, for its start.
    ///
    /// # Errors
    /// See [`BindError`]: the container must not start.
    pub async fn bind(&self, shares: &Ids) -> Result<(), BindError> {
        let work = self.bind_in_time(shares);
        tokio::time::timeout(DEADLINE, work)
            .await
            .map_err(|_| BindError::Late)?
    }

    /// Sees that the container with these chunks or percents has a share of a GPU too, whose binding is another call's.
    ///
    /// # Errors
    /// It has none; or it is not known which container this is.
    pub async fn has_gpu(&self, kind: Kind, ids: &Ids) -> Result<(), BindError> {
        let work = async {
            let holder = holder(&*self.pods.ask().await?, kind, ids)?;
            for (name, devices) in &holder.containers {
                if devices.of(Kind::Gpu).is_empty() {
                    self.wanted(&holder, name, Demand::of(devices))?;
                }
            }
            Ok(())
        };
        tokio::time::timeout(DEADLINE, work)
            .await
            .map_err(|_| BindError::Late)?
    }

    async fn bind_in_time(&self, shares: &Ids) -> Result<(), BindError> {
        let slot = Slot::of(shares);
        let holder = holder(&*self.pods.ask().await?, Kind::Gpu, shares)?;
        let mut demand = Demand::default();
        let mut ids = [shares.clone(), Ids::new(), Ids::new()];
        for (name, devices) in &holder.containers {
            if let Some(foreign) = devices.foreign.first() {
                return Err(BindError::Foreign(named(&holder, name), foreign.clone()));
            }
            demand = demand.or_more(Demand::of(devices));
            for (own, more) in ids.iter_mut().zip(&devices.ids) {
                own.extend(more);
            }
        }
        let name = holder.containers.keys().next_back().map_or("", String::as_str);
        let wanted = self.wanted(&holder, name, demand)?;
        let held = Holding {
            pod: pod_name(&holder),
            pod_uid: holder.pod_uid.clone(),
            ids,
        };
        let (request, asked) = self.request(&slot, &holder, name, &wanted).await?;
        let one = Bound {
            slot,
            name,
            is_limited: wanted.memory_bytes.is_some() || self.rules.shim_for_whole_cards,
            holder: &holder,
            held,
            asked,
        };
        let given = self.give(&one, request.clone()).await;
        match given {
            // Devices of ended pods are free as soon as they are looked for.
            Err(BindError::Refused(error))
                if error.code() == Code::ResourceExhausted && self.room.make().await =>
            {
                self.give(&one, request).await
            }
            given => given,
        }
    }

    /// Grants, and writes the container's files.
    async fn give(&self, one: &Bound<'_>, request: v1::CreateGrantRequest) -> Result<(), BindError> {
        let _turn = self.turn.lock().await;
        self.supersede(&one.slot, &one.held).await?;
        let grant = self.granted(&one.slot, one.holder, request, &one.asked).await?;
        let facts = self.facts().await?;
        let grant = cdi::Grant {
            slot: one.slot.clone(),
            id: grant.id,
            directory: grant.directory.into(),
            gpus: grant.gpu_uuids,
            is_limited: one.is_limited,
            held: one.held.clone(),
            asked: one.asked.clone(),
        };
        let spec = cdi::spec(&facts, &grant)?;
        let store = self.store.clone();
        let record = grant.record();
        blocking(move || store.write(&record, &spec)).await?;
        info!(
            pod = pod_name(one.holder),
            container = one.name,
            grant = grant.id,
            gpus = grant.gpus.join(" "),
            "bound"
        );
        Ok(())
    }

    fn wanted(&self, holder: &Holder, name: &str, demand: Demand) -> Result<Wanted, BindError> {
        let seen: Arc<Seen> = self.node.borrow().clone().unwrap_or_default();
        wanted(demand, self.rules.chunk_bytes, &seen.gpus, self.pods.names())
            .map_err(|error| BindError::Demand(named(holder, name), error))
    }

    /// The request to the manager, and its amounts as a text with all defaults.
    async fn request(
        &self,
        slot: &Slot,
        holder: &Holder,
        name: &str,
        wanted: &Wanted,
    ) -> Result<(v1::CreateGrantRequest, String), BindError> {
        let words = v1::Holder {
            namespace: holder.namespace.clone(),
            pod: holder.pod.clone(),
            container: name.to_owned(),
            pod_uid: holder.pod_uid.clone(),
        };
        let wrong = |why| BindError::Choice(named(holder, name), why);
        let choice: QuotaChange = self
            .pod_choices
            .quota_change(&words, &holder.names)
            .await
            .map_err(wrong)?;
        let amounts = amounts(wanted, &choice).map_err(|error| wrong(error.to_string()))?;
        let request = v1::CreateGrantRequest {
            request_id: request_id(slot, &words, &amounts),
            key: slot.to_string(),
            holder: Some(words),
            amounts: Some(amounts::chosen(&amounts, &choice)),
            gpu_count: wanted.gpus,
            include_gpu_uuids: wanted.among.clone(),
            ..v1::CreateGrantRequest::default()
        };
        Ok((request, amounts::text(&amounts)))
    }
}

/// The same for the same request, and for no other.
fn request_id(slot: &Slot, holder: &v1::Holder, amounts: &v1::Amounts) -> String {
    let mut hash = Sha256::new();
    for word in [&holder.namespace, &holder.pod, &holder.pod_uid] {
        hash.update(word);
        hash.update("\n");
    }
    hash.update(amounts::text(amounts));
    let digest: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{slot}-{digest}")
}

/// `namespace/pod`; by its UID where it has no name.
fn pod_name(holder: &Holder) -> String {
    match holder.pod.is_empty() {
        true => format!("the pod with UID {}", holder.pod_uid),
        false => format!("{}/{}", holder.namespace, holder.pod),
    }
}

fn named(holder: &Holder, container: &str) -> String {
    format!("{}, container {container}", pod_name(holder))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, BindError> {
    match spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(BindError::Stopping),
    }
}
