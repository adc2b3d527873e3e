//! Grants of running containers follow their pods' annotations.

use std::collections::BTreeMap;

use tracing::info;
use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;

use super::{BindError, Binder, blocking, request_id};
use crate::amounts::{self, amounts};
use crate::cdi::Record;
use crate::cluster::Cluster;
use crate::demand::{Demand, wanted};
use crate::follow::{Follow, Refusal};
use crate::ids::Kind;
use crate::pod_events::pod;

#[tonic::async_trait]
impl Follow for Binder {
    async fn follow(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, String> {
        let refusals = self.follow_all(cluster).await;
        refusals.map_err(|error| error.to_string())
    }
}

impl Binder {
    /// Applies the present annotations of each pod to its grant. Returns why some do not follow, by grant.
    async fn follow_all(&self, cluster: &Cluster) -> Result<BTreeMap<String, Refusal>, BindError> {
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
            // Nothing is known to have changed for a pod that is not known, or not any more.
            let Some(choice) = cluster.known(&holder) else {
                continue;
            };
            let (id, followed) = match choice {
                Ok(choice) => (grant.id.clone(), self.follow_one(&record, grant, &choice).await),
                Err(error) => (grant.id.clone(), Err(error.to_string())),
            };
            if let Err(why) = followed {
                let why = format!("{}/{}: {why}", holder.namespace, holder.pod);
                let regarding = pod(&holder);
                refusals.insert(id, Refusal { why, regarding });
            }
        }
        Ok(refusals)
    }

    async fn follow_one(
        &self,
        record: &Record,
        grant: v1::Grant,
        choice: &QuotaChange,
    ) -> Result<(), String> {
        let count = |kind| u32::try_from(record.held.of(kind).len()).unwrap_or(u32::MAX);
        let demand = Demand {
            gpus: count(Kind::Gpu),
            chunks: count(Kind::Memory),
            percents: count(Kind::Cores),
        };
        let seen = self.node.borrow().clone().unwrap_or_default();
        let wanted = wanted(demand, self.rules.chunk_bytes, &seen.gpus, self.pods.names())
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
            amounts: Some(amounts::chosen(&amounts, choice)),
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
