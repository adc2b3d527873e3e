//! The end of a claim: its files and grants go, unless a process uses them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info};

use super::{PrepareError, Preparer, check_uid, key_prefix};
use crate::cdi::ClaimRecord;

/// Longest time in which the manager notices that a container's processes have ended: it looks once a second.
const USE_ENDS: Duration = Duration::from_secs(2);
/// Longest time in which the API server tells of the pods that have a claim.
const API_WITHIN: Duration = Duration::from_secs(5);

/// Condition of a pod whose sandbox runs (Kubernetes 1.29).
const SANDBOX: &str = "PodReadyToStartContainers";

impl Preparer {
    /// Removes a claim's files and releases its grants. A claim that is not prepared counts as unprepared.
    pub(crate) async fn unprepare(&self, uid: &str) -> Result<(), PrepareError> {
        check_uid(uid)?;
        // Kubelet before 1.37 also asks at the end of a pod whose own claim failed, while another pod uses the claim
        // (kubernetes/kubernetes#140212). That one keeps its files, with which its containers start again. A claim that was made for one pod
        // has no other.
        if let Some(record) = self.shared.store.read::<ClaimRecord>(uid)?.filter(|record| !record.of_pod) {
            match timeout(API_WITHIN, self.wait_for_pods_to_end(&record)).await {
                Ok(Err(running @ PrepareError::Running(_))) => return Err(running),
                // Pods end without the API server, and while the chart's mode, and so the driver's rights, change.
                Ok(Err(error)) => debug!(uid, "its pods are not known: {error}"),
                Ok(Ok(())) | Err(_) => {}
            }
        }
        let _lock = self.lock.lock().await;
        let prefix = key_prefix(uid);
        let mut grants = self.shared.manager.list().await?;
        grants.retain(|grant| grant.key.starts_with(&prefix));
        for grant in &grants {
            let ended = timeout(USE_ENDS, self.wait_for_use_to_end(&grant.id)).await;
            ended.unwrap_or_else(|_| Err(PrepareError::Used(grant.id.clone())))?;
        }
        // The files go first, so that no container starts with a grant that is being released.
        self.shared.store.remove::<ClaimRecord>(uid)?;
        self.changed.notify_one();
        for grant in grants {
            self.shared.manager.release(&grant.id).await?;
            info!(uid, grant = grant.id, "undone");
        }
        // Last: if a process began meanwhile, the manager refuses, and the files are written again.
        self.known.lock().remove(uid);
        Ok(())
    }

    /// Waits until no pod that has the claim runs. Kubelet tells the end of a pod's containers before it asks, and the API server may hear
    /// of it later.
    async fn wait_for_pods_to_end(&self, record: &ClaimRecord) -> Result<(), PrepareError> {
        let until = Instant::now() + USE_ENDS;
        while let Some(pod) = self.running_pod(record).await? {
            if Instant::now() >= until {
                return Err(PrepareError::Running(pod));
            }
            sleep(USE_ENDS / 4).await;
        }
        Ok(())
    }

    /// A pod of this node that has the claim, is not being deleted, and runs.
    async fn running_pod(&self, record: &ClaimRecord) -> Result<Option<String>, PrepareError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.shared.client.clone(), &record.namespace);
        let claim = claims.get_opt(&record.name).await?;
        let Some(claim) = claim.filter(|claim| claim.metadata.uid.as_ref() == Some(&record.uid)) else {
            return Ok(None);
        };
        let pods = match self.pods(&record.namespace, &claim).await {
            Err(PrepareError::NoPod) => return Ok(None),
            found => found?,
        };
        let running = pods.into_iter().find(|pod| is_running_on(pod, &self.shared.node));
        Ok(running.and_then(|pod| pod.metadata.name))
    }

    async fn wait_for_use_to_end(&self, id: &str) -> Result<(), PrepareError> {
        while self.shared.manager.is_used(id).await? {
            sleep(USE_ENDS / 10).await;
        }
        Ok(())
    }
}

/// Whether a pod is on this node and not being deleted, and has a container that runs, or a sandbox in which one has yet to start, or to
/// start again. Its phase does not tell: kubelet keeps that of a pod that has ended until its claims are undone
/// (`PodCouldHaveRunningContainers`).
fn is_running_on(pod: &Pod, node: &str) -> bool {
    let is_here = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node));
    let Some(status) = pod.status.as_ref().filter(|_| is_here && pod.metadata.deletion_timestamp.is_none())
    else {
        return false;
    };
    let own = || status.container_statuses.iter().flatten();
    let all = status.init_container_statuses.iter().flatten().chain(own());
    let is_running =
        |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    let has_ended =
        |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let conditions = status.conditions.iter().flatten();
    let has_sandbox = conditions.filter(|one| one.type_ == SANDBOX).any(|one| one.status == "True");
    all.into_iter().any(is_running) || (has_sandbox && !own().all(has_ended))
}
