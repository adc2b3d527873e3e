//! Reasons why a pod or a claim is not admitted. The API server shows the text to whoever makes the pod, or in the events of the pod's
//! controller.

use thiserror::Error;
use vcuda_quota::MemorySize;
use vcuda_quota::pods::annotations::AnnotationError;
use vcuda_quota::pods::parameters::ParametersError;
use vcuda_quota::pods::quantity::QuantityError;
use vcuda_quota::pods::{AmountsError, CountsError};

/// Number of chunks that a node has at most (`MEMORY_IDS_MAX` of the device plugin).
pub(super) const CHUNKS_OF_A_NODE: u64 = 5_000;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("container {0}: {1}")]
    Container(String, RequestError),
    #[error("request {0}: {1}")]
    Request(String, RequestError),
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    #[error("annotation vcuda.io/mode \"{0}\": write plugin or dra")]
    Mode(String),
    #[error(
        "annotation vcuda.io/mode: dra: vcuda-cluster makes no claims here; set cluster.claims in the chart's values, or write plugin"
    )]
    NoClaims,
    #[error(
        "annotation {0}: it chooses a GPU of HAMi; choose a node by its labels (nodeSelector) and remove it"
    )]
    ChoiceOfGpu(String),
    #[error(
        "annotation {0}: the webhook of KAI Scheduler or Run:ai has prepared this pod for its own fractions: keep one of the two webhooks \
         out of the namespace (cluster.excludedNamespaces in the chart's values)"
    )]
    Prepared(&'static str),
    #[error(
        "annotation {0}: there are fractions for several containers: ask for all but one by vcuda.io/memory"
    )]
    TwoFractions(String),
    #[error("annotation {0}: the pod has no container of the name that it is for")]
    NoContainer(String),
    #[error("nodeSelector {0}: {1}: write fixed-share, best-effort or burst-share")]
    QgpuPolicy(String, String),
    #[error(
        "{0}; an administrator can allow it for the namespace: kubectl label namespace NAME vcuda.io/unconfined=true"
    )]
    Defeats(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Counts(#[from] CountsError),
    #[error(transparent)]
    Amounts(#[from] AmountsError),
    #[error("{0}")]
    Bounds(String),
    #[error("{0}: {1}")]
    Quantity(String, QuantityError),
    #[error("{0}: {1} is not a whole number")]
    Fraction(String, String),
    #[error(
        "{resource}: {text} is neither a number of chunks of {chunk}, of which a node has {CHUNKS_OF_A_NODE} at most, nor a \
         size of a MiB or more: write for example 16, or 4Gi"
    )]
    NeitherChunksNorSize { resource: String, text: String, chunk: MemorySize },
    #[error("it asks for {0} and for {1}: leave one of them out, as a container has the one or the other")]
    BothMemories(String, String),
    #[error("it asks for {0} and for {1}: write those of one system")]
    TwoSystems(String, String),
    #[error(
        "{0}: it is a part of a GPU's memory, which is not known here: write {1}, or set cluster.gpuMemory in the chart's \
         values, if all GPUs are alike"
    )]
    PartOfMemory(String, String),
    #[error("{0}: the limit of memory is below its request: ask for no more than the limit")]
    LimitBelowRequest(String),
    #[error("{0}: it is more memory than a node has: {CHUNKS_OF_A_NODE} chunks at most")]
    TooMuchMemory(String),
    #[error("{0}: '{1}' is no size of a MiB or more: write one such as 8Gi")]
    NoSize(String, String),
    #[error("{0}: '{1}' is no number of MiB: write one such as 4096")]
    NoMebibytes(String, String),
    #[error("{0}: {1} is no part of a GPU: write a number above 0 and up to 1, such as 0.5")]
    NoPart(String, String),
    #[error("{0}: {1} is more than 100 percent")]
    MoreThanAll(String, u64),
    #[error("{0}: {1} is more than one GPU and not whole GPUs: ask for a multiple of 100")]
    NotWholeGpus(String, u64),
    #[error("{0}: its unit is not documented: write {1}")]
    UnknownUnit(String, String),
    #[error("{0}: {1}: write 0 for high or 1 for low")]
    HamiPriority(String, u64),
    #[error(
        "annotation vcuda.io/{0}.{1} would be longer than the 63 characters that Kubernetes allows: shorten the container's name"
    )]
    LongName(&'static str, String),
}
