//! Service `vcuda.v1.Node`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::{Request, Response, Status};
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::node_server;
use vcuda_region::GpuUuid;

use super::deadline::{deadline_of, within};
use super::stream::{Answers, subscription};
use super::{convert, owner, show};
use crate::access::Right;
use crate::accounting::Accounting;
use crate::events::{Event, Events};
use crate::grant::GrantId;
use crate::inventory::Node;
use crate::library;
use crate::observe::{Snapshot, Tenant};
use crate::problems::Refusal;
use crate::state::Grants;
use crate::suspend::{Suspender, room_denied};

/// Facts about a manager that do not change while it runs.
#[derive(Debug, Clone)]
pub struct About {
    /// Release.
    pub version: String,
    /// Build of the release.
    pub build: String,
    /// Name of the node.
    pub node: String,
    /// The runtime directory.
    pub root: String,
    /// Start time (milliseconds since 1970-01-01 UTC).
    pub started_unix_ms: i64,
    /// Directory of the simulated machine whose GPUs these are; empty for real ones.
    pub simulated_machine: String,
    /// The shim that new containers get.
    pub shim: Arc<library::Current>,
}

/// Implementation of the service.
#[derive(Debug, Clone)]
pub struct NodeService {
    grants: Grants,
    events: Arc<Events>,
    refusal: Arc<Refusal>,
    about: Arc<About>,
    deadline: Duration,
    stop: watch::Receiver<bool>,
    /// Access to NVML; without it no processes are listed.
    node: Option<Node>,
    /// Usage; without it `GetUsage` is refused.
    accounting: Option<Arc<Accounting>>,
    /// State of suspended tenants; without it all run.
    suspender: Option<Suspender>,
}

struct Listed {
    uuid: GpuUuid,
    /// Processes of no tenant.
    outside: Vec<v1::Process>,
    /// Memory that all processes use (bytes).
    memory_used_bytes: Option<u64>,
}

impl NodeService {
    /// Makes the service. Streams end when `stop` is true.
    pub fn new(
        grants: Grants,
        events: Arc<Events>,
        refusal: Arc<Refusal>,
        about: About,
        deadline: Duration,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self {
            grants,
            events,
            refusal,
            about: Arc::new(about),
            deadline,
            stop,
            node: None,
            accounting: None,
            suspender: None,
        }
    }

    /// Lets the service ask NVML for processes.
    pub fn with_nvml(self, node: Node) -> Self {
        Self { node: Some(node), ..self }
    }

    /// Lets the service tell which tenants are suspended.
    pub fn with_suspender(self, suspender: Suspender) -> Self {
        Self { suspender: Some(suspender), ..self }
    }

    /// Lets the service report usage.
    pub fn with_accounting(self, accounting: Arc<Accounting>) -> Self {
        Self { accounting: Some(accounting), ..self }
    }

    pub(crate) fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events)
    }

    /// What NVML tells of each GPU; a GPU without an answer is left out.
    async fn listed(&self, uuids: Vec<GpuUuid>, snapshot: Arc<Snapshot>) -> Vec<Listed> {
        let Some(node) = self.node.clone() else {
            return Vec::new();
        };
        let root = PathBuf::from(&self.about.root);
        // NVML and /proc may be slow.
        let ask = move || {
            let answer = |uuid: GpuUuid| {
                let outside = show::outside(&root, node.processes(&uuid).ok()?, &snapshot);
                Some(Listed { uuid, outside, memory_used_bytes: node.memory_used(&uuid).ok() })
            };
            uuids.into_iter().filter_map(answer).collect()
        };
        tokio::task::spawn_blocking(ask).await.unwrap_or_default()
    }
}

#[tonic::async_trait]
impl node_server::Node for NodeService {
    async fn list_gpus(
        &self,
        request: Request<v1::ListGpusRequest>,
    ) -> Result<Response<v1::ListGpusResponse>, Status> {
        let inventory = self.grants.inventory();
        let rules = self.grants.rules();
        let request = request.into_inner();
        let candidates = self.grants.candidates(&inventory);
        let mut gpus: Vec<v1::Gpu> =
            candidates.iter().map(|candidate| show::gpu(&rules, candidate, &inventory)).collect();
        if request.with_outside_processes {
            let snapshot = self.grants.snapshot_now().await;
            let uuids: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.uuid).collect();
            for listed in self.listed(uuids, snapshot).await {
                if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.uuid == listed.uuid.to_string()) {
                    gpu.outside_processes = listed.outside;
                    // The last look at the GPU may be from before a suspension.
                    gpu.memory_used_bytes = listed.memory_used_bytes.unwrap_or(gpu.memory_used_bytes);
                }
            }
        }
        Ok(Response::new(v1::ListGpusResponse {
            gpus,
            problem: inventory.problem.clone().unwrap_or_default(),
            cuda_version: inventory.cuda_version.clone(),
        }))
    }

    async fn list_containers(
        &self,
        request: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        let only = request.into_inner().id;
        // A ledger that cannot be written is reported by itself.
        let _ = self.grants.end_unused().await;
        let snapshot = self.grants.snapshot_now().await;
        let grant_table = self.grants.grant_table();
        let is_asked = |id: &str| only.is_empty() || only == id;
        let shown = |tenant: &Tenant| {
            let grant = grant_table.by_id(&tenant.id);
            let grant = grant.map(|grant| {
                let device = self.grants.devices().device_of(grant);
                convert::grant(grant, &self.grants.directories().path(&grant.id), device)
            });
            let suspender = self.suspender.as_ref();
            let state = suspender.map(|suspender| suspender.state(&tenant.id));
            let directory = self.grants.directories().path(&GrantId::from_directory(&tenant.id));
            v1::Container {
                room_denied: room_denied(&directory),
                ..show::tenant(tenant, grant, state.unwrap_or_default())
            }
        };
        let seen = snapshot
            .tenants
            .iter()
            .filter(|tenant| is_asked(&tenant.id))
            // A tenant that was released since the look is left out.
            .filter(|tenant| grant_table.by_id(&tenant.id).is_some());
        let mut tenants: Vec<v1::Container> = seen.map(shown).collect();
        // Tenants that were granted since the look are added without use.
        let unseen = grant_table
            .grants()
            .filter(|grant| is_asked(grant.id.as_str()) && snapshot.find(grant.id.as_str()).is_none());
        tenants.extend(unseen.map(|grant| shown(&Tenant::unused(grant))));
        tenants.sort_by(|one, other| one.id.cmp(&other.id));
        if !only.is_empty() && tenants.is_empty() {
            let only: String = only.chars().take(80).collect();
            return Err(Status::not_found(format!("{only:?}: no such container")));
        }
        Ok(Response::new(v1::ListContainersResponse { containers: tenants }))
    }

    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::GetUsageResponse>, Status> {
        let (by, since_s) = convert::usage(request.into_inner())?;
        let accounting = self.accounting.clone();
        let accounting =
            accounting.ok_or_else(|| Status::failed_precondition("this manager records no usage"))?;
        let report = tokio::task::spawn_blocking(move || accounting.report(by, since_s)).await;
        let report = report.map_err(|_| Status::unavailable("the manager is stopping; try again"))?;
        Ok(Response::new(show::usage(report)))
    }

    type WatchEventsStream = Answers<v1::Event>;

    async fn watch_events(
        &self,
        request: Request<v1::WatchEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let request = request.into_inner();
        let (known, told) = self.events.listen(request.after_number);
        let only = request.container_id;
        let message = move |event: Event| {
            let is_asked = only.is_empty() || event.report.tenant.as_deref() == Some(only.as_str());
            is_asked.then(|| show::event(event))
        };
        let known: Vec<v1::Event> = known.into_iter().filter_map(&message).collect();
        let told = (!request.no_follow).then_some(told);
        Ok(Response::new(subscription(known.into_iter(), told, message, self.stop.clone())))
    }

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::NodeStatus>, Status> {
        let may_have_grants = request.extensions().get::<Right>().is_some_and(|right| *right >= Right::Own);
        let mut problems = self.grants.problems();
        problems.extend(self.refusal.problem());
        let path = |path: &std::path::Path| path.display().to_string();
        let (shim_library, shim_preload, program) = match self.about.shim.get() {
            Some(installed) => (
                path(&installed.library),
                path(&installed.preload),
                installed.program.as_deref().map(path).unwrap_or_default(),
            ),
            None => Default::default(),
        };
        Ok(Response::new(v1::NodeStatus {
            version: self.about.version.clone(),
            build: self.about.build.clone(),
            node_name: self.about.node.clone(),
            started_unix_ms: self.about.started_unix_ms,
            layout_version: vcuda_region::release::layouts().1,
            problems,
            root: self.about.root.clone(),
            shim_library,
            program,
            shim_preload,
            may_have_grants,
            simulated_machine: self.about.simulated_machine.clone(),
            has_driver_limits: self.grants.inventory().has_memory_limits,
            cdi_directory: self.grants.devices().place().map(path).unwrap_or_default(),
        }))
    }

    async fn cordon(
        &self,
        request: Request<v1::CordonRequest>,
    ) -> Result<Response<v1::CordonResponse>, Status> {
        let time = deadline_of(&request, self.deadline);
        let user = owner::changer_of(&request);
        let v1::CordonRequest { gpu_uuid, cordoned } = request.into_inner();
        let uuid = convert::uuid("gpu_uuid", &gpu_uuid)?;
        within(time, async { Ok(self.grants.cordon(uuid, cordoned).await?) }).await?;
        let (reason, what) = match cordoned {
            true => ("VcudaGpuCordoned", "cordoned"),
            false => ("VcudaGpuUncordoned", "uncordoned"),
        };
        let told = (reason, format!("{uuid} was {what}"));
        owner::report(&self.events, user, told, (None, Some(uuid.to_string())), true).await;
        Ok(Response::new(v1::CordonResponse {}))
    }
}
