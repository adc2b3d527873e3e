//! What a node's GPUs have left, as the device plugin publishes it on the node and the scheduler extender reads it.

use serde::{Deserialize, Serialize};

/// Annotation of the node that holds a [`NodeGpus`] as JSON.
pub const ANNOTATION: &str = "vcuda.io/gpus";

/// GPUs of a node. Names are short: every change is a write to the API server, and every watcher of nodes gets it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGpus {
    /// Its GPUs that take new containers.
    pub gpus: Vec<FreeGpu>,
}

/// What one more container could have of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeGpu {
    /// UUID.
    pub id: String,
    /// Chunks of memory that are free.
    pub mem: u32,
    /// Chunks of memory that a container alone could have.
    pub of: u32,
    /// Percents that are not promised.
    pub cores: u32,
    /// Shares that are free.
    pub shares: u32,
    /// NUMA node that the GPU is near to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// Places in [`NodeGpus::gpus`] of the GPUs behind an NVLink.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<u32>,
}
