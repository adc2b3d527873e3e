//! Client of the node's manager. Commands that show figures work without a manager; commands that change grants need it.

pub mod view;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};
use vcuda_manager_api::v1::get_grant_request::Grant as Which;
use vcuda_manager_api::v1::grants_client::GrantsClient;
use vcuda_manager_api::v1::node_client::NodeClient;
use vcuda_manager_api::v1::{
    ContainerEdits, CordonRequest, CreateGrantRequest, Event, GetGrantRequest, GetUsageRequest,
    GetUsageResponse, Grant, ListContainersRequest, ListContainersResponse, ListGpusRequest,
    ListGpusResponse, ListGrantsRequest, NodeStatus, ReleaseGrantRequest, ResizeGrantRequest, SuspendCheck,
    SuspendRequest, SuspendState, WatchEventsRequest,
};
use vcuda_manager_api::{ConnectError, SOCKET_NAME, connect};

use crate::config::{ENV_MANAGER, Environment};
use crate::failure::{Failure, failed};
use crate::inventory::GpuSelector;

/// Path of the socket of the system's manager.
const SYSTEM_SOCKET: &str = "/run/vcuda/manager.sock";
/// Time after which a call fails. The manager answers in milliseconds.
const DEADLINE: Duration = Duration::from_secs(10);

/// Connection to a manager that answers.
#[derive(Debug)]
pub struct ManagerClient {
    runtime: Runtime,
    channel: Channel,
    socket: PathBuf,
}

impl ManagerClient {
    /// Connects to the manager of `VCUDA_MANAGER`, else of the user's runtime directory, else of the system. Returns `None`
    /// if it does not run, or refuses this user.
    pub(crate) fn find(environment: &Environment) -> Result<Option<ManagerClient>, Failure> {
        for socket in sockets(environment)? {
            match ManagerClient::at(&socket) {
                Ok(node) => return Ok(Some(node)),
                Err(Unreached::Socket(
                    ConnectError::Absent(_) | ConnectError::Dead(_) | ConnectError::Denied(_),
                ))
                | Err(Unreached::Refused(_)) => {}
                Err(unreached) => return Err(unreached.into()),
            }
        }
        Ok(None)
    }

    /// As [`ManagerClient::required`], with the kind of failure.
    pub(crate) fn presence(environment: &Environment) -> Result<ManagerClient, Absence> {
        let failure = match ManagerClient::required(environment) {
            Ok(node) => return Ok(node),
            Err(failure) => failure.to_string(),
        };
        let states: Vec<Unreached> = sockets(environment)
            .unwrap_or_default()
            .iter()
            .filter_map(|socket| ManagerClient::at(socket).err())
            .collect();
        let is_any = |is_it: fn(&ConnectError) -> bool| {
            states
                .iter()
                .any(|state| matches!(state, Unreached::Socket(error) if is_it(error)))
        };
        let is_refused = states.iter().any(|state| matches!(state, Unreached::Refused(_)));
        Err(
            if is_refused || is_any(|error| matches!(error, ConnectError::Denied(_))) {
                Absence::Denied(failure)
            } else if is_any(|error| matches!(error, ConnectError::Dead(_))) {
                Absence::Down(failure)
            } else if is_any(|error| !matches!(error, ConnectError::Absent(_))) {
                Absence::Silent(failure)
            } else {
                Absence::NoManager
            },
        )
    }

    /// As [`ManagerClient::find`], for commands that need a manager.
    ///
    /// # Errors
    /// Fails with status 69 and the reason if none can be used.
    pub(crate) fn required(environment: &Environment) -> Result<ManagerClient, Failure> {
        let mut problem = None;
        for socket in sockets(environment)? {
            match ManagerClient::at(&socket) {
                Ok(node) => return Ok(node),
                // Of several sockets, one that refuses this user explains more than a missing one.
                Err(Unreached::Socket(error @ ConnectError::Absent(_))) => {
                    problem.get_or_insert(Unreached::Socket(error));
                }
                Err(unreached) => problem = Some(unreached),
            }
        }
        Err(problem.map_or_else(
            || Failure::Unavailable(format!("{ENV_MANAGER} says that there is no manager; unset it")),
            Failure::from,
        ))
    }

    /// Connects to the manager at `socket`.
    ///
    /// # Errors
    /// Fails if no manager answers there.
    pub fn at_socket(socket: &Path) -> Result<ManagerClient, Failure> {
        Ok(ManagerClient::at(socket)?)
    }

    fn at(socket: &Path) -> Result<ManagerClient, Unreached> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Unreached::Runtime)?;
        let channel = runtime
            .block_on(connect(socket, DEADLINE))
            .map_err(Unreached::Socket)?;
        let client = ManagerClient {
            runtime,
            channel,
            socket: socket.to_owned(),
        };
        client.check_admitted()?;
        Ok(client)
    }

    /// A manager that tells its callers apart lets all connect, and refuses the calls of those without any right.
    fn check_admitted(&self) -> Result<(), Unreached> {
        let mut node = self.node();
        let status = node.get_status(vcuda_manager_api::v1::GetStatusRequest {});
        match self.runtime.block_on(status) {
            Err(status) if status.code() == Code::PermissionDenied => {
                Err(Unreached::Refused(status.message().to_owned()))
            }
            // Any other failure is that of the call for which this was connected.
            _ => Ok(()),
        }
    }

    /// Path of the socket.
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
        answer
            .map(Response::into_inner)
            .map_err(|status| refused(&status))
    }

    pub(crate) fn status(&self) -> Result<NodeStatus, Failure> {
        let mut node = self.node();
        self.wait(node.get_status(vcuda_manager_api::v1::GetStatusRequest {}))
    }

    /// GPUs of the node.
    ///
    /// # Errors
    /// Fails if the manager does not answer, or refuses.
    pub fn gpus(&self) -> Result<ListGpusResponse, Failure> {
        let mut node = self.node();
        self.wait(node.list_gpus(ListGpusRequest::default()))
    }

    /// GPUs of the node with the processes of no tenant.
    pub(crate) fn gpus_with_processes(&self) -> Result<ListGpusResponse, Failure> {
        let mut node = self.node();
        self.wait(node.list_gpus(ListGpusRequest {
            with_outside_processes: true,
            ..ListGpusRequest::default()
        }))
    }

    pub(crate) fn containers(&self) -> Result<ListContainersResponse, Failure> {
        let mut node = self.node();
        self.wait(node.list_containers(ListContainersRequest::default()))
    }

    /// What was used within a time.
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

    pub(crate) fn create(&self, request: CreateGrantRequest) -> Result<Grant, Failure> {
        let mut grants = self.grants();
        self.wait(grants.create(request))
    }

    pub(crate) fn resize(&self, request: ResizeGrantRequest) -> Result<Grant, Failure> {
        let mut grants = self.grants();
        self.wait(grants.resize(request))
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
                Failure::Usage(format!(
                    "{option} {selector}: the node has no such GPU; there is {}",
                    known.join(", ")
                ))
            })
        };
        selectors.iter().map(chosen).collect()
    }

    /// Cordons the GPU (excludes it from placement), or uncordons it.
    pub(crate) fn cordon(&self, gpu_uuid: String, cordoned: bool) -> Result<(), Failure> {
        let mut node = self.node();
        self.wait(node.cordon(CordonRequest { gpu_uuid, cordoned }))
            .map(drop)
    }

    /// Releases a grant. Returns whether it existed.
    pub(crate) fn release(&self, id: &str, even_if_used: bool) -> Result<bool, Failure> {
        let mut grants = self.grants();
        let id = id.to_owned();
        Ok(self
            .wait(grants.release(ReleaseGrantRequest { id, even_if_used }))?
            .released)
    }

    /// Passes each event to `each` until that fails, or the stream ends.
    pub(crate) fn events(
        &self,
        request: WatchEventsRequest,
        mut each: impl FnMut(Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut node = self.node();
        let mut stream: Streaming<Event> = self.wait(node.watch_events(request))?;
        while let Some(event) = self
            .runtime
            .block_on(stream.message())
            .map_err(|status| refused(&status))?
        {
            each(event)?;
        }
        Ok(())
    }

    /// The grant with the id or the key `name`.
    pub(crate) fn grant(&self, name: &str) -> Result<Option<Grant>, Failure> {
        let grants = self.list()?;
        let by_id = grants.iter().find(|grant| grant.id == name);
        Ok(by_id
            .or_else(|| grants.iter().find(|grant| grant.key == name))
            .cloned())
    }
}

/// The reason why no manager can be used. Each has a remedy of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// None has ever run here, or none is to be used.
    NoManager,
    /// It has ended and left its socket behind.
    Down(String),
    /// It refuses this user.
    Denied(String),
    /// It does not answer.
    Silent(String),
}

/// Paths of sockets to try, the nearest first.
fn sockets(environment: &Environment) -> Result<Vec<PathBuf>, Failure> {
    match environment.manager.as_deref() {
        Some(off) if off == Path::new("off") => Ok(Vec::new()),
        Some(socket) => Ok(vec![socket.to_owned()]),
        None => {
            let own = environment.runtime_root()?.join(SOCKET_NAME);
            let system = PathBuf::from(SYSTEM_SOCKET);
            Ok(if own == system {
                vec![own]
            } else {
                vec![own, system]
            })
        }
    }
}

enum Unreached {
    Socket(ConnectError),
    /// The manager's refusal of this user.
    Refused(String),
    Runtime(std::io::Error),
}

impl From<Unreached> for Failure {
    fn from(unreached: Unreached) -> Self {
        match unreached {
            Unreached::Socket(error @ ConnectError::Absent(_)) => Failure::Unavailable(format!(
                "{error}; start `vcuda-manager`, or name its socket in {ENV_MANAGER}"
            )),
            Unreached::Socket(error) => Failure::Unavailable(error.to_string()),
            Unreached::Refused(words) => Failure::Unavailable(words),
            Unreached::Runtime(error) => failed(error),
        }
    }
}

/// Failure with the manager's message. The exit status tells whether the user or the operator has to act.
fn refused(status: &Status) -> Failure {
    let words = status.message();
    match status.code() {
        Code::InvalidArgument | Code::NotFound | Code::AlreadyExists => Failure::Usage(words.to_owned()),
        Code::Unavailable => Failure::Unavailable(format!("the manager cannot do this now: {words}")),
        Code::DeadlineExceeded => Failure::Failed(format!(
            "the manager did not answer within {} s; `vcuda doctor` looks at it",
            DEADLINE.as_secs()
        )),
        Code::Unimplemented => Failure::Failed(
            "the manager is older than this vcuda and does not know the call; update it".to_owned(),
        ),
        _ => Failure::Failed(words.to_owned()),
    }
}
