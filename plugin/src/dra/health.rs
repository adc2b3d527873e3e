//! Reports of the GPUs' health to kubelet, which shows it in the status of the pods that have shares of them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::Stream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use vcuda_kubelet_api::dra_health::dra_resource_health_server::DraResourceHealth;
use vcuda_kubelet_api::dra_health::{
    DeviceHealth, DeviceIdentifier, HealthStatus, NodeWatchResourcesRequest, NodeWatchResourcesResponse,
};

use super::gpus::{Gpus, NodeGpus};

/// Interval of reports without a change.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Validity of a report (s). Without a newer one, as while the manager is away, kubelet shows the health as unknown.
const VALID_SECONDS: i64 = 30;

#[derive(Clone)]
pub(crate) struct Health {
    gpus: Gpus,
    pool: String,
}

impl Health {
    pub(crate) fn new(gpus: Gpus, pool: String) -> Self {
        Self { gpus, pool }
    }

    async fn report(mut self, reports: mpsc::Sender<Result<NodeWatchResourcesResponse, Status>>) {
        loop {
            let known = self.gpus.borrow_and_update().clone();
            // Without the manager's answer the health is not known.
            let current = known.filter(|known| known.is_current);
            if let Some(known) = current {
                let response = health_response(&known, &self.pool);
                if reports.send(Ok(response)).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = reports.closed() => return,
                changed = timeout(REPORT_INTERVAL, self.gpus.changed()) => {
                    if matches!(changed, Ok(Err(_))) {
                        return;
                    }
                }
            }
        }
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Health {
    type NodeWatchResourcesStream =
        Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let (sender, reports) = mpsc::channel(1);
        tokio::spawn(self.clone().report(sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(reports))))
    }
}

fn health_response(known: &Arc<NodeGpus>, pool: &str) -> NodeWatchResourcesResponse {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0));
    let device = |(name, reason): (&String, Option<&str>)| DeviceHealth {
        device: Some(DeviceIdentifier { pool_name: pool.to_owned(), device_name: name.clone() }),
        health: match reason {
            None => HealthStatus::Healthy.into(),
            Some(_) => HealthStatus::Unhealthy.into(),
        },
        last_updated_time: now,
        health_check_timeout_seconds: VALID_SECONDS,
        message: reason.unwrap_or_default().to_owned(),
    };
    NodeWatchResourcesResponse { devices: known.health().map(device).collect() }
}

#[cfg(test)]
mod tests {
    use vcuda_manager_api::v1;

    use super::super::device::tests::gpu;
    use super::*;

    #[test]
    fn an_unhealthy_gpu_is_reported_with_its_reason() {
        let unhealthy = v1::Gpu { healthy: false, health_reason: "XID 79".to_owned(), ..gpu(2) };
        let listed =
            v1::ListGpusResponse { gpus: vec![gpu(1), unhealthy], ..v1::ListGpusResponse::default() };
        let known = Arc::new(NodeGpus::from_response(&listed, super::super::device::Effect::NoSchedule));
        let [healthy, unhealthy] = health_response(&known, "node").devices.try_into().unwrap();
        assert_eq!((healthy.health(), healthy.message.as_str()), (HealthStatus::Healthy, ""));
        assert_eq!((unhealthy.health(), unhealthy.message.as_str()), (HealthStatus::Unhealthy, "XID 79"));
        let device = unhealthy.device.unwrap();
        assert_eq!(device.pool_name, "node");
        assert!(device.device_name.ends_with("02"), "{}", device.device_name);
    }
}
