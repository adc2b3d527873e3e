//! What a node's GPUs have left, as the device plugin publishes it on the node and the scheduler extender reads it.

use serde::{Deserialize, Serialize};

/// Annotation of the node that holds a [`NodeGpus`] as JSON.
pub const ANNOTATION: &str = "vcuda.io/gpus";

/// GPUs of a node. Names are short: every change is a write to the API server, and every watcher of nodes gets it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGpus {
    /// Its GPUs that take new containers.
    pub gpus: Vec<FreeGpu>,
    /// [`container_key`] of each container whose share is taken off already.
    pub held: Vec<u32>,
}

/// Short key of a container in [`NodeGpus::held`]: FNV-1a of 32 bits over its names. Two containers of a node with one key are so
/// rare that the scheduler may be wrong about them: the node's manager decides.
pub fn container_key(namespace: &str, pod: &str, container: &str) -> u32 {
    let names = [namespace, "/", pod, "/", container];
    let bytes = names.iter().flat_map(|name| name.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What one more container could have of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeGpu {
    /// UUID.
    pub id: String,
    /// Chunks of memory that are free.
    pub mem: u32,
    /// Chunks for suspendable containers; `None` if the GPU's memory is not overcommitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<FreeTurns>,
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

/// What one more suspendable container could have of the memory in which such containers take turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeTurns {
    /// Chunks that are free.
    pub mem: u32,
    /// Most chunks of one container.
    pub most: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_fnv_1a() {
        // The hash of "a//" by the published algorithm, and of three other containers.
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
        let expected = b"a//".iter().fold(2_166_136_261, |hash, byte| step(hash, *byte));
        assert_eq!(container_key("a", "", ""), expected);
        let keys = [container_key("n", "p", "c"), container_key("n", "p", "d"), container_key("n", "pc", "")];
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
    }
}
