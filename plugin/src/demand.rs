//! Demand of a container: counts of devices, turned into amounts of each of its GPUs. Arithmetic alone.

use thiserror::Error;
use vcuda_quota::MemorySize;
use vcuda_quota::pods::{CORES_PER_GPU, Counts, CountsError};

use crate::ids::Kind;
use crate::pods::{Devices, Names};
use crate::resources::{NodeGpu, State};

/// Counts of devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Different GPUs.
    pub gpus: u32,
    /// Chunks of memory, of all GPUs together.
    pub chunks: u32,
    /// Percents, of all GPUs together.
    pub percents: u32,
}

impl Demand {
    /// That of a container.
    #[must_use]
    pub fn of(devices: &Devices) -> Self {
        let count = |kind| u32::try_from(devices.of(kind).len()).unwrap_or(u32::MAX);
        Self {
            gpus: count(Kind::Gpu),
            chunks: count(Kind::Memory),
            percents: count(Kind::Cores),
        }
    }

    /// The greater of each amount: kubelet holds it for an init container and its heir.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        Self {
            gpus: self.gpus.max(other.gpus),
            chunks: self.chunks.max(other.chunks),
            percents: self.percents.max(other.percents),
        }
    }
}

/// Amounts to be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Different GPUs.
    pub gpus: u32,
    /// Amount of each GPU (bytes). None: all of it, and no other container there.
    pub memory_bytes: Option<u64>,
    /// Amount of each GPU (thousandths).
    pub cores_permille: u32,
    /// Only these, by UUID; any if empty.
    pub among: Vec<String>,
}

/// Counts that cannot be granted, whatever is free.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DemandError {
    /// Counts that no node can grant.
    #[error(transparent)]
    Counts(#[from] CountsError),
    /// More than a GPU's memory.
    #[error(
        "{resource}: {count} is {size} on each of {gpus} GPUs; the largest that this node has gives {most}"
    )]
    TooLarge {
        /// Name of the resource.
        resource: String,
        /// Number of devices.
        count: u32,
        /// Size on each GPU.
        size: MemorySize,
        /// GPUs.
        gpus: u32,
        /// Size that the largest GPU gives.
        most: MemorySize,
    },
}

/// Amounts that a container with this demand gets of each of its GPUs, with chunks of `chunk_bytes`.
///
/// All chunks of a GPU and all its time are the whole GPU: no other container is put there.
///
/// # Errors
/// It cannot be granted: see [`DemandError`].
pub fn wanted(
    demand: Demand,
    chunk_bytes: u64,
    gpus: &[NodeGpu],
    names: &Names,
) -> Result<Wanted, DemandError> {
    let Demand {
        gpus: count,
        chunks,
        percents,
    } = demand;
    let counts = Counts {
        gpus: count,
        chunks,
        percents,
    };
    let each = counts.of_each_gpu(chunk_bytes, names.resources())?;
    let (chunks_each, percents_each) = (each.chunks, each.percents);
    let size = |chunks: u32| u64::from(chunks).saturating_mul(chunk_bytes);
    let known = gpus.iter().filter(|gpu| gpu.state != State::Unhealthy);
    let most = known.map(|gpu| gpu.chunks).max();
    // If no GPU is healthy, the manager tells which are not.
    if let Some(most) = most.filter(|most| chunks_each > *most) {
        return Err(DemandError::TooLarge {
            resource: names.of(Kind::Memory).to_owned(),
            count: chunks,
            size: MemorySize(size(chunks_each)),
            gpus: count,
            most: MemorySize(size(most)),
        });
    }
    let whole: Vec<String> = gpus
        .iter()
        .filter(|gpu| percents_each == CORES_PER_GPU && gpu.chunks == chunks_each)
        .map(|gpu| gpu.uuid.clone())
        .collect();
    Ok(Wanted {
        gpus: count,
        memory_bytes: whole.is_empty().then(|| size(chunks_each)),
        cores_permille: percents_each * 10,
        among: whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of(gpus: u32, chunks: u32, percents: u32) -> Result<Wanted, String> {
        let gpu = |uuid: &str, chunks| NodeGpu {
            uuid: uuid.to_owned(),
            minor_number: None,
            chunks,
            state: State::Usable,
            numa_node: None,
        };
        let demand = Demand {
            gpus,
            chunks,
            percents,
        };
        let names = Names::new(["v/gpu", "v/memory", "v/cores"].map(str::to_owned));
        let node = [gpu("a", 96), gpu("b", 96), gpu("c", 318)];
        wanted(demand, 256 * MIB, &node, &names).map_err(|error| error.to_string())
    }

    #[test]
    fn totals_are_split_evenly() {
        let one = of(1, 16, 30).unwrap();
        assert_eq!((one.memory_bytes, one.cores_permille), (Some(4096 * MIB), 300));
        let two = of(2, 16, 30).unwrap();
        assert_eq!((two.memory_bytes, two.cores_permille), (Some(2048 * MIB), 150));
        assert!(two.among.is_empty());
        let uneven = of(2, 33, 30).unwrap_err();
        assert!(
            uneven.starts_with("v/memory: 33 ") && uneven.ends_with("32 or 34"),
            "{uneven}"
        );
        let uneven = of(2, 32, 1).unwrap_err();
        assert!(uneven.ends_with("ask for 2 or 2"), "{uneven}");
    }

    #[test]
    fn one_without_the_others_is_refused_with_what_to_add() {
        for (demand, said) in [
            (
                (1, 0, 0),
                "it asks for v/gpu: 1 and for no v/memory: add v/memory: 16 (chunks of 256 MiB)",
            ),
            (
                (0, 16, 0),
                "it asks for v/memory: 16 and for no v/gpu: add v/gpu: 1",
            ),
            (
                (0, 0, 30),
                "it asks for v/cores: 30 and for no v/gpu: add v/gpu: 1",
            ),
            (
                (1, 16, 0),
                "it asks for v/gpu: 1 and v/memory: 16 and for no v/cores: add v/cores: 30",
            ),
            ((1, 0, 30), "for no v/memory: add"),
        ] {
            let error = of(demand.0, demand.1, demand.2).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_no_gpu_has_is_refused() {
        assert!(of(1, 16, 101).unwrap_err().contains("more than 1 of 100 percent"));
        let large = of(1, 319, 10).unwrap_err();
        assert!(
            large.contains("79.75 GiB") && large.contains("79.5 GiB"),
            "{large}"
        );
    }

    #[test]
    fn all_of_a_gpu_is_the_gpu() {
        let whole = of(2, 192, 200).unwrap();
        assert_eq!((whole.memory_bytes, whole.cores_permille), (None, 1000));
        assert_eq!(whole.among, ["a", "b"]);
        // All its time and not all its memory; or the reverse.
        assert_eq!(of(1, 95, 100).unwrap().memory_bytes, Some(95 * 256 * MIB));
        assert_eq!(of(1, 96, 99).unwrap().memory_bytes, Some(96 * 256 * MIB));
    }
}
