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
pub(crate) enum BindError {
    #[error("{0}; nothing is granted before that is known")]
    Pods(#[from] PodsError),
    #[error("{0}; nothing is granted in doubt")]
    Holder(#[from] HolderError),
    #[error("{}: {}", .0, .1)]
    Request(String, RequestError),
    #[error("{0}: kubelet names {1:?} among its devices, which is none of this plugin's: delete the pod")]
    Foreign(String, String),
    #[error("{0}: {1}")]
    Annotations(String, String),
    #[error("{0}")]
    Driver(#[from] DriverError),
    #[error("{0}")]
    Refused(ManagerError),
    #[error("{0}: processes of the container that had these devices before ({1}) still run: {2}")]
    StillUsed(String, String, ManagerError),
    #[error("{0}: kubelet has given it devices that {1} has, too; it starts when {1} has ended")]
    GivenTwice(String, String),
    #[error("{0}")]
    Spec(#[from] SpecError),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error(
        "it was not known within {DEADLINE:?} whose devices these are and what is free; kubelet asks again"
    )]
    Late,
}

impl From<ManagerError> for BindError {
    fn from(error: ManagerError) -> Self {
        Self::Refused(error)
    }
}

impl From<BindError> for Status {
    fn from(error: BindError) -> Self {
        let code = match &error {
            BindError::Pods(_) | BindError::Store(_) => Code::Unavailable,
            BindError::Late => Code::DeadlineExceeded,
            BindError::Refused(refused) => refused.code(),
            _ => Code::FailedPrecondition,
        };
        Status::new(code, error.to_string())
    }
}
