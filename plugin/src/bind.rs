//! Binding at a container's start: who this is, what it was promised, which cards it gets; and the files that tell it so.
//! In any doubt it does not start, and kubelet asks again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tonic::{Code, Status};
use tracing::{info, warn};
use vcuda_manager_api::v1;

use crate::amounts::{self, amounts};
use crate::annotations::Choice;
use crate::cdi::{self, Facts, FactsError, Holding, Inject, Record, Shim, Store, StoreError};
use crate::cluster::Cluster;
use crate::competition::Competitions;
use crate::demand::{Demand, DemandError, Wanted, wanted};
use crate::driver::{self, DriverError};
use crate::ids::{Ids, Kind, Slot};
use crate::manager::{Manager, ManagerError};
use crate::node::{Known, Seen};
use crate::pods::{Holder, HolderError, Pods, PodsError, holder};

/// For all of it: kubelet waits 30 s.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Why a container does not start. Kubelet shows the text in the pod's events, and asks again.
#[derive(Debug, Error)]
pub enum BindError {
    /// Kubelet does not say who it is.
    #[error("{0}; nothing is granted before that is known")]
    Pods(#[from] PodsError),
    /// It is in doubt who it is.
    #[error("{0}; nothing is granted in doubt")]
    Holder(#[from] HolderError),
    /// What it asks for cannot be.
    #[error("{}: {}", .0, .1)]
    Demand(String, DemandError),
    /// Its devices are not ours.
    #[error("{0}: kubelet names {1:?} among its devices, which is none of this plugin's: delete the pod")]
    Foreign(String, String),
    /// Its annotations are wrong, or do not go with what it asks for.
    #[error("{0}: {1}")]
    Choice(String, String),
    /// There is no driver to bring.
    #[error("{0}")]
    Driver(#[from] DriverError),
    /// No card has what it asks for; or the manager refuses for another reason.
    #[error("{0}")]
    Refused(ManagerError),
    /// Those who had these devices before still run.
    #[error("{0}: processes of the container that had these devices before ({1}) still run: {2}")]
    StillUsed(String, String, ManagerError),
    /// What the specification needs is not known.
    #[error("{0}")]
    Facts(#[from] FactsError),
    /// The specification cannot be written.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// It took too long.
    #[error(
        "it was not known within {DEADLINE:?} whose devices these are and what is free; kubelet asks again"
    )]
    Late,
    /// The plugin is ending.
    #[error("the device plugin is stopping; kubelet asks again")]
    Stopping,
}

impl From<ManagerError> for BindError {
    fn from(error: ManagerError) -> Self {
        Self::Refused(error)
    }
}

impl From<BindError> for Status {
    fn from(error: BindError) -> Self {
        let code = match &error {
            BindError::Pods(_) | BindError::Stopping | BindError::Store(_) => Code::Unavailable,
            BindError::Late => Code::DeadlineExceeded,
            BindError::Refused(refused) => refused.code(),
            _ => Code::FailedPrecondition,
        };
        Status::new(code, error.to_string())
    }
}

/// What does not change.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Of a chunk of memory.
    pub chunk_bytes: u64,
    /// Whether a container that has its cards alone gets the shim too.
    pub shim_for_whole_cards: bool,
    /// Where device nodes are.
    pub devices: PathBuf,
    /// Who brings device nodes and the driver's libraries.
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
    competitions: Arc<dyn Competitions>,
    /// One container at a time from here on: what one takes away, another must not be giving.
    turn: Mutex<()>,
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
        competitions: Arc<dyn Competitions>,
    ) -> Self {
        Self {
            rules,
            pods,
            manager,
            store,
            node,
            competitions,
            turn: Mutex::default(),
        }
    }

    /// Takes the specification of a slot away: what comes is another container.
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

    /// Sees that the container with these chunks or percents has a share of a card too, whose binding is another call's.
    ///
    /// # Errors
    /// It has none; or it is not known which container this is.
    pub async fn has_card(&self, kind: Kind, ids: &Ids) -> Result<(), BindError> {
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
        let request = self.request(&slot, &holder, name, &wanted).await?;
        let asked = amounts::text(&request.amounts.unwrap_or_default());

        let _turn = self.turn.lock().await;
        self.supersede(&slot, &held).await?;
        let grant = self.granted(&slot, &holder, request, &asked).await?;
        let facts = self.facts().await?;
        let is_whole = wanted.memory_bytes.is_none();
        let grant = cdi::Grant {
            slot: slot.clone(),
            id: grant.id,
            directory: grant.directory.into(),
            gpus: grant.gpu_uuids,
            is_limited: !is_whole || self.rules.shim_for_whole_cards,
            held,
            asked,
        };
        let spec = cdi::spec(&facts, &grant)?;
        let store = self.store.clone();
        blocking(move || store.write(&slot, &spec)).await?;
        info!(
            pod = pod_name(&holder),
            container = name,
            grant = grant.id,
            gpus = grant.gpus.join(" "),
            "bound"
        );
        Ok(())
    }

    fn wanted(&self, holder: &Holder, name: &str, demand: Demand) -> Result<Wanted, BindError> {
        let seen: Arc<Seen> = self.node.borrow().clone().unwrap_or_default();
        wanted(demand, self.rules.chunk_bytes, &seen.cards, self.pods.names())
            .map_err(|error| BindError::Demand(named(holder, name), error))
    }

    async fn request(
        &self,
        slot: &Slot,
        holder: &Holder,
        name: &str,
        wanted: &Wanted,
    ) -> Result<v1::CreateGrantRequest, BindError> {
        let words = v1::Holder {
            namespace: holder.namespace.clone(),
            pod: holder.pod.clone(),
            container: name.to_owned(),
            pod_uid: holder.pod_uid.clone(),
        };
        let wrong = |why| BindError::Choice(named(holder, name), why);
        let choice: Choice = self.competitions.of(&words).await.map_err(wrong)?;
        let amounts = amounts(wanted, &choice).map_err(|error| wrong(error.to_string()))?;
        Ok(v1::CreateGrantRequest {
            request_id: request_id(slot, &words, &amounts),
            key: slot.to_string(),
            holder: Some(words),
            amounts: Some(amounts),
            gpu_count: wanted.cards,
            include_gpu_uuids: wanted.among.clone(),
            ..v1::CreateGrantRequest::default()
        })
    }

    /// Ends the grants of those who had one of these devices before. Kubelet gives a device to another container only when
    /// that one is gone, or was an init container of the same pod that has ended. In one pod only shares say so: chunks that
    /// an init container leaves over go to any of the others.
    async fn supersede(&self, slot: &Slot, held: &Holding) -> Result<(), BindError> {
        let store = self.store.clone();
        let records = blocking(move || store.records()).await?;
        let shares_any = |record: &Record| {
            let overlap = |kind: Kind| !record.held.of(kind).is_disjoint(held.of(kind));
            match record.held.is_same_pod(held) {
                true => overlap(Kind::Gpu),
                false => Kind::ALL.into_iter().any(overlap),
            }
        };
        for record in records
            .iter()
            .filter(|record| record.slot != *slot && shares_any(record))
        {
            let Some(grant) = self.manager.find(record.slot.as_str()).await? else {
                self.forget(&record.slot).await?;
                continue;
            };
            info!(
                grant = grant.id,
                pod = record.held.pod,
                "superseded: its devices are another container's now"
            );
            self.end(&grant, &record.slot, &held.pod).await?;
        }
        Ok(())
    }

    /// Specification first: nobody starts on what is being taken away.
    async fn end(&self, grant: &v1::Grant, slot: &Slot, pod: &str) -> Result<(), BindError> {
        self.forget(slot).await?;
        match self.manager.release(&grant.id).await {
            Err(error) if error.code() == Code::FailedPrecondition => {
                Err(BindError::StillUsed(pod.to_owned(), grant.id.clone(), error))
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }

    /// The same grant for the same container; a new one for another.
    async fn granted(
        &self,
        slot: &Slot,
        holder: &Holder,
        request: v1::CreateGrantRequest,
        asked: &str,
    ) -> Result<v1::Grant, BindError> {
        let Some(grant) = self.manager.find(slot.as_str()).await? else {
            return Ok(self.manager.create(request).await?);
        };
        let record = self.record(slot).await?;
        let is_same = is_same_pod(&grant, holder, record.is_some());
        if is_same && self.are_usable(&grant) && is_among(&grant, &request) {
            let is_asked = record.is_some_and(|record| record.id == grant.id && record.asked == asked);
            return match is_asked {
                // What an operator has changed since stays changed.
                true => Ok(grant),
                false => self.kept(grant, request).await,
            };
        }
        if is_same {
            warn!(
                grant = grant.id,
                "one of its cards cannot be used: another is looked for"
            );
        }
        self.end(&grant, slot, &pod_name(holder)).await?;
        Ok(self.manager.create(request).await?)
    }

    /// A grant that stays, with what is wanted now: more, if an heir needs more than the init container before it; other
    /// amounts, if the pod's annotations have changed.
    async fn kept(&self, grant: v1::Grant, request: v1::CreateGrantRequest) -> Result<v1::Grant, BindError> {
        let text = |of: &Option<v1::Amounts>| of.as_ref().map(amounts::text);
        if text(&grant.amounts) == text(&request.amounts) {
            return Ok(grant);
        }
        let resize = v1::ResizeGrantRequest {
            request_id: request.request_id,
            id: grant.id,
            amounts: request.amounts,
            expected_generation: grant.generation,
        };
        Ok(self.manager.resize(resize).await?)
    }

    async fn record(&self, slot: &Slot) -> Result<Option<Record>, BindError> {
        let store = self.store.clone();
        let records = blocking(move || store.records()).await?;
        Ok(records.into_iter().find(|record| record.slot == *slot))
    }

    fn are_usable(&self, grant: &v1::Grant) -> bool {
        let Some(seen) = self.node.borrow().clone() else {
            return true;
        };
        let is_well = |uuid: &String| {
            let card = seen.cards.iter().find(|card| card.uuid == *uuid);
            card.is_some_and(|card| card.state != crate::resources::State::Unhealthy)
        };
        grant.gpu_uuids.iter().all(is_well)
    }

    async fn facts(&self) -> Result<Facts, BindError> {
        let status = self.manager.status().await?;
        let shim = (!status.shim_library.is_empty()).then(|| Shim {
            library: status.shim_library.into(),
            preload: status.shim_preload.into(),
        });
        let driver = match self.rules.inject {
            Inject::Cdi => {
                let (root, view) = self.rules.driver.clone();
                let found = spawn_blocking(move || driver::find(&root, &view)).await;
                found.map_err(|_| BindError::Stopping)??
            }
            Inject::ToolkitEnv | Inject::ToolkitMounts => Vec::new(),
        };
        let control = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
        let seen = self.node.borrow().clone().unwrap_or_default();
        let nodes = seen.cards.iter().filter_map(|card| {
            let minor = card.minor_number?;
            Some((card.uuid.clone(), format!("nvidia{minor}")))
        });
        Ok(Facts {
            shim,
            program: (!status.program.is_empty()).then(|| status.program.into()),
            inject: self.rules.inject,
            devices: self.rules.devices.clone(),
            control_nodes: control.map(str::to_owned).to_vec(),
            gpu_nodes: nodes.collect::<BTreeMap<_, _>>(),
            driver,
        })
    }

    /// Gives each grant of ours what its pod's annotations choose now. Returns why some do not follow, by grant.
    ///
    /// # Errors
    /// Manager or specifications cannot be asked at all.
    pub async fn follow(&self, cluster: &Cluster) -> Result<BTreeMap<String, String>, BindError> {
        let store = self.store.clone();
        let records = blocking(move || store.records()).await?;
        let mut grants: BTreeMap<String, v1::Grant> = BTreeMap::new();
        if !records.is_empty() {
            grants.extend(
                self.manager
                    .list()
                    .await?
                    .into_iter()
                    .map(|grant| (grant.id.clone(), grant)),
            );
        }
        let mut refusals = BTreeMap::new();
        for record in records {
            let Some(grant) = grants.remove(&record.id) else {
                continue;
            };
            let holder = grant.holder.clone().unwrap_or_default();
            // Of a pod that is not known (any more) nothing is known to have changed.
            let Some(choice) = cluster.known(&holder) else {
                continue;
            };
            let (id, followed) = match choice {
                Ok(choice) => (grant.id.clone(), self.follow_one(&record, grant, &choice).await),
                Err(error) => (grant.id.clone(), Err(error.to_string())),
            };
            if let Err(why) = followed {
                refusals.insert(id, format!("{}/{}: {why}", holder.namespace, holder.pod));
            }
        }
        Ok(refusals)
    }

    async fn follow_one(&self, record: &Record, grant: v1::Grant, choice: &Choice) -> Result<(), String> {
        let count = |kind| u32::try_from(record.held.of(kind).len()).unwrap_or(u32::MAX);
        let demand = Demand {
            cards: count(Kind::Gpu),
            chunks: count(Kind::Memory),
            percents: count(Kind::Cores),
        };
        let seen = self.node.borrow().clone().unwrap_or_default();
        let wanted = wanted(demand, self.rules.chunk_bytes, &seen.cards, self.pods.names())
            .map_err(|error| error.to_string())?;
        let amounts = amounts(&wanted, choice).map_err(|error| error.to_string())?;
        let asked = amounts::text(&amounts);
        if asked == record.asked {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        let resize = v1::ResizeGrantRequest {
            request_id: request_id(&record.slot, &grant.holder.clone().unwrap_or_default(), &amounts),
            id: grant.id.clone(),
            amounts: Some(amounts),
            expected_generation: grant.generation,
        };
        self.manager
            .resize(resize)
            .await
            .map_err(|error| error.to_string())?;
        let (store, slot, text) = (self.store.clone(), record.slot.clone(), asked.clone());
        let noted = blocking(move || store.note(&slot, &text)).await;
        noted.map_err(|error| error.to_string())?;
        info!(grant = grant.id, asked, "follows its annotations");
        Ok(())
    }
}

/// Whether the grant is this pod's. Without a UID on both sides, names are what is left; and then a specification that is
/// still there says that kubelet has given these devices to nobody since.
fn is_same_pod(grant: &v1::Grant, holder: &Holder, has_spec: bool) -> bool {
    let held = grant.holder.clone().unwrap_or_default();
    if !held.pod_uid.is_empty() && !holder.pod_uid.is_empty() {
        return held.pod_uid == holder.pod_uid;
    }
    has_spec && !holder.pod.is_empty() && held.namespace == holder.namespace && held.pod == holder.pod
}

/// Whether the grant's cards are what the request would get now.
fn is_among(grant: &v1::Grant, request: &v1::CreateGrantRequest) -> bool {
    let among = &request.include_gpu_uuids;
    let count = u32::try_from(grant.gpu_uuids.len()).unwrap_or(u32::MAX);
    count == request.gpu_count
        && (among.is_empty() || grant.gpu_uuids.iter().all(|uuid| among.contains(uuid)))
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
