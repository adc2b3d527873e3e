//! Binding of a container to its GPUs at its start: it finds the container, computes its amounts, creates the grant and writes
//! the container's files. If anything is in doubt the container does not start, and kubelet tries again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tonic::Code;
use tracing::info;
use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;
use vcuda_quota::pods::AmountsError;

use crate::amounts::{Asked, asked};
use crate::cdi::{CdiDevice, HeldDevices, Inject, SlotRecord, Store, spec};
use crate::cluster::Cluster;
use crate::gpu_request::{GpuRequest, device_counts, gpu_request};
use crate::ids::{Ids, Kind, Slot, digest};
use crate::manager::Manager;
use crate::node::{NodeReceiver, NodeState};
use crate::pods::{Devices, Holder, Pods, find_holder};
use crate::reclaim::ReclaimSender;

mod error;
mod grants;
mod parts;
mod reconcile;
mod spec_inputs;
mod starts;

pub(crate) use error::BindError;
pub(crate) use spec_inputs::spec_inputs;
use starts::Starts;

/// Deadline of a binding. Kubelet waits 30 s.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Settings of the configuration for bindings.
#[derive(Debug, Clone)]
pub(crate) struct BindSettings {
    pub(crate) chunk_bytes: u64,
    /// Whether a container that has its GPUs alone gets the shim too.
    pub(crate) shim_for_whole_gpus: bool,
    /// Whether a container starts only if the shim is loaded in it.
    pub(crate) strict: bool,
    pub(crate) devices: PathBuf,
    /// The part that brings device nodes and the driver's libraries.
    pub(crate) inject: Inject,
    /// The driver's root on the host, and the path at which this process sees it.
    pub(crate) driver: (PathBuf, PathBuf),
}

#[derive(Debug)]
pub(crate) struct Binder {
    settings: BindSettings,
    pods: Arc<Pods>,
    manager: Arc<Manager>,
    store: Store,
    node: NodeReceiver,
    /// The pods' annotations; `None` without an API server.
    cluster: Option<Cluster>,
    reclaim: ReclaimSender,
    starts: Starts,
    /// Serializes grants and files: without it, a binding could end a grant that another binding is creating.
    lock: Mutex<()>,
}

/// A container at its start.
struct StartingContainer<'a> {
    slot: Slot,
    name: &'a str,
    is_limited: bool,
    holder: &'a Holder,
    held: HeldDevices,
    /// The requested amounts with their defaults, as a text to compare.
    asked: String,
}

impl Binder {
    pub(crate) fn new(
        settings: BindSettings,
        pods: Arc<Pods>,
        manager: Arc<Manager>,
        store: Store,
        node: NodeReceiver,
        cluster: Option<Cluster>,
        reclaim: ReclaimSender,
    ) -> Self {
        Self {
            settings,
            pods,
            manager,
            store,
            node,
            cluster,
            reclaim,
            starts: Starts::default(),
            lock: Mutex::default(),
        }
    }

    /// Removes the specification of a slot, before another container gets the slot.
    ///
    /// # Errors
    /// The specification may still be there.
    pub(crate) fn remove_spec(&self, slot: &Slot) -> Result<(), BindError> {
        self.store.remove::<SlotRecord>(slot.as_str())?;
        Ok(())
    }

    /// Binds the container that starts, of which kubelet names the devices of one kind. It makes such a call for each kind.
    pub(crate) async fn bind(&self, kind: Kind, ids: &Ids) -> Result<(), BindError> {
        let work = self.bind_starting(kind, ids);
        tokio::time::timeout(DEADLINE, work).await.map_err(|_| BindError::Late)?
    }

    async fn bind_starting(&self, kind: Kind, ids: &Ids) -> Result<(), BindError> {
        let snapshot = self.pods.snapshot().await?;
        let holder = find_holder(&snapshot, kind, ids)?;
        for (name, devices) in &holder.containers {
            if devices.ids_of(Kind::Gpu).is_empty() {
                self.gpu_request(&holder, name, &devices.ids)?;
            }
        }
        match self.starts.starting(kind, ids, &holder, &snapshot) {
            // The call for the shares tells enough, and comes in any case.
            Some((_, devices)) if kind != Kind::Gpu && !holder.are_shares_reused(devices) => Ok(()),
            Some((name, devices)) => self.bind_container(&holder, name, devices).await,
            // A later call for the same container tells which it is.
            None => Ok(()),
        }
    }

    async fn bind_container(&self, holder: &Holder, name: &str, devices: &Devices) -> Result<(), BindError> {
        if let Some(foreign) = devices.foreign.first() {
            return Err(BindError::Foreign(container_name(holder, name), foreign.clone()));
        }
        let slot = Slot::from_shares(devices.ids_of(Kind::Gpu));
        let gpu_request = self.gpu_request(holder, name, &devices.ids)?;
        let held =
            HeldDevices { pod: pod_name(holder), pod_uid: holder.pod_uid.clone(), ids: devices.ids.clone() };
        let (request, asked) = self.request(&slot, holder, name, &gpu_request).await?;
        let one = StartingContainer {
            slot,
            name,
            is_limited: !gpu_request.counted.is_whole || self.settings.shim_for_whole_gpus,
            holder,
            held,
            asked,
        };
        let bound = self.grant_and_write(&one, request.clone()).await;
        match bound {
            // Ended pods may still have grants: they are released first.
            Err(BindError::Refused(error))
                if error.code() == Code::ResourceExhausted && self.reclaim.reclaim().await =>
            {
                self.grant_and_write(&one, request).await
            }
            bound => bound,
        }
    }

    async fn grant_and_write(
        &self,
        one: &StartingContainer<'_>,
        request: v1::CreateGrantRequest,
    ) -> Result<(), BindError> {
        let _lock = self.lock.lock().await;
        self.end_superseded(&one.slot, &one.held).await?;
        let grant = self.find_or_create_grant(one, request).await?;
        let inputs = self.spec_inputs().await?;
        let device = CdiDevice {
            name: one.slot.to_string(),
            gpus: grant.gpu_uuids.clone(),
            limits: one.is_limited.then(|| grant.directory.into()),
        };
        let record = SlotRecord {
            grant: grant.id,
            gpus: grant.gpu_uuids,
            held: one.held.clone(),
            asked: one.asked.clone(),
        };
        self.store.write(&record, &spec::<SlotRecord>(&inputs, &[device])?)?;
        info!(
            pod = pod_name(one.holder),
            container = one.name,
            grant = record.grant,
            gpus = record.gpus.join(" "),
            "bound"
        );
        Ok(())
    }

    fn gpu_request(&self, holder: &Holder, name: &str, ids: &[Ids; 4]) -> Result<GpuRequest, BindError> {
        let node: Arc<NodeState> = self.node.borrow().clone().unwrap_or_default();
        gpu_request(device_counts(ids), self.settings.chunk_bytes, &node.gpus, self.pods.names())
            .map_err(|error| BindError::Request(container_name(holder, name), error))
    }

    /// The request to the manager, and its amounts with all defaults as a text to compare.
    async fn request(
        &self,
        slot: &Slot,
        holder: &Holder,
        name: &str,
        gpu_request: &GpuRequest,
    ) -> Result<(v1::CreateGrantRequest, String), BindError> {
        let api_holder = v1::Holder {
            namespace: holder.namespace.clone(),
            pod: holder.pod.clone(),
            container: name.to_owned(),
            pod_uid: holder.pod_uid.clone(),
        };
        let wrong = |why| BindError::Annotations(container_name(holder, name), why);
        let change = match &self.cluster {
            Some(cluster) => cluster.quota_change_at_start(&api_holder, &holder.names()).await,
            None => Ok(QuotaChange::default()),
        };
        let change = change.map_err(|error| wrong(error.to_string()))?;
        let asked = amounts_of(gpu_request, &change).map_err(|error| wrong(error.to_string()))?;
        let request = v1::CreateGrantRequest {
            request_id: request_id(slot, &api_holder, &asked.text),
            key: slot.to_string(),
            holder: Some(api_holder),
            amounts: Some(asked.amounts),
            gpu_count: gpu_request.gpus,
            include_gpu_uuids: gpu_request.among.clone(),
            suspendable: gpu_request.is_suspendable || change.suspendable.unwrap_or(false),
            ..v1::CreateGrantRequest::default()
        };
        Ok((request, asked.text))
    }
}

/// The amounts of each GPU for a container with these annotations.
fn amounts_of(request: &GpuRequest, annotations: &QuotaChange) -> Result<Asked, AmountsError> {
    match (request.is_suspendable, annotations.suspendable) {
        (true, Some(false)) => Err(AmountsError::NotSuspendable),
        _ => asked(&request.counted, annotations),
    }
}

/// Identifier of a request: equal for equal slot, container and amounts, and for no others.
fn request_id(slot: &Slot, holder: &v1::Holder, amounts: &str) -> String {
    let words = [&holder.namespace, &holder.pod, &holder.pod_uid, &holder.container].map(String::as_str);
    format!("{slot}-{}", digest(&format!("{}\n{amounts}", words.join("\n")), 8))
}

/// `namespace/pod`, or the UID if the pod's name is not known.
fn pod_name(holder: &Holder) -> String {
    match holder.pod.is_empty() {
        true => format!("the pod with UID {}", holder.pod_uid),
        false => format!("{}/{}", holder.namespace, holder.pod),
    }
}

fn container_name(holder: &Holder, container: &str) -> String {
    format!("{}, container {container}", pod_name(holder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amounts::Counted;

    #[test]
    fn memory_for_suspendable_containers_is_for_no_others() {
        let counted = Counted { memory_bytes: 4 << 30, cores_permille: 300, ..Counted::default() };
        let request = GpuRequest { gpus: 1, counted, among: Vec::new(), is_suspendable: true };
        let change = |suspendable| QuotaChange { suspendable, ..QuotaChange::default() };
        for allowed in [None, Some(true)] {
            amounts_of(&request, &change(allowed)).unwrap();
        }
        assert_eq!(amounts_of(&request, &change(Some(false))), Err(AmountsError::NotSuspendable));
    }

    /// The manager answers a repeated identifier with the grant that it made before. So another pod's request of the same name
    /// must have another identifier: a pod that was created again has the name of the one before, and another UID.
    #[test]
    fn each_part_of_a_request_changes_its_identifier() {
        let id = |change: fn(&mut v1::Holder, &mut String), share: u32| {
            let mut holder = v1::Holder {
                namespace: "n".to_owned(),
                pod: "p".to_owned(),
                container: "c".to_owned(),
                pod_uid: "uid".to_owned(),
            };
            let mut amounts = "memory 1".to_owned();
            change(&mut holder, &mut amounts);
            request_id(&Slot::from_shares(&Ids::from([share])), &holder, &amounts)
        };
        let same = id(|_, _| {}, 1);
        assert_eq!(id(|_, _| {}, 1), same);
        let changes: [fn(&mut v1::Holder, &mut String); 7] = [
            // An init container and the container that gets its devices next.
            |holder, _| holder.container = "d".to_owned(),
            |holder, _| holder.namespace = "m".to_owned(),
            |holder, _| holder.pod = "q".to_owned(),
            |holder, _| holder.pod_uid = "other".to_owned(),
            |holder, _| holder.pod_uid.clear(),
            // The same letters, divided in another way.
            |holder, _| (holder.namespace, holder.pod) = ("np".to_owned(), String::new()),
            |_, amounts| *amounts = "memory 2".to_owned(),
        ];
        let mut ids: Vec<String> = changes.into_iter().map(|change| id(change, 1)).collect();
        ids.extend([id(|_, _| {}, 2), same]);
        assert!(ids.iter().all(|id| id.len() <= 64), "{ids:?}");
        let different: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(different.len(), ids.len(), "{ids:?}");
    }
}
