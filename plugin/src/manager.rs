//! Client of the manager's gRPC API, with one channel for all calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tonic::transport::Channel;
use tonic::{Code, Status};
use vcuda_manager_api::v1::grants_client::GrantsClient;
use vcuda_manager_api::v1::node_client::NodeClient;
use vcuda_manager_api::{ConnectError, connect, v1};

/// Interval of questions about the GPUs.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The same until the manager has answered once: kubelet refuses pods for good as long as it reads no list.
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of answers without a GPU that are ignored after a start, while the driver may still be loading: after a reboot kubelet fails
/// the node's pods for good if their devices are not in the first list.
const EMPTY_ANSWERS_MAX: u32 = 3;
/// Deadline of the connection and of each call.
const DEADLINE: Duration = Duration::from_secs(5);
/// Largest answer, which has the grants of a whole node (bytes).
const ANSWER_MAX: usize = 16 << 20;

#[derive(Debug, Error)]
pub(crate) enum ManagerError {
    #[error(transparent)]
    Unreachable(#[from] ConnectError),
    #[error("{}", .0.message())]
    Refused(Status),
}

impl ManagerError {
    /// The gRPC code; `Unavailable` if the manager does not answer.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Unreachable(_) => Code::Unavailable,
            Self::Refused(status) => status.code(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Manager {
    socket: PathBuf,
    channel: Mutex<Option<Channel>>,
}

impl Manager {
    /// Creates a client of the manager that listens at `socket`, now or later.
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), channel: Mutex::default() }
    }

    async fn channel(&self) -> Result<Channel, ManagerError> {
        let mut channel = self.channel.lock().await;
        match &*channel {
            Some(channel) => Ok(channel.clone()),
            None => Ok(channel.insert(connect(&self.socket, DEADLINE).await?).clone()),
        }
    }

    /// The message of an answer. Drops a broken channel, so that the error names the socket instead of "transport error".
    async fn response<T>(&self, answer: Result<tonic::Response<T>, Status>) -> Result<T, ManagerError> {
        match answer {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => {
                if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) {
                    *self.channel.lock().await = None;
                    // A restarted manager answers the next call; the error of an absent one names its socket.
                    self.channel().await?;
                }
                Err(ManagerError::Refused(status))
            }
        }
    }

    async fn grants(&self) -> Result<GrantsClient<Channel>, ManagerError> {
        Ok(GrantsClient::new(self.channel().await?).max_decoding_message_size(ANSWER_MAX))
    }

    async fn node(&self) -> Result<NodeClient<Channel>, ManagerError> {
        Ok(NodeClient::new(self.channel().await?).max_decoding_message_size(ANSWER_MAX))
    }

    pub(crate) async fn gpus(&self) -> Result<v1::ListGpusResponse, ManagerError> {
        // The plugin polls each second and does not need the use.
        let request = v1::ListGpusRequest::default();
        let answer = self.node().await?.list_gpus(request).await;
        self.response(answer).await
    }

    /// Status of the manager: its release and installed files.
    pub(crate) async fn status(&self) -> Result<v1::NodeStatus, ManagerError> {
        let answer = self.node().await?.get_status(v1::GetStatusRequest {}).await;
        self.response(answer).await
    }

    /// Stream of the manager's events: the kept ones, then new ones.
    pub(crate) async fn events(&self) -> Result<tonic::Streaming<v1::Event>, ManagerError> {
        let request = v1::WatchEventsRequest::default();
        let answer = self.node().await?.watch_events(request).await;
        self.response(answer).await
    }

    /// Whether the manager knows a living process of the grant's container.
    pub(crate) async fn is_used(&self, id: &str) -> Result<bool, ManagerError> {
        let request = v1::ListContainersRequest { id: id.to_owned() };
        let answer = self.node().await?.list_containers(request).await;
        match self.response(answer).await {
            Ok(answer) => Ok(answer.containers.iter().any(|container| !container.processes.is_empty())),
            Err(error) if error.code() == Code::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The grant with this key; `None` if there is none.
    pub(crate) async fn find(&self, key: &str) -> Result<Option<v1::Grant>, ManagerError> {
        let request = v1::GetGrantRequest { grant: Some(v1::get_grant_request::Grant::Key(key.to_owned())) };
        let answer = self.grants().await?.get(request).await;
        match self.response(answer).await {
            Ok(grant) => Ok(Some(grant)),
            Err(error) if error.code() == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn list(&self) -> Result<Vec<v1::Grant>, ManagerError> {
        let answer = self.grants().await?.list(v1::ListGrantsRequest {}).await;
        Ok(self.response(answer).await?.grants)
    }

    pub(crate) async fn create(&self, request: v1::CreateGrantRequest) -> Result<v1::Grant, ManagerError> {
        let answer = self.grants().await?.create(request).await;
        self.response(answer).await
    }

    /// Changes the amounts of a grant, if it is still as `grant` says.
    pub(crate) async fn resize(
        &self,
        grant: &v1::Grant,
        request_id: String,
        amounts: Option<v1::Amounts>,
    ) -> Result<v1::Grant, ManagerError> {
        let request = v1::ResizeGrantRequest {
            request_id,
            id: grant.id.clone(),
            amounts,
            expected_generation: grant.generation,
            ..v1::ResizeGrantRequest::default()
        };
        let answer = self.grants().await?.resize(request).await;
        self.response(answer).await
    }

    /// Changes whom a grant is for.
    pub(crate) async fn set_holder(&self, id: &str, holder: v1::Holder) -> Result<(), ManagerError> {
        let request = v1::SetHolderRequest { id: id.to_owned(), holder: Some(holder) };
        let answer = self.grants().await?.set_holder(request).await;
        self.response(answer).await.map(|_| ())
    }

    /// Releases a grant that no process uses. A missing grant counts as released.
    pub(crate) async fn release(&self, id: &str) -> Result<(), ManagerError> {
        let request = v1::ReleaseGrantRequest { id: id.to_owned(), even_if_used: false };
        let answer = self.grants().await?.release(request).await;
        self.response(answer).await.map(|_| ())
    }
}

pub(crate) trait NodeGpus: Clone + PartialEq {
    /// The same with the reason why the manager does not answer.
    fn with_problem(&self, problem: String) -> Self;
}

/// Asks for the node's GPUs until the task is dropped. Each change of what `read` makes of the answer and of the state before is
/// published, after a call of `note`. While the manager is away, as pods run on, the state stays.
pub(crate) async fn poll_gpus<T: NodeGpus>(
    manager: &Manager,
    state: &watch::Sender<Option<Arc<T>>>,
    read: impl Fn(v1::ListGpusResponse, Option<&T>) -> T,
    note: impl Fn(&T),
) {
    let mut empty = 0;
    loop {
        let before = state.borrow().clone();
        let (now, pause) = match manager.gpus().await {
            Ok(answer) if answer.gpus.is_empty() && empty < EMPTY_ANSWERS_MAX => {
                empty += 1;
                (None, POLL_INTERVAL)
            }
            Ok(answer) => (Some(read(answer, before.as_deref())), POLL_INTERVAL),
            Err(error) => match &before {
                Some(before) => (Some(before.with_problem(error.to_string())), POLL_INTERVAL),
                None => (None, FIRST_POLL_INTERVAL),
            },
        };
        if let Some(now) = now.filter(|now| before.as_deref() != Some(now)) {
            note(&now);
            state.send_replace(Some(Arc::new(now)));
        }
        sleep(pause).await;
    }
}
