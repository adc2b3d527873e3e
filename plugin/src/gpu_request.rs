//! The amounts of each GPU that a container requests, computed from the number of devices that kubelet gave it.

use thiserror::Error;
use vcuda_quota::MemorySize;
use vcuda_quota::pods::{CORES_PER_GPU, Counts, CountsError};

use crate::amounts::Counted;
use crate::ids::{Ids, Kind};
use crate::pods::ExtendedResources;
use crate::resources::{NodeGpu, State};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuRequest {
    pub(crate) gpus: u32,
    pub(crate) counted: Counted,
    /// UUIDs of the GPUs to choose from; empty means any.
    pub(crate) among: Vec<String>,
    /// Whether its memory is that for suspendable containers.
    pub(crate) is_suspendable: bool,
}

/// Numbers of a container's devices, by [`Kind`].
pub(crate) fn device_counts(ids: &[Ids; 4]) -> [u32; 4] {
    ids.each_ref().map(|ids| u32::try_from(ids.len()).unwrap_or(u32::MAX))
}

/// Numbers of devices that no GPU of this node could serve, even if it were free.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Counts(#[from] CountsError),
    #[error(
        "it asks for {memory} and for {suspendable}: leave one of them out, as a container has the one or the other"
    )]
    BothMemories {
        /// Name of the resource of memory for all containers.
        memory: String,
        /// Name of the resource of memory for suspendable ones.
        suspendable: String,
    },
    #[error(
        "{resource}: {count} is {size} on each of {gpus} GPUs; the largest that this node has gives {most}"
    )]
    TooLarge {
        resource: String,
        count: u32,
        size: MemorySize,
        gpus: u32,
        /// Memory that the largest GPU of the node can give to one container.
        most: MemorySize,
    },
}

/// Computes the request from the numbers of a container's devices, by [`Kind`], with chunks of `chunk_bytes`.
///
/// All chunks and all percents of a GPU mean the whole GPU, without other containers.
pub(crate) fn gpu_request(
    [count, common, percents, suspendable]: [u32; 4],
    chunk_bytes: u64,
    gpus: &[NodeGpu],
    names: &ExtendedResources,
) -> Result<GpuRequest, RequestError> {
    let (kind, chunks) = match (common, suspendable) {
        (chunks, 0) => (Kind::Memory, chunks),
        (0, chunks) => (Kind::SuspendableMemory, chunks),
        (_, _) => {
            let [memory, suspendable] =
                [Kind::Memory, Kind::SuspendableMemory].map(|kind| names.name(kind).to_owned());
            return Err(RequestError::BothMemories { memory, suspendable });
        }
    };
    let is_suspendable = kind == Kind::SuspendableMemory;
    let counts = Counts { gpus: count, chunks, percents };
    let each = counts.of_each_gpu(chunk_bytes, names.resources(kind))?;
    let (chunks_each, percents_each) = (each.chunks, each.percents);
    let size = |chunks: u32| u64::from(chunks).saturating_mul(chunk_bytes);
    let known = gpus.iter().filter(|gpu| gpu.state != State::Unhealthy);
    let largest = |gpu: &NodeGpu| match is_suspendable {
        true => gpu.suspendable.map_or(0, |chunks| chunks.largest),
        false => gpu.chunks,
    };
    let most = known.map(largest).max();
    // If no GPU is healthy, the manager's refusal names the unhealthy ones.
    if let Some(most) = most.filter(|most| chunks_each > *most) {
        return Err(RequestError::TooLarge {
            resource: names.name(kind).to_owned(),
            count: chunks,
            size: MemorySize(size(chunks_each)),
            gpus: count,
            most: MemorySize(size(most)),
        });
    }
    // Of an overcommitted GPU suspendable containers have memory, too, so that no container is alone on it.
    let whole: Vec<String> = gpus
        .iter()
        .filter(|gpu| gpu.suspendable.is_none() && !is_suspendable)
        .filter(|gpu| percents_each == CORES_PER_GPU && gpu.chunks == chunks_each)
        .map(|gpu| gpu.uuid.clone())
        .collect();
    Ok(GpuRequest {
        gpus: count,
        counted: Counted {
            memory_bytes: size(chunks_each),
            cores_permille: percents_each * 10,
            is_whole: !whole.is_empty(),
            ..Counted::default()
        },
        among: whole,
        is_suspendable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::SuspendableChunks;

    const MIB: u64 = 1 << 20;

    fn request(gpus: u32, chunks: u32, percents: u32) -> Result<GpuRequest, String> {
        let gpu = |uuid: &str, chunks| NodeGpu {
            uuid: uuid.to_owned(),
            minor_number: None,
            chunks,
            suspendable: None,
            state: State::Usable,
            numa_node: None,
        };
        let device_counts = [gpus, chunks, percents, 0];
        let node = [gpu("a", 96), gpu("b", 96), gpu("c", 318)];
        gpu_request(device_counts, 256 * MIB, &node, &names()).map_err(|error| error.to_string())
    }

    /// Memory of each GPU; `None` for whole ones.
    fn limited_bytes(request: &GpuRequest) -> Option<u64> {
        (!request.counted.is_whole).then_some(request.counted.memory_bytes)
    }

    fn names() -> ExtendedResources {
        let names = ["v/gpu", "v/memory", "v/cores"].map(str::to_owned);
        ExtendedResources::new(names, Some("v/suspendable-memory".to_owned()))
    }

    #[test]
    fn memory_for_suspendable_containers_has_its_own_bound_and_is_no_whole_gpu() {
        let node = [NodeGpu {
            uuid: "a".to_owned(),
            minor_number: None,
            chunks: 100,
            suspendable: Some(SuspendableChunks { count: 300, largest: 150 }),
            state: State::Usable,
            numa_node: None,
        }];
        let request = |chunks, suspendable_chunks| {
            let counts = [1, chunks, 100, suspendable_chunks];
            gpu_request(counts, 256 * MIB, &node, &names()).map_err(|error| error.to_string())
        };
        let largest = request(0, 150).unwrap();
        assert_eq!((limited_bytes(&largest), largest.is_suspendable), (Some(150 * 256 * MIB), true));
        let common = request(100, 0).unwrap();
        assert_eq!((limited_bytes(&common), common.is_suspendable), (Some(100 * 256 * MIB), false));
        let more = request(0, 151).unwrap_err();
        assert!(more.starts_with("v/suspendable-memory: 151 is 37.75 GiB"), "{more}");
        assert!(request(101, 0).unwrap_err().starts_with("v/memory: 101 is"));
        let both = request(10, 10).unwrap_err();
        assert!(both.contains("it asks for v/memory and for v/suspendable-memory: leave one"), "{both}");
    }

    #[test]
    fn totals_are_split_evenly() {
        let one = request(1, 16, 30).unwrap();
        assert_eq!((limited_bytes(&one), one.counted.cores_permille), (Some(4096 * MIB), 300));
        let two = request(2, 16, 30).unwrap();
        assert_eq!((limited_bytes(&two), two.counted.cores_permille), (Some(2048 * MIB), 150));
        assert!(two.among.is_empty());
        let uneven = request(2, 33, 30).unwrap_err();
        assert!(uneven.starts_with("v/memory: 33 ") && uneven.ends_with("32 or 34"), "{uneven}");
        let uneven = request(2, 32, 1).unwrap_err();
        assert!(uneven.ends_with("by 2: ask for 2"), "{uneven}");
    }

    #[test]
    fn one_without_the_others_is_refused_with_what_to_add() {
        for (device_counts, said) in [
            ((1, 0, 0), "it asks for v/gpu: 1 and for no v/memory: add v/memory: 16 (chunks of 256 MiB)"),
            ((0, 16, 0), "it asks for v/memory: 16 and for no v/gpu: add v/gpu: 1"),
            ((0, 0, 30), "it asks for v/cores: 30 and for no v/gpu: add v/gpu: 1"),
            ((1, 16, 0), "it asks for v/gpu: 1 and v/memory: 16 and for no v/cores: add v/cores: 30"),
            ((1, 0, 30), "for no v/memory: add"),
        ] {
            let error = request(device_counts.0, device_counts.1, device_counts.2).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn amounts_that_no_gpu_has_are_refused() {
        assert!(request(1, 16, 101).unwrap_err().contains("more than 1 of 100 percent"));
        let large = request(1, 319, 10).unwrap_err();
        assert!(large.contains("79.75 GiB") && large.contains("79.5 GiB"), "{large}");
    }

    /// An unhealthy GPU takes no containers. If all are unhealthy, the manager refuses and names them.
    #[test]
    fn an_unhealthy_gpu_is_not_the_largest() {
        let largest = |states: [State; 2]| {
            let gpu = |(uuid, chunks, state): (&str, u32, State)| NodeGpu {
                uuid: uuid.to_owned(),
                minor_number: None,
                chunks,
                suspendable: None,
                state,
                numa_node: None,
            };
            let node = [("small", 96, states[0]), ("large", 318, states[1])].map(gpu);
            let counts = [1, 97, 10, 0];
            gpu_request(counts, 256 * MIB, &node, &names()).map_err(|error| error.to_string())
        };
        let refused = largest([State::Usable, State::Unhealthy]).unwrap_err();
        assert!(refused.ends_with("the largest that this node has gives 24 GiB"), "{refused}");
        for states in [
            [State::Usable, State::Usable],
            [State::Usable, State::Cordoned],
            [State::Unhealthy, State::Unhealthy],
        ] {
            assert!(largest(states).is_ok(), "{states:?}");
        }
    }

    #[test]
    fn a_whole_gpu_is_one_of_just_the_requested_size() {
        let largest = request(1, 318, 100).unwrap();
        assert_eq!((limited_bytes(&largest), largest.among), (None, vec!["c".to_owned()]));
        // No GPU has just this many chunks, so the container gets a part of the largest.
        let between = request(1, 200, 100).unwrap();
        assert_eq!(limited_bytes(&between), Some(200 * 256 * MIB));
        assert!(between.among.is_empty(), "{between:?}");
    }

    #[test]
    fn all_of_a_gpu_is_the_gpu() {
        let whole = request(2, 192, 200).unwrap();
        assert_eq!((limited_bytes(&whole), whole.counted.cores_permille), (None, 1000));
        assert_eq!(whole.among, ["a", "b"]);
        // All its time and not all its memory; or the reverse.
        assert_eq!(limited_bytes(&request(1, 95, 100).unwrap()), Some(95 * 256 * MIB));
        assert_eq!(limited_bytes(&request(1, 96, 99).unwrap()), Some(96 * 256 * MIB));
    }
}
