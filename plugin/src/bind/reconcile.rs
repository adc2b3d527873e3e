//! Applies the annotations of pods to the grants of their running containers.

use std::collections::BTreeMap;

use tracing::info;
use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;

use super::{BindError, Binder, amounts_of, request_id};
use crate::annotation_reconciler::{Reconcile, Refusal};
use crate::cdi::SlotRecord;
use crate::cluster::Cluster;
use crate::gpu_request::{device_counts, gpu_request};
use crate::pod_events::pod_reference;

#[tonic::async_trait]
impl Reconcile for Binder {
    async fn reconcile(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, String> {
        let refusals = self.reconcile_all(cluster).await;
        refusals.map_err(|error| error.to_string())
    }
}

impl Binder {
    /// Applies the present annotations of each pod to its grants. Returns the refusals by grant.
    async fn reconcile_all(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, BindError> {
        let records = self.store.records::<SlotRecord>()?;
        let mut grants: BTreeMap<String, v1::Grant> = BTreeMap::new();
        if !records.is_empty() {
            grants.extend(self.manager.list().await?.into_iter().map(|grant| (grant.id.clone(), grant)));
        }
        let mut refusals = BTreeMap::new();
        for record in records {
            let Some(grant) = grants.remove(&record.grant) else {
                continue;
            };
            let holder = grant.holder.clone().unwrap_or_default();
            // Without the pod in the watch there is no known change.
            let Some(change) = cluster.current_quota_change(&holder) else {
                continue;
            };
            let (id, result) = match change {
                Ok(change) => (grant.id.clone(), self.reconcile_grant(&record, grant, &change).await),
                Err(error) => (grant.id.clone(), Err(error.to_string())),
            };
            if let Err(why) = result {
                let why = format!("{}/{}: {why}", holder.namespace, holder.pod);
                let regarding = pod_reference(&holder);
                refusals.insert(id, Refusal { why, regarding });
            }
        }
        Ok(refusals)
    }

    async fn reconcile_grant(
        &self,
        record: &SlotRecord,
        grant: v1::Grant,
        change: &QuotaChange,
    ) -> Result<(), String> {
        let counts = device_counts(&record.held.ids);
        let node = self.node.borrow().clone().unwrap_or_default();
        let request = gpu_request(counts, self.settings.chunk_bytes, &node.gpus, self.pods.names())
            .map_err(|error| error.to_string())?;
        let asked = amounts_of(&request, change).map_err(|error| error.to_string())?;
        if asked.text == record.asked {
            return Ok(());
        }
        let _lock = self.lock.lock().await;
        let id = request_id(&record.slot(), &grant.holder.clone().unwrap_or_default(), &asked.text);
        self.manager.resize(&grant, id, Some(asked.amounts)).await.map_err(|error| error.to_string())?;
        let note = |record: &mut SlotRecord| record.asked.clone_from(&asked.text);
        self.store.update(record.slot().as_str(), note).map_err(|error| error.to_string())?;
        info!(grant = grant.id, asked = asked.text, "follows its annotations");
        Ok(())
    }
}
