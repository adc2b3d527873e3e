//! Reasons why a container does not start.

use thiserror::Error;
use tonic::{Code, Status};
use vcuda_cdi::driver::DriverError;

use super::DEADLINE;
use crate::cdi::{SpecError, StoreError};
use crate::gpu_request::RequestError;
use crate::manager::ManagerError;
use crate::pods::{HolderError, PodsError};

/// The reason why a container does not start. Kubelet shows the text in the pod's events, and asks again.
#[derive(Debug, Error)]
pub enum BindError {
    /// PodResources does not answer, so that the container is not known.
    #[error("{0}; nothing is granted before that is known")]
    Pods(#[from] PodsError),
    /// Kubelet's records contradict each other about which container it is.
    #[error("{0}; nothing is granted in doubt")]
    Holder(#[from] HolderError),
    /// The node could never serve its request.
    #[error("{}: {}", .0, .1)]
    Request(String, RequestError),
    /// Kubelet lists devices that the plugin never had.
    #[error("{0}: kubelet names {1:?} among its devices, which is none of this plugin's: delete the pod")]
    Foreign(String, String),
    /// Its annotations are wrong, or contradict its request.
    #[error("{0}: {1}")]
    Annotations(String, String),
    /// The driver's files were not found.
    #[error("{0}")]
    Driver(#[from] DriverError),
    /// No GPU has enough for it, or the manager refuses for another reason.
    #[error("{0}")]
    Refused(ManagerError),
    /// Processes of the container that had these devices before still run.
    #[error("{0}: processes of the container that had these devices before ({1}) still run: {2}")]
    StillUsed(String, String, ManagerError),
    /// Kubelet has given it devices of a container that it still lists.
    #[error("{0}: kubelet has given it devices that {1} has, too; it starts when {1} has ended")]
    GivenTwice(String, String),
    /// The specification cannot be made.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// The specification cannot be written.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The deadline has passed.
    #[error(
        "it was not known within {DEADLINE:?} whose devices these are and what is free; kubelet asks again"
    )]
    Late,
    /// The plugin is ending.
    #[error("the device plugin is stopping; kubelet asks again")]
    Stopping,
}

impl From<ManagerError> for BindError {
    fn from(error: ManagerError) -> Self {
        Self::Refused(error)
    }
}

impl From<BindError> for Status {
    fn from(error: BindError) -> Self {
        let code = match &error {
            BindError::Pods(_) | BindError::Stopping | BindError::Store(_) => Code::Unavailable,
            BindError::Late => Code::DeadlineExceeded,
            BindError::Refused(refused) => refused.code(),
            _ => Code::FailedPrecondition,
        };
        Status::new(code, error.to_string())
    }
}
