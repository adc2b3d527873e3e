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

/// The reason why a pod or a claim is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// A container's request.
    #[error("container {0}: {1}")]
    Container(String, RequestError),
    /// A claim's request.
    #[error("request {0}: {1}")]
    Request(String, RequestError),
    /// A claim's parameters, in the driver's words.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// An annotation, by itself.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// The annotation that chooses between counts and claims.
    #[error("annotation vcuda.io/mode \"{0}\": write plugin or dra")]
    Mode(String),
    /// A claim, where none are made.
    #[error(
        "annotation vcuda.io/mode: dra: vcuda-cluster makes no claims here; set cluster.claims in the chart's values, or write plugin"
    )]
    NoClaims,
    /// An annotation of another system that has no counterpart.
    #[error(
        "annotation {0}: it chooses a GPU of HAMi; choose a node by its labels (nodeSelector) and remove it"
    )]
    ChoiceOfGpu(String),
    /// A value of a node label of another system.
    #[error("nodeSelector {0}: {1}: write fixed-share, best-effort or burst-share")]
    QgpuPolicy(String, String),
    /// It would defeat its own limits, or those of others.
    #[error(
        "{0}; an administrator can allow it for the namespace: kubectl label namespace NAME vcuda.io/unconfined=true"
    )]
    Defeats(String),
}

/// The fault of a container's request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// Counts that no node can grant, in the device plugin's words.
    #[error(transparent)]
    Counts(#[from] CountsError),
    /// Annotations that contradict it, in the device plugin's words.
    #[error(transparent)]
    Amounts(#[from] AmountsError),
    /// A choice beyond the namespace's bounds, in the manager's words.
    #[error("{0}")]
    Bounds(String),
    /// An amount that is none.
    #[error("{0}: {1}")]
    Quantity(String, QuantityError),
    /// A fraction of something that has none.
    #[error("{0}: {1} is not a whole number")]
    Fraction(String, String),
    /// Neither a count nor a size.
    #[error(
        "{resource}: {text} is neither a number of chunks of {chunk}, of which a node has {CHUNKS_OF_A_NODE} at most, nor a \
         size of a MiB or more: write for example 16, or 4Gi"
    )]
    NeitherChunksNorSize {
        /// Name of the resource.
        resource: String,
        /// Its amount.
        text: String,
        /// Size of a chunk.
        chunk: MemorySize,
    },
    /// Memory of both kinds.
    #[error("it asks for {0} and for {1}: leave one of them out, as a container has the one or the other")]
    BothMemories(String, String),
    /// Resources of two systems.
    #[error("it asks for {0} and for {1}: write those of one system")]
    TwoSystems(String, String),
    /// A percentage of memory, and GPUs of unknown size.
    #[error(
        "{0}: it is a part of a GPU's memory, which is not known here: write {1}, or set cluster.gpuMemory in the chart's \
         values, if all GPUs are alike"
    )]
    PartOfMemory(String, String),
    /// A percentage beyond all.
    #[error("{0}: {1} is more than 100 percent")]
    MoreThanAll(String, u64),
    /// More than one GPU, and not whole ones.
    #[error("{0}: {1} is more than one GPU and not whole GPUs: ask for a multiple of 100")]
    NotWholeGpus(String, u64),
    /// A unit that is not documented.
    #[error("{0}: its unit is not documented: write {1}")]
    UnknownUnit(String, String),
    /// A priority of HAMi.
    #[error("{0}: {1}: write 0 for high or 1 for low")]
    HamiPriority(String, u64),
    /// The annotation for it would be too long.
    #[error(
        "annotation vcuda.io/{0}.{1} would be longer than the 63 characters that Kubernetes allows: shorten the container's name"
    )]
    LongName(&'static str, String),
}
