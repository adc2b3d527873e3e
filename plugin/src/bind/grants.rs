//! The grant of a starting container: its present one or a new one. Grants of containers that had its devices before end here.

use tonic::Code;
use tracing::{info, warn};
use vcuda_manager_api::v1;
use vcuda_quota::Quota;

use super::{BindError, Binder, StartingContainer, pod_name};
use crate::cdi::{HeldDevices, SlotRecord};
use crate::ids::{Kind, Slot};
use crate::pods::{Devices, Holder, PodsSnapshot};
use crate::resources::State;

impl Binder {
    /// Ends the grants of other containers that had one of these devices. Kubelet gives a device to another container only if the
    /// old one is gone. Within a pod one of both is a plain init container, and runs while the other does not: its devices go to
    /// several later ones, and are its own again if the pod's sandbox is made anew.
    ///
    /// # Errors
    /// The old container is another pod's, and kubelet still lists it: by PodResources and checkpoint a busy kubelet 1.36 gave devices
    /// twice. The new one starts once the old one has ended. Or processes of the old one still run.
    pub(super) async fn end_superseded(&self, slot: &Slot, held: &HeldDevices) -> Result<(), BindError> {
        let records = self.store.records::<SlotRecord>()?;
        let overlaps = |record: &SlotRecord| {
            Kind::ALL.into_iter().any(|kind| !record.held.ids_of(kind).is_disjoint(held.ids_of(kind)))
        };
        let superseded: Vec<&SlotRecord> =
            records.iter().filter(|record| record.slot() != *slot && overlaps(record)).collect();
        if superseded.is_empty() {
            return Ok(());
        }
        let snapshot = self.pods.snapshot().await?;
        let is_living =
            |record: &&&SlotRecord| !record.held.is_same_pod(held) && is_listed(&snapshot, record);
        if let Some(living) = superseded.iter().find(is_living) {
            return Err(BindError::GivenTwice(held.pod.clone(), living.held.pod.clone()));
        }
        for record in superseded {
            let slot = record.slot();
            let Some(grant) = self.manager.find(slot.as_str()).await? else {
                self.remove_spec(&slot)?;
                continue;
            };
            info!(
                grant = grant.id,
                pod = record.held.pod,
                "superseded: its devices are another container's now"
            );
            self.end_grant(&grant, &slot, &held.pod).await?;
        }
        Ok(())
    }

    /// Ends a grant. The specification goes first, so that no container starts with a grant that is being released.
    async fn end_grant(&self, grant: &v1::Grant, slot: &Slot, pod: &str) -> Result<(), BindError> {
        self.remove_spec(slot)?;
        match self.manager.release(&grant.id).await {
            Err(error) if error.code() == Code::FailedPrecondition => {
                Err(BindError::StillUsed(pod.to_owned(), grant.id.clone(), error))
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(()),
        }
    }

    /// The present grant if it is the same container's; else a new grant, after the end of the present one.
    pub(super) async fn find_or_create_grant(
        &self,
        one: &StartingContainer<'_>,
        request: v1::CreateGrantRequest,
    ) -> Result<v1::Grant, BindError> {
        let (slot, holder) = (&one.slot, one.holder);
        let Some(grant) = self.manager.find(slot.as_str()).await? else {
            return self.create(slot, &one.held, request).await;
        };
        let record = self.store.read::<SlotRecord>(slot.as_str())?;
        // An init container and the container that gets its devices next have a grant each.
        let is_same = is_same_pod(&grant, holder, record.is_some())
            && grant.holder.as_ref().is_some_and(|held| held.container == one.name);
        if is_same && self.are_usable(&grant) && has_requested_gpus(&grant, &request) {
            let is_unchanged =
                record.is_some_and(|record| record.grant == grant.id && record.asked == one.asked);
            return match is_unchanged {
                // An operator may have changed the grant since: that stays.
                true => Ok(grant),
                false => self.resize_if_changed(grant, request).await,
            };
        }
        if is_same {
            warn!(grant = grant.id, "one of its GPUs cannot be used: another is looked for");
        }
        self.end_grant(&grant, slot, &pod_name(holder)).await?;
        self.create(slot, &one.held, request).await
    }

    /// Resizes a grant whose requested amounts have changed by the annotations.
    async fn resize_if_changed(
        &self,
        grant: v1::Grant,
        request: v1::CreateGrantRequest,
    ) -> Result<v1::Grant, BindError> {
        let quota = |amounts: &Option<v1::Amounts>| amounts.as_ref().map(Quota::from);
        if quota(&grant.amounts) == quota(&request.amounts) {
            return Ok(grant);
        }
        Ok(self.manager.resize(&grant, request.request_id, request.amounts).await?)
    }

    fn are_usable(&self, grant: &v1::Grant) -> bool {
        let Some(node) = self.node.borrow().clone() else {
            return true;
        };
        let is_usable = |uuid: &String| {
            let gpu = node.gpus.iter().find(|gpu| gpu.uuid == *uuid);
            gpu.is_some_and(|gpu| gpu.state != State::Unhealthy)
        };
        grant.gpu_uuids.iter().all(is_usable)
    }
}

/// Whether kubelet lists the record's container, in the record's pod.
fn is_listed(snapshot: &PodsSnapshot, record: &SlotRecord) -> bool {
    let shares = record.held.ids_of(Kind::Gpu);
    let mut listed = snapshot.listed.iter();
    listed.any(|(namespace, pod, containers)| {
        let is_it = |devices: &Devices| devices.ids_of(Kind::Gpu) == shares;
        format!("{namespace}/{pod}") == record.held.pod && containers.values().any(is_it)
    })
}

/// Whether the grant is this pod's. If a UID is missing, the names decide, but only if the specification is still there: then
/// kubelet has given these devices to no other container since.
fn is_same_pod(grant: &v1::Grant, holder: &Holder, has_spec: bool) -> bool {
    let held = grant.holder.clone().unwrap_or_default();
    if !held.pod_uid.is_empty() && !holder.pod_uid.is_empty() {
        return held.pod_uid == holder.pod_uid;
    }
    has_spec && !holder.pod.is_empty() && held.namespace == holder.namespace && held.pod == holder.pod
}

/// Whether the grant's GPUs fit the request.
fn has_requested_gpus(grant: &v1::Grant, request: &v1::CreateGrantRequest) -> bool {
    let among = &request.include_gpu_uuids;
    let count = u32::try_from(grant.gpu_uuids.len()).unwrap_or(u32::MAX);
    count == request.gpu_count
        && (among.is_empty() || grant.gpu_uuids.iter().all(|uuid| among.contains(uuid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_a_pods_by_its_uid_and_by_its_name_only_while_its_specification_is_there() {
        let is_same = |granted: [&str; 3], starting: [&str; 3], has_spec| {
            let [namespace, pod, pod_uid] = granted.map(str::to_owned);
            let grant = v1::Grant {
                holder: Some(v1::Holder { namespace, pod, pod_uid, container: "c".to_owned() }),
                ..v1::Grant::default()
            };
            let [namespace, pod, pod_uid] = starting.map(str::to_owned);
            let holder = Holder { namespace, pod, pod_uid, ..Holder::default() };
            is_same_pod(&grant, &holder, has_spec)
        };
        for has_spec in [true, false] {
            assert!(is_same(["n", "p", "1"], ["", "", "1"], has_spec));
            assert!(!is_same(["n", "p", "1"], ["n", "p", "2"], has_spec));
            for uids in [["", "2"], ["1", ""], ["", ""]] {
                let [granted, starting] = uids;
                assert_eq!(is_same(["n", "p", granted], ["n", "p", starting], has_spec), has_spec);
                assert!(!is_same(["m", "p", granted], ["n", "p", starting], has_spec));
                assert!(!is_same(["n", "q", granted], ["n", "p", starting], has_spec));
            }
            assert!(!is_same(["", "", ""], ["", "", "2"], has_spec), "no name is no proof");
        }
    }

    /// A request for whole GPUs names those of just its size. A grant on a smaller one does not fit.
    #[test]
    fn a_grant_fits_by_the_number_of_its_gpus_and_by_each_of_them() {
        let fits = |granted: &[&str], gpu_count, among: &[&str]| {
            let texts = |uuids: &[&str]| uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
            let grant = v1::Grant { gpu_uuids: texts(granted), ..v1::Grant::default() };
            let request = v1::CreateGrantRequest {
                gpu_count,
                include_gpu_uuids: texts(among),
                ..v1::CreateGrantRequest::default()
            };
            has_requested_gpus(&grant, &request)
        };
        assert!(fits(&["a", "b"], 2, &[]) && fits(&["a", "b"], 2, &["b", "c", "a"]));
        assert!(!fits(&["a"], 2, &[]) && !fits(&["a", "b", "c"], 2, &[]));
        assert!(!fits(&["a", "small"], 2, &["a", "b"]));
    }
}
