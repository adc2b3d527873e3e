//! The device plugin's service, one for each resource (kubelet device plugin API, v1beta1).

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tracing::{info, warn};
use vcuda_kubelet_api::v1beta1::device_plugin_server::DevicePlugin;
use vcuda_kubelet_api::v1beta1::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse,
    ContainerPreferredAllocationResponse, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};

use crate::bind::Binder;
use crate::cdi::{SlotRecord, qualified};
use crate::ids::{self, Ids, Kind, Slot};
use crate::metrics::Instruments;
use crate::node::NodeReceiver;
use crate::share_lru::ShareLru;

mod authority;
pub(crate) mod listen;

pub(crate) use listen::{Listening, listen};

/// Kubelet's open streams of one resource's list: 1 while kubelet reads it, else 0.
#[derive(Debug, Clone)]
pub(crate) struct Readers {
    open: watch::Sender<usize>,
    /// Streams of an earlier generation end.
    generation: watch::Sender<u64>,
    /// Number of calls of [`Readers::repeat`].
    repeats: watch::Sender<u64>,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            open: watch::Sender::new(0),
            generation: watch::Sender::new(0),
            repeats: watch::Sender::new(0),
        }
    }
}

impl Readers {
    pub(crate) fn count(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// Ends all streams. Kubelet must see their end before the plugin registers again.
    pub(crate) fn close(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Sends the unchanged list again, so that kubelet writes its checkpoint.
    pub(crate) fn repeat(&self) {
        self.repeats.send_modify(|repeats| *repeats += 1);
    }
}

/// A stream, counted until it is dropped.
struct Reader(Readers);

impl Reader {
    fn new(readers: &Readers) -> Self {
        readers.open.send_modify(|open| *open += 1);
        Self(readers.clone())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open = open.saturating_sub(1));
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) node: NodeReceiver,
    pub(crate) binder: Arc<Binder>,
    pub(crate) share_lru: Arc<ShareLru>,
    pub(crate) instruments: Arc<Instruments>,
}

#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) kind: Kind,
    /// Kubelet's name for it.
    pub(crate) name: String,
    pub(crate) shared: Arc<Shared>,
    pub(crate) readers: Readers,
}

impl Resource {
    /// Answers Allocate for one container, of which only these IDs are known. Kubelet does not try again after a refusal. So it
    /// refuses only if a later try would fail too, or if the slot's old specification cannot be removed: the container would
    /// start with it.
    fn allocate_container(&self, devices_ids: &[String]) -> Result<ContainerAllocateResponse, Status> {
        let ids = ids::parse(self.kind, devices_ids)
            .map_err(|error| Status::invalid_argument(format!("{}: {error}", self.name)))?;
        let node = self.shared.node.borrow().clone().unwrap_or_default();
        let list = node.list(self.kind);
        if let Some(unknown) = ids.iter().find(|number| !list.contains_key(number)) {
            return Err(Status::not_found(format!(
                "{}: {} is none of the {} that this node has now; has a GPU gone?",
                self.name,
                self.kind.id(*unknown),
                list.len()
            )));
        }
        if self.kind != Kind::Gpu {
            // Kubelet merges the answers of several resources, and their edits may clash: only that of the shares has edits.
            return Ok(ContainerAllocateResponse::default());
        }
        if ids.len() > node.gpus.len() {
            return Err(Status::invalid_argument(format!(
                "{}: {} asks for so many different GPUs, and this node has {}; to have more of one GPU, ask for more \
                 memory and cores",
                self.name,
                ids.len(),
                node.gpus.len()
            )));
        }
        let slot = Slot::from_shares(&ids);
        self.shared.binder.remove_spec(&slot)?;
        self.shared.share_lru.record_use(&ids);
        Ok(ContainerAllocateResponse {
            cdi_devices: vec![CdiDevice { name: qualified::<SlotRecord>(slot.as_str()) }],
            ..ContainerAllocateResponse::default()
        })
    }

    async fn start_container(&self, devices_ids: &[String]) -> Result<(), Status> {
        let ids = ids::parse(self.kind, devices_ids)
            .map_err(|error| Status::invalid_argument(format!("{}: {error}", self.name)))?;
        Ok(self.shared.binder.bind(self.kind, &ids).await?)
    }
}

type Lists = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Resource {
    type ListAndWatchStream = Lists;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions {
            // True for all resources: a container with chunks and no share is refused before it starts, and only all calls together
            // tell an init container from the one that gets its devices next.
            pre_start_required: true,
            get_preferred_allocation_available: self.kind == Kind::Gpu,
        }))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Lists>, Status> {
        let (sender, lists) = mpsc::channel(1);
        let (kind, name) = (self.kind, self.name.clone());
        let mut node = self.shared.node.clone();
        let mut generation = self.readers.generation.subscribe();
        generation.mark_unchanged();
        let mut repeats = self.readers.repeats.subscribe();
        repeats.mark_unchanged();
        let reader = Reader::new(&self.readers);
        info!(resource = name, "kubelet reads the list");
        tokio::spawn(async move {
            let send = async {
                let mut sent = None;
                loop {
                    let list = node.borrow_and_update().as_ref().map(|state| state.devices(kind));
                    if let Some(devices) = list.filter(|devices| sent.as_ref() != Some(devices)) {
                        sent = Some(devices.clone());
                        if sender.send(Ok(ListAndWatchResponse { devices })).await.is_err() {
                            return;
                        }
                    }
                    tokio::select! {
                        changed = node.changed() => if changed.is_err() {
                            return;
                        },
                        // The sender is a field of the resource, which outlives the stream.
                        _ = repeats.changed() => sent = None,
                    }
                }
            };
            tokio::select! {
                () = send => {}
                () = sender.closed() => {}
                _ = generation.changed() => {}
            }
            drop(reader);
            info!(resource = name, "kubelet reads the list no more");
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(lists))))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let mut container_responses = Vec::new();
        for request in request.into_inner().container_requests {
            let known = |ids: &[String]| ids.iter().filter_map(|id| self.kind.number(id)).collect::<Ids>();
            let size = usize::try_from(request.allocation_size).unwrap_or(0);
            let must = known(&request.must_include_device_i_ds);
            let chosen = self.shared.share_lru.preferred(&known(&request.available_device_i_ds), &must, size);
            container_responses.push(ContainerPreferredAllocationResponse {
                device_i_ds: chosen.iter().map(|number| self.kind.id(*number)).collect(),
            });
        }
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let begun = Instant::now();
        let requests = request.into_inner().container_requests;
        let responses = requests.iter().map(|one| self.allocate_container(&one.devices_ids));
        let answer = match requests.is_empty() {
            true => Err(Status::invalid_argument(format!("{}: a request for no container", self.name))),
            false => responses
                .collect::<Result<_, _>>()
                .map(|container_responses| AllocateResponse { container_responses }),
        };
        self.shared.instruments.allocated(self.kind, answer.is_ok(), begun.elapsed());
        if let Err(refused) = &answer {
            warn!(resource = self.name, "refused for good: {}", refused.message());
        }
        answer.map(Response::new)
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        let begun = Instant::now();
        let answer = self.start_container(&request.into_inner().devices_ids).await;
        self.shared.instruments.started(self.kind, answer.is_ok(), begun.elapsed());
        if let Err(refused) = &answer {
            warn!(resource = self.name, "refused for now: {}", refused.message());
        }
        answer.map(|()| Response::new(PreStartContainerResponse {}))
    }
}
