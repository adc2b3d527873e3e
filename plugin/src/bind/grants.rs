//! Choice of a container's grant: the one that it has, or a new one; and the end of the containers that had its devices
//! before.

use tonic::Code;
use tracing::{info, warn};
use vcuda_manager_api::v1;
use vcuda_quota::Quota;

use super::{BindError, Binder, blocking, pod_name};
use crate::cdi::{Holding, Record};
use crate::ids::{Kind, Slot};
use crate::pods::Holder;
use crate::resources::State;

impl Binder {
    /// Ends the grants of those who had one of these devices before. Kubelet gives a device to another container only when
    /// that one is gone, or was an init container of the same pod that has ended. In one pod only shares say so: chunks that
    /// an init container leaves over go to any of the others.
    pub(super) async fn supersede(&self, slot: &Slot, held: &Holding) -> Result<(), BindError> {
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

    /// The specification goes first: no container may start with a grant that is being released.
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
    pub(super) async fn granted(
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
                // Changes by an operator stay.
                true => Ok(grant),
                false => self.kept(grant, request).await,
            };
        }
        if is_same {
            warn!(
                grant = grant.id,
                "one of its GPUs cannot be used: another is looked for"
            );
        }
        self.end(&grant, slot, &pod_name(holder)).await?;
        Ok(self.manager.create(request).await?)
    }

    /// A grant that stays, with what is wanted now: more, if an heir needs more than the init container before it; other
    /// amounts, if the pod's annotations have changed.
    async fn kept(&self, grant: v1::Grant, request: v1::CreateGrantRequest) -> Result<v1::Grant, BindError> {
        let quota = |amounts: &Option<v1::Amounts>| amounts.as_ref().map(Quota::from);
        if quota(&grant.amounts) == quota(&request.amounts) {
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
            let gpu = seen.gpus.iter().find(|gpu| gpu.uuid == *uuid);
            gpu.is_some_and(|gpu| gpu.state != State::Unhealthy)
        };
        grant.gpu_uuids.iter().all(is_well)
    }
}

/// Whether the grant is this pod's. Without a UID on both sides, names are what is left. A specification that is still
/// there then says that kubelet has given these devices to no other container since.
fn is_same_pod(grant: &v1::Grant, holder: &Holder, has_spec: bool) -> bool {
    let held = grant.holder.clone().unwrap_or_default();
    if !held.pod_uid.is_empty() && !holder.pod_uid.is_empty() {
        return held.pod_uid == holder.pod_uid;
    }
    has_spec && !holder.pod.is_empty() && held.namespace == holder.namespace && held.pod == holder.pod
}

/// Whether the request would get the grant's GPUs now.
fn is_among(grant: &v1::Grant, request: &v1::CreateGrantRequest) -> bool {
    let among = &request.include_gpu_uuids;
    let count = u32::try_from(grant.gpu_uuids.len()).unwrap_or(u32::MAX);
    count == request.gpu_count
        && (among.is_empty() || grant.gpu_uuids.iter().all(|uuid| among.contains(uuid)))
}
