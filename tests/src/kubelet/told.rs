//! PodResources: one entry per device, without UIDs and plain init containers; also with faults.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use vcuda_kubelet_api::podresources::pod_resources_lister_server::{
    PodResourcesLister, PodResourcesListerServer,
};
use vcuda_kubelet_api::podresources::{
    ContainerDevices, ContainerResources, GetPodResourcesRequest, GetPodResourcesResponse,
    ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};

use super::{Node, Pod, Role};

/// Rate limit of PodResources (calls per second; pkg/kubelet/apis/podresources: DefaultQPS).
const CALLS_PER_SECOND: f64 = 100.0;
/// Burst of that limit (DefaultBurstTokens).
pub(super) const BURST: f64 = 10.0;

/// Behaviour of PodResources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mood {
    /// Normal.
    #[default]
    Well,
    /// Returns an error.
    Refuses,
    /// Never returns.
    Hangs,
    /// Returns no pods.
    Forgets,
    /// Returns every pod twice, the second under this name.
    Doubles(String),
    /// Returns devices with other names.
    Rubbish,
}

struct Told(Arc<Node>);

/// Serves `v1.PodResourcesLister`.
pub(super) fn serve(node: &Arc<Node>, socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    let service = PodResourcesListerServer::new(Told(Arc::clone(node)));
    let incoming = UnixListenerStream::new(listener);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
}

#[tonic::async_trait]
impl PodResourcesLister for Told {
    async fn list(
        &self,
        _: Request<ListPodResourcesRequest>,
    ) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        if !self.0.allows() {
            return Err(Status::resource_exhausted("rejected by rate limit"));
        }
        let mood = self.0.mood.lock().clone();
        let mut pod_resources = match mood {
            Mood::Refuses => return Err(Status::internal("rate limited")),
            Mood::Hangs => std::future::pending().await,
            Mood::Forgets => Vec::new(),
            Mood::Well | Mood::Doubles(_) | Mood::Rubbish => self.0.told(),
        };
        if let Mood::Doubles(name) = mood {
            let again = pod_resources.clone().into_iter();
            let name = |pod| PodResources { name: name.clone(), ..pod };
            pod_resources.extend(again.map(name).collect::<Vec<_>>());
        } else if mood == Mood::Rubbish {
            let containers = pod_resources.iter_mut().flat_map(|pod| &mut pod.containers);
            for devices in containers.flat_map(|container| &mut container.devices) {
                devices.device_ids = vec!["GPU-0::x".to_owned()];
            }
        }
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get(
        &self,
        request: Request<GetPodResourcesRequest>,
    ) -> Result<Response<GetPodResourcesResponse>, Status> {
        let request = request.into_inner();
        let mut pods = self.0.told().into_iter();
        let found = pods.find(|pod| pod.name == request.pod_name && pod.namespace == request.pod_namespace);
        let found = found.ok_or_else(|| Status::not_found("pod not found"))?;
        Ok(Response::new(GetPodResourcesResponse { pod_resources: Some(found) }))
    }
}

impl Node {
    /// Whether one more call is permitted now.
    fn allows(&self) -> bool {
        let mut allowance = self.allowance.lock();
        let (left, since) = *allowance;
        let now = SystemTime::now();
        let passed = now.duration_since(since).unwrap_or_default().as_secs_f64();
        let left = (left + passed * CALLS_PER_SECOND).min(BURST);
        let is_allowed = left >= 1.0;
        *allowance = (if is_allowed { left - 1.0 } else { left }, now);
        is_allowed
    }

    fn told(&self) -> Vec<PodResources> {
        let pods: Vec<Pod> = self.pods.lock().values().cloned().collect();
        let mut devices = self.devices.lock();
        devices.update_allocated();
        let container = |pod: &Pod, name: &str| {
            let key = (pod.uid.clone(), name.to_owned());
            let resources = devices.allocated.get(&key).into_iter().flatten();
            // One entry for each device.
            let entries = resources.flat_map(|(resource, allocated)| {
                allocated.ids.iter().map(move |id| ContainerDevices {
                    resource_name: resource.clone(),
                    device_ids: vec![id.clone()],
                    topology: None,
                })
            });
            ContainerResources { name: name.to_owned(), devices: entries.collect(), cpu_ids: Vec::new() }
        };
        let shown = |pod: &Pod| PodResources {
            name: pod.spec.name.clone(),
            namespace: pod.spec.namespace.clone(),
            containers: pod
                .spec
                .containers
                .iter()
                .filter(|one| one.role != Role::Init)
                .map(|one| container(pod, &one.name))
                .collect(),
        };
        pods.iter().map(shown).collect()
    }
}
