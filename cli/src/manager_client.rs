//! Client of the node's manager. Commands that show figures work without a manager; commands that change grants need it.

mod absence;
mod connect;
mod own;
pub mod view;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};
use vcuda_manager_api::SOCKET_NAME;
use vcuda_manager_api::v1::check_changes_request::Change as Planned;
use vcuda_manager_api::v1::check_changes_request::change::Change;
use vcuda_manager_api::v1::get_grant_request::Grant as Which;
use vcuda_manager_api::v1::grants_client::GrantsClient;
use vcuda_manager_api::v1::node_client::NodeClient;
use vcuda_manager_api::v1::{
    CheckChangesRequest, ContainerEdits, CordonRequest, CreateGrantRequest, Event, GetGrantRequest,
    GetUsageRequest, GetUsageResponse, Grant, LimitContainerRequest, ListContainersRequest,
    ListContainersResponse, ListGpusRequest, ListGpusResponse, ListGrantsRequest, NodeStatus,
    ReleaseGrantRequest, ResizeGrantRequest, SuspendCheck, SuspendRequest, SuspendState, WatchEventsRequest,
};
use vcuda_region::clock;
use vcuda_region::directory::CallersLock;

use crate::config::Environment;
use crate::failure::Failure;
use crate::inventory::{GpuSelector, Inventory};
pub(crate) use absence::Unreached;
use absence::failure_of;
pub(crate) use absence::{Absence, Down};

const SYSTEM_SOCKET: &str = "/run/vcuda/manager.sock";
/// Time after which a call fails. The manager answers in milliseconds.
const DEADLINE: Duration = Duration::from_secs(10);
/// What tonic says of a call that took longer, which it cancels.
const TIMED_OUT: &str = "Timeout expired";
/// Time that a command which needs a manager waits for one (ns): `vcuda-manager &` listens some 40 ms later.
const STARTS_WITHIN_NS: u64 = 1_000_000_000;
const LOOK: Duration = Duration::from_millis(20);

/// Connection to a manager that answers.
#[derive(Debug)]
pub struct ManagerClient {
    runtime: Runtime,
    channel: Channel,
    socket: PathBuf,
    /// A user's own manager does not end meanwhile.
    _called: Option<CallersLock>,
}

impl ManagerClient {
    /// Connects to the manager of `VCUDA_MANAGER`, else of the user's runtime directory, else of the system. Returns `None`
    /// if it does not run, or refuses this user.
    pub(crate) fn find(environment: &Environment) -> Result<Option<ManagerClient>, Failure> {
        Ok(ManagerClient::find_or_down(environment)?.ok())
    }

    /// As [`ManagerClient::find`], with the manager that has left its socket behind, if that is why there is none.
    pub(crate) fn find_or_down(
        environment: &Environment,
    ) -> Result<Result<ManagerClient, Option<Down>>, Failure> {
        match ManagerClient::reach(environment)? {
            Ok(node) => Ok(Ok(node)),
            Err(unreached) if unreached.iter().all(Unreached::is_usual) => Ok(Err(Down::of(&unreached))),
            Err(unreached) => Err(failure_of(unreached)),
        }
    }

    /// As [`ManagerClient::find_or_down`], for commands that show figures: of a manager that hangs, too, the tenants' files tell them.
    pub(crate) fn find_or_files(
        environment: &Environment,
    ) -> Result<Result<ManagerClient, Option<Down>>, Failure> {
        let may_be_without = |one: &Unreached| one.is_usual() || one.is_silent();
        match ManagerClient::reach(environment)? {
            Ok(node) => Ok(Ok(node)),
            Err(unreached) if unreached.iter().all(may_be_without) => Ok(Err(Down::of(&unreached))),
            Err(unreached) => Err(failure_of(unreached)),
        }
    }

    /// As [`ManagerClient::find`], with the reason why there is none.
    pub(crate) fn presence(environment: &Environment) -> Result<ManagerClient, Absence> {
        match ManagerClient::reach(environment) {
            Ok(Ok(node)) => Ok(node),
            Ok(Err(unreached)) => Err(Absence::of(unreached)),
            Err(failure) => Err(Absence::Silent(failure.to_string())),
        }
    }

    /// As [`ManagerClient::find`], for commands that need a manager: they start the user's own if there is none, and wait a second for one
    /// that `VCUDA_MANAGER` names.
    ///
    /// # Errors
    /// Fails with status 69 and the reason if none can be used.
    pub(crate) fn required(environment: &Environment) -> Result<ManagerClient, Failure> {
        if environment.manager.is_none() {
            return match ManagerClient::reach(environment)? {
                Ok(node) => Ok(node),
                Err(unreached) if unreached.iter().all(Unreached::is_not_running) => {
                    own::connect_for(environment)
                }
                Err(unreached) => Err(failure_of(unreached)),
            };
        }
        let until_ns = clock::now_ns().saturating_add(STARTS_WITHIN_NS);
        loop {
            let unreached = match ManagerClient::reach(environment)? {
                Ok(node) => return Ok(node),
                Err(unreached) => unreached,
            };
            let may_start = !unreached.is_empty() && unreached.iter().all(Unreached::is_not_running);
            if !may_start || clock::now_ns() >= until_ns {
                return Err(failure_of(unreached));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The first manager that answers, or why each does not. One that should answer hides those behind it, which have other
    /// tenants.
    fn reach(environment: &Environment) -> Result<Result<ManagerClient, Vec<Unreached>>, Failure> {
        let mut unreached = Vec::new();
        for socket in sockets(environment)? {
            match ManagerClient::at(&socket) {
                Ok(node) => return Ok(Ok(node)),
                // Killed with its keeper: its tenants live on.
                Err(why) if why.is_not_running() && own::is_missed(environment, &socket)? => {
                    return Ok(Ok(own::connect_for(environment)?));
                }
                Err(why) => unreached.push(why),
            }
            if !unreached.iter().all(Unreached::is_usual) {
                break;
            }
        }
        Ok(Err(unreached))
    }

    /// Connects to the manager at `socket`.
    pub fn at_socket(socket: &Path) -> Result<ManagerClient, Failure> {
        Ok(ManagerClient::at(socket)?)
    }

    /// The manager in which a run is a transient grant: that of `VCUDA_MANAGER`, else, for real GPUs, the system's if this user may have
    /// grants there, else the user's own, which is started if it does not run. `machine`: the simulated machine of the run.
    pub(crate) fn for_run(
        environment: &Environment,
        machine: Option<&Path>,
    ) -> Result<ManagerClient, Failure> {
        let own = environment.runtime_root()?;
        let first = match environment.manager.as_deref() {
            Some(off) if off == Path::new("off") => None,
            Some(named) => Some(named),
            None => machine.is_none().then_some(Path::new(SYSTEM_SOCKET)),
        };
        let first = first.filter(|socket| **socket != own.join(SOCKET_NAME));
        match first.map(ManagerClient::at) {
            Some(Ok(node)) if node.status()?.may_have_grants => Ok(node),
            Some(Err(why)) if !why.is_usual() => Err(why.into()),
            _ => own::connect(&own, machine),
        }
    }

    /// Whether it has the GPUs of this simulated machine.
    pub(crate) fn has_gpus_of(&self, machine: &Path) -> bool {
        let gpus = Inventory::simulated(machine).and_then(|inventory| inventory.gpus()).unwrap_or_default();
        let first = gpus.first().map(|gpu| gpu.uuid.to_string());
        first.is_some_and(|uuid| self.gpus().is_ok_and(|seen| seen.gpus.iter().any(|gpu| gpu.uuid == uuid)))
    }

    pub(crate) fn is_there(&self) -> bool {
        std::os::unix::net::UnixStream::connect(&self.socket).is_ok()
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    fn grants(&self) -> GrantsClient<Channel> {
        GrantsClient::new(self.channel.clone())
    }

    fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    fn wait<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Failure> {
        let answer = self.runtime.block_on(call);
        answer.map(Response::into_inner).map_err(|status| refused(&status))
    }

    pub(crate) fn status(&self) -> Result<NodeStatus, Failure> {
        let mut node = self.node();
        self.wait(node.get_status(vcuda_manager_api::v1::GetStatusRequest {}))
    }

    /// GPUs of the node.
    pub fn gpus(&self) -> Result<ListGpusResponse, Failure> {
        let mut node = self.node();
        self.wait(node.list_gpus(ListGpusRequest::default()))
    }

    /// GPUs of the node with the processes of no tenant.
    pub(crate) fn gpus_with_processes(&self) -> Result<ListGpusResponse, Failure> {
        let mut node = self.node();
        self.wait(node.list_gpus(ListGpusRequest { with_outside_processes: true }))
    }

    pub(crate) fn containers(&self) -> Result<ListContainersResponse, Failure> {
        let mut node = self.node();
        self.wait(node.list_containers(ListContainersRequest::default()))
    }

    pub(crate) fn usage(&self, request: GetUsageRequest) -> Result<GetUsageResponse, Failure> {
        let mut node = self.node();
        self.wait(node.get_usage(request))
    }

    pub(crate) fn list(&self) -> Result<Vec<Grant>, Failure> {
        let mut grants = self.grants();
        Ok(self.wait(grants.list(ListGrantsRequest {}))?.grants)
    }

    /// What a container of the grant with this id gets.
    pub(crate) fn container_edits(&self, id: &str) -> Result<ContainerEdits, Failure> {
        let mut grants = self.grants();
        let grant = Some(Which::Id(id.to_owned()));
        self.wait(grants.get_container_edits(GetGrantRequest { grant }))
    }

    /// Has the cgroup of a starting container's first process limited by the driver. Returns why it is not, though it could be.
    pub(crate) fn limit_container(&self, id: &str, pid: u32) -> Result<Option<String>, Failure> {
        let mut grants = self.grants();
        let request = LimitContainerRequest { id: id.to_owned(), pid };
        let missing = self.wait(grants.limit_container(request))?.missing;
        Ok(Some(missing).filter(|missing| !missing.is_empty()))
    }

    pub(crate) fn create(&self, request: CreateGrantRequest) -> Result<Grant, Failure> {
        let mut grants = self.grants();
        self.wait(grants.create(request))
    }

    pub(crate) fn resize(&self, request: ResizeGrantRequest) -> Result<Grant, Failure> {
        let mut grants = self.grants();
        self.wait(grants.resize(request))
    }

    /// Why each of these changes would be refused, after those before it; empty if it would not.
    pub(crate) fn check_changes(&self, changes: Vec<Change>) -> Result<Vec<String>, Failure> {
        let mut grants = self.grants();
        let changes = changes.into_iter().map(|change| Planned { change: Some(change) }).collect();
        Ok(self.wait(grants.check_changes(CheckChangesRequest { changes }))?.refusals)
    }

    /// Suspends a tenant; returns its state, which may still be that it is being suspended.
    pub(crate) fn suspend(&self, id: &str) -> Result<SuspendState, Failure> {
        let mut grants = self.grants();
        let id = id.to_owned();
        Ok(self.wait(grants.suspend(SuspendRequest { id }))?.state())
    }

    /// Conditions of a tenant's suspension.
    pub(crate) fn check_suspend(&self, id: &str) -> Result<Vec<SuspendCheck>, Failure> {
        let mut grants = self.grants();
        let id = id.to_owned();
        Ok(self.wait(grants.check_suspend(SuspendRequest { id }))?.checks)
    }

    /// As [`ManagerClient::suspend`], back.
    pub(crate) fn resume(&self, id: &str) -> Result<SuspendState, Failure> {
        let mut grants = self.grants();
        let id = id.to_owned();
        Ok(self.wait(grants.resume(SuspendRequest { id }))?.state())
    }

    /// UUIDs of the node's GPUs that match `selectors`, which are the values of `option`.
    pub(crate) fn chosen(&self, option: &str, selectors: &[GpuSelector]) -> Result<Vec<String>, Failure> {
        if selectors.is_empty() {
            return Ok(Vec::new());
        }
        let gpus = self.gpus()?.gpus;
        let chosen = |selector: &GpuSelector| {
            let found = match selector {
                GpuSelector::Index(index) => gpus.get(*index),
                GpuSelector::Uuid(prefix) => gpus.iter().find(|gpu| gpu.uuid.starts_with(prefix)),
            };
            found.map(|gpu| gpu.uuid.clone()).ok_or_else(|| {
                let known: Vec<&str> = gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Failure::Usage(format!("{option} {selector}: the node has no such GPU; there is {known}"))
            })
        };
        selectors.iter().map(chosen).collect()
    }

    /// Cordons the GPU (excludes it from placement), or uncordons it.
    pub(crate) fn cordon(&self, gpu_uuid: String, cordoned: bool) -> Result<(), Failure> {
        let mut node = self.node();
        self.wait(node.cordon(CordonRequest { gpu_uuid, cordoned })).map(drop)
    }

    /// Releases a grant. Returns whether it existed.
    pub(crate) fn release(&self, id: &str, even_if_used: bool) -> Result<bool, Failure> {
        let mut grants = self.grants();
        let id = id.to_owned();
        Ok(self.wait(grants.release(ReleaseGrantRequest { id, even_if_used }))?.released)
    }

    /// Passes each event to `each` until that fails, or the stream ends.
    pub(crate) fn events(
        &self,
        request: WatchEventsRequest,
        mut each: impl FnMut(Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut node = self.node();
        let mut stream: Streaming<Event> = self.wait(node.watch_events(request))?;
        while let Some(event) = self.runtime.block_on(stream.message()).map_err(|status| refused(&status))? {
            each(event)?;
        }
        Ok(())
    }

    pub(crate) fn grant(&self, name: &str) -> Result<Option<Grant>, Failure> {
        Ok(find(&self.list()?, name).cloned())
    }
}

/// The grant of this id, else of this name.
pub(crate) fn find<'g>(grants: &'g [Grant], name: &str) -> Option<&'g Grant> {
    let by_id = grants.iter().find(|grant| grant.id == name);
    by_id.or_else(|| grants.iter().find(|grant| grant.key == name))
}

/// Paths of sockets to try, the nearest first.
fn sockets(environment: &Environment) -> Result<Vec<PathBuf>, Failure> {
    match environment.manager.as_deref() {
        Some(off) if off == Path::new("off") => Ok(Vec::new()),
        Some(socket) => Ok(vec![socket.to_owned()]),
        None => {
            let own = environment.runtime_root()?.join(SOCKET_NAME);
            let system = PathBuf::from(SYSTEM_SOCKET);
            Ok(if own == system { vec![own] } else { vec![own, system] })
        }
    }
}

/// Whether the call took longer than [`DEADLINE`].
fn is_late(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded || status.message() == TIMED_OUT
}

/// Whether the connection ended during the call: then the message is the HTTP library's.
fn is_broken_off(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// Failure with the manager's message. The exit status tells whether the user or the operator has to act.
fn refused(status: &Status) -> Failure {
    let words = status.message();
    match status.code() {
        _ if is_late(status) => Failure::Unavailable(format!(
            "the manager did not answer within {} s; `vcuda doctor` looks at it",
            DEADLINE.as_secs()
        )),
        _ if is_broken_off(status) => Failure::Unavailable(
            "the connection broke: the manager has ended, or has too many of yours; start the command again"
                .to_owned(),
        ),
        Code::InvalidArgument | Code::NotFound | Code::AlreadyExists => Failure::Usage(words.to_owned()),
        Code::Unavailable => Failure::Unavailable(format!("the manager cannot do this now: {words}")),
        Code::Unimplemented => Failure::Failed(
            "the manager is older than this vcuda and does not know the call; update it".to_owned(),
        ),
        _ => Failure::Failed(words.to_owned()),
    }
}
