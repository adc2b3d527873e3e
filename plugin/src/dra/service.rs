//! The driver's gRPC service for kubelet (DRAPlugin, v1).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::{Request, Response, Status};
use tracing::warn;
use vcuda_kubelet_api::dra::dra_plugin_server::DraPlugin;
use vcuda_kubelet_api::dra::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};

use super::prepare::{PrepareError, Preparer};
use super::shared::Shared;
use crate::cdi::Prepared;

/// Deadline of a call that prepares claims; kubelet waits for 45 s.
const DEADLINE: Duration = Duration::from_secs(40);
/// Between two tries of a claim that manager or API server keep waiting. Kubelet itself repeats a call that failed only with the
/// pod's next regular sync, after 60 to 90 s.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Deadline for the end of each claim. A call may have several.
const UNPREPARE_DEADLINE: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) preparer: Arc<Preparer>,
    pub(crate) shared: Arc<Shared>,
}

impl Service {
    async fn prepare(&self, claim: &Claim, deadline: Instant) -> NodePrepareResourceResponse {
        let begun = Instant::now();
        // The task goes on after the deadline, so that no grant is left without its files.
        let work = tokio::spawn(persist(Arc::clone(&self.preparer), claim.clone(), deadline));
        let prepared = match timeout_at(deadline, work).await {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(_)) => Err(PrepareError::NotYet),
            Err(_) => Err(PrepareError::Late),
        };
        self.shared
            .instruments
            .prepared(prepared.as_ref().map(drop).map_err(PrepareError::reason), begun.elapsed());
        match prepared {
            Ok(prepared) => NodePrepareResourceResponse {
                devices: prepared.into_iter().map(device).collect(),
                error: String::new(),
            },
            Err(error) => NodePrepareResourceResponse {
                devices: Vec::new(),
                error: error_text(claim, "is not prepared", &error),
            },
        }
    }

    async fn unprepare(&self, claim: &Claim) -> NodeUnprepareResourceResponse {
        let (preparer, uid) = (Arc::clone(&self.preparer), claim.uid.clone());
        let work = tokio::spawn(async move { preparer.unprepare(&uid).await });
        let undone = match timeout(UNPREPARE_DEADLINE, work).await {
            Ok(Ok(undone)) => undone,
            Ok(Err(_)) => Err(PrepareError::NotYet),
            Err(_) => Err(PrepareError::Late),
        };
        let error = undone.err().map(|error| error_text(claim, "is not undone", &error));
        NodeUnprepareResourceResponse { error: error.unwrap_or_default() }
    }
}

#[tonic::async_trait]
impl DraPlugin for Service {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        let deadline = Instant::now() + DEADLINE;
        for claim in request.into_inner().claims {
            let prepared = self.prepare(&claim, deadline).await;
            claims.insert(claim.uid, prepared);
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let mut claims = HashMap::new();
        for claim in request.into_inner().claims {
            let undone = self.unprepare(&claim).await;
            claims.insert(claim.uid, undone);
        }
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}

/// Prepares a claim, again and again while it only has to wait for the manager or the API server.
async fn persist(
    preparer: Arc<Preparer>,
    claim: Claim,
    deadline: Instant,
) -> Result<Vec<Prepared>, PrepareError> {
    loop {
        match preparer.prepare(&claim).await {
            Err(error) if error.is_passing() && Instant::now() + RETRY_INTERVAL < deadline => {
                sleep(RETRY_INTERVAL).await;
            }
            result => return result,
        }
    }
}

/// The error text for the events of the claim's pod; also logged.
fn error_text(claim: &Claim, what: &str, error: &PrepareError) -> String {
    warn!("claim {}/{} {what}: {error}", claim.namespace, claim.name);
    format!("claim {}/{}: {error}", claim.namespace, claim.name)
}

fn device(prepared: Prepared) -> Device {
    Device {
        request_names: vec![prepared.request],
        pool_name: prepared.pool,
        device_name: prepared.device,
        cdi_device_ids: prepared.cdi,
        share_id: prepared.share_id,
    }
}
