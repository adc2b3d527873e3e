//! Reasons why a claim is not prepared. Kubelet shows the text in the events of the claim's pod, and asks again.

use thiserror::Error;
use tonic::Code;
use vcuda_quota::pods::AmountsError;
use vcuda_quota::pods::annotations::AnnotationError;
use vcuda_quota::{Contradiction, CoreShare};

use crate::bind::BindError;
use crate::cdi::{SpecError, StoreError};
use crate::dra::claim::ClaimError;
use crate::dra::users::UsersError;
use crate::manager::ManagerError;

#[derive(Debug, Error)]
pub(crate) enum PrepareError {
    #[error("\"{0}\" is no UID of a claim")]
    Uid(String),
    #[error("there is no claim of this name any more")]
    Gone,
    #[error("{0}")]
    Claim(#[from] ClaimError),
    #[error("the claim is reserved for no pod that there is")]
    NoPod,
    #[error("{0}")]
    Users(#[from] UsersError),
    #[error(
        "a container uses this claim and claim {0}, both of vcuda.io: a container has its limits from one claim; make them two \
         requests of one"
    )]
    TwoClaims(String),
    #[error(
        "requests {0} and {1} are used by the same container and ask for different amounts: a container has the same of each of \
         its GPUs"
    )]
    Unequal(String, String),
    #[error(
        "requests {0} and {1} of one container were allocated the same GPU, {2}: add constraints: [{{requests: [{0}, {1}], \
         distinctAttribute: vcuda.io/uuid}}]"
    )]
    SameGpu(String, String, String),
    #[error(
        "request {0} has admin access and is used by a container that also has a share: its limits could not hold"
    )]
    AdminBeside(String),
    #[error("parameters of driver vcuda.io: coresMax {0} is for policy burst, and the policy is {1}")]
    Maximum(CoreShare, &'static str),
    #[error("parameters of driver vcuda.io: coresMax {0} is less than the cores of the request, {1}")]
    MaximumBelow(CoreShare, CoreShare),
    #[error(
        "its parameters or annotations limit it, and it asks for whole GPUs, which have no limits: leave them out, or claim a share \
         (device class vcuda.io)"
    )]
    Whole,
    #[error(
        "request {0} asks for whole GPUs and names less memory than they have: leave capacity.requests out, or claim a share \
         (device class vcuda.io)"
    )]
    PartOfWhole(String),
    #[error(
        "request {0} asks for whole GPUs and was allocated one whose memory is overcommitted, so that others have shares of it: add \
         the selector !(\"overcommitted\" in device.attributes[\"vcuda.io\"]), as device class vcuda.io-whole has it"
    )]
    WholeOvercommitted(String),
    #[error(
        "request {0} was allocated device {1}, whose shares take turns in the GPU's memory, and is not suspendable: claim it by device \
         class vcuda.io-suspendable, or write the parameter suspendable: true and no annotation against it"
    )]
    NotSuspendable(String, String),
    #[error("{0}")]
    Annotation(#[from] AnnotationError),
    #[error("{0}")]
    Amounts(#[from] AmountsError),
    #[error("processes still use grant {0}: vcuda ps shows them; kubelet asks again")]
    Used(String),
    #[error("a container of pod {0} runs, which has the claim: kubelet asks again")]
    Running(String),
    #[error(
        "device {0} is not on this node (any more): delete the pod, and the claim if it is not the pod's own"
    )]
    NoDevice(String),
    #[error("the driver is starting or stopping; kubelet asks again")]
    NotYet,
    #[error("the API server or the manager has not answered in time; kubelet asks again")]
    Late,
    #[error("API server: {}; kubelet asks again", api_text(.0))]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Manager(#[from] ManagerError),
    #[error("{0}")]
    Spec(#[from] SpecError),
    #[error("{0}")]
    Node(#[from] BindError),
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl PrepareError {
    /// Whether the manager or the API server is away, so that the same call may succeed a moment later.
    pub(in crate::dra) fn is_passing(&self) -> bool {
        match self {
            Self::NotYet | Self::Late | Self::Manager(ManagerError::Unreachable(_)) => true,
            Self::Manager(ManagerError::Refused(status)) => status.code() == Code::Unavailable,
            Self::Api(kube::Error::Api(status)) => status.code >= 500,
            Self::Api(_) => true,
            _ => false,
        }
    }

    /// The reason as a word, for metrics.
    pub(in crate::dra) fn reason(&self) -> &'static str {
        match self {
            Self::Uid(_)
            | Self::Gone
            | Self::Claim(_)
            | Self::NoPod
            | Self::Users(_)
            | Self::TwoClaims(_)
            | Self::Unequal(..)
            | Self::SameGpu(..)
            | Self::AdminBeside(_)
            | Self::Whole
            | Self::PartOfWhole(_)
            | Self::WholeOvercommitted(_)
            | Self::NotSuspendable(..)
            | Self::Maximum(..)
            | Self::MaximumBelow(..) => "claim",
            Self::Annotation(_) | Self::Amounts(_) => "annotations",
            Self::Manager(ManagerError::Refused(_)) | Self::Used(_) | Self::Running(_) => "refused",
            Self::Manager(ManagerError::Unreachable(_)) | Self::Node(_) => "manager",
            Self::Api(_) => "api_server",
            Self::NoDevice(_) => "device",
            Self::NotYet | Self::Late => "late",
            Self::Spec(_) | Self::Store(_) => "files",
        }
    }
}

impl From<Contradiction> for PrepareError {
    fn from(contradiction: Contradiction) -> Self {
        match contradiction {
            Contradiction::MaximumWithoutBurst { cores_max_permille, policy } => {
                Self::Maximum(CoreShare(cores_max_permille), policy.name())
            }
            Contradiction::MaximumBelowShare { cores_max_permille, cores_permille } => {
                Self::MaximumBelow(CoreShare(cores_max_permille), CoreShare(cores_permille))
            }
        }
    }
}

/// An error of the API server. It stands in the events of a user's pod, to whom a missing right says nothing.
fn api_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            "it refuses the driver, as when the mode of the chart is being changed: see the log of vcuda's pod on this node".to_owned()
        }
        error => error.to_string(),
    }
}
