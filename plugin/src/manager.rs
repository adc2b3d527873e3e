//! The manager as the plugin sees it: one channel for all, each call with a deadline.

use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Mutex;
use tonic::transport::Channel;
use tonic::{Code, Status};
use vcuda_manager_api::v1::grants_client::GrantsClient;
use vcuda_manager_api::v1::node_client::NodeClient;
use vcuda_manager_api::{ConnectError, connect, v1};

/// For any one call.
const DEADLINE: Duration = Duration::from_secs(5);
/// The largest answer (bytes): the grants of a whole node.
const ANSWER_MAX: usize = 16 << 20;

/// The error if the manager did not carry out a request.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// The manager does not answer.
    #[error(transparent)]
    Away(#[from] ConnectError),
    /// It refuses.
    #[error("{}", .0.message())]
    Refused(Status),
}

impl ManagerError {
    /// Code of its refusal.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Away(_) => Code::Unavailable,
            Self::Refused(status) => status.code(),
        }
    }
}

/// The way to the manager.
#[derive(Debug)]
pub struct Manager {
    socket: PathBuf,
    channel: Mutex<Option<Channel>>,
}

impl Manager {
    /// The one that listens at `socket`, now or later.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            channel: Mutex::default(),
        }
    }

    async fn channel(&self) -> Result<Channel, ManagerError> {
        let mut channel = self.channel.lock().await;
        match &*channel {
            Some(channel) => Ok(channel.clone()),
            None => Ok(channel.insert(connect(&self.socket, DEADLINE).await?).clone()),
        }
    }

    /// Gives up the channel if its other end is closed: the next call says more than "transport error".
    async fn checked<T>(&self, answer: Result<tonic::Response<T>, Status>) -> Result<T, ManagerError> {
        match answer {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => {
                if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled) {
                    *self.channel.lock().await = None;
                    // A restarted manager may answer at the next try. One that is absent is named.
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

    /// The node's GPUs.
    ///
    /// # Errors
    /// See [`ManagerError`], as of all calls.
    pub async fn gpus(&self) -> Result<v1::ListGpusResponse, ManagerError> {
        // Asked each second. What is in use is not needed.
        let request = v1::ListGpusRequest { use_may_be_old: true };
        let answer = self.node().await?.list_gpus(request).await;
        self.checked(answer).await
    }

    /// The manager itself.
    pub async fn status(&self) -> Result<v1::NodeStatus, ManagerError> {
        let answer = self.node().await?.get_status(v1::GetStatusRequest {}).await;
        self.checked(answer).await
    }

    /// Its events so far, and later ones as they come.
    pub async fn events(&self) -> Result<tonic::Streaming<v1::Event>, ManagerError> {
        let request = v1::WatchEventsRequest::default();
        let answer = self.node().await?.watch_events(request).await;
        self.checked(answer).await
    }

    /// Whether a process of the grant's container lives, as far as the manager knows.
    pub async fn is_used(&self, id: &str) -> Result<bool, ManagerError> {
        let request = v1::ListContainersRequest { id: id.to_owned() };
        let answer = self.node().await?.list_containers(request).await;
        match self.checked(answer).await {
            Ok(answer) => Ok(answer
                .containers
                .iter()
                .any(|container| !container.processes.is_empty())),
            Err(error) if error.code() == Code::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The grant with this key, if there is one.
    pub async fn find(&self, key: &str) -> Result<Option<v1::Grant>, ManagerError> {
        let request = v1::GetGrantRequest {
            grant: Some(v1::get_grant_request::Grant::Key(key.to_owned())),
        };
        let answer = self.grants().await?.get(request).await;
        match self.checked(answer).await {
            Ok(grant) => Ok(Some(grant)),
            Err(error) if error.code() == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All grants of the node.
    pub async fn list(&self) -> Result<Vec<v1::Grant>, ManagerError> {
        let answer = self.grants().await?.list(v1::ListGrantsRequest {}).await;
        Ok(self.checked(answer).await?.grants)
    }

    /// A new grant.
    pub async fn create(&self, request: v1::CreateGrantRequest) -> Result<v1::Grant, ManagerError> {
        let answer = self.grants().await?.create(request).await;
        self.checked(answer).await
    }

    /// Other amounts for a grant.
    pub async fn resize(&self, request: v1::ResizeGrantRequest) -> Result<v1::Grant, ManagerError> {
        let answer = self.grants().await?.resize(request).await;
        self.checked(answer).await
    }

    /// Ends a grant that no process uses. One that is not there is ended.
    pub async fn release(&self, id: &str) -> Result<(), ManagerError> {
        let request = v1::ReleaseGrantRequest {
            id: id.to_owned(),
            even_if_used: false,
        };
        let answer = self.grants().await?.release(request).await;
        self.checked(answer).await.map(|_| ())
    }
}
