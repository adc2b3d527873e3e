//! Counts of units that a container asks for: shares, chunks and percents. They are totals over its GPUs, which get the same
//! each.

use thiserror::Error;

use crate::MemorySize;

/// Percents of a GPU.
pub const CORES_PER_GPU: u32 = 100;

/// Names of the three resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceNames<'a> {
    /// Shares of GPUs.
    pub gpu: &'a str,
    /// Chunks of memory.
    pub memory: &'a str,
    /// Percents of GPU time.
    pub cores: &'a str,
}

/// Counts of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Different GPUs.
    pub gpus: u32,
    /// Chunks of memory, of all GPUs together.
    pub chunks: u32,
    /// Percents, of all GPUs together.
    pub percents: u32,
}

/// Counts of each of a container's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EachGpu {
    /// Chunks of memory.
    pub chunks: u32,
    /// Percents.
    pub percents: u32,
}

/// Counts that no node can grant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CountsError {
    /// A resource is missing beside others.
    #[error("it asks for {asked} and for no {missing}: add {missing}: {example}")]
    Missing {
        /// Resources that are there, with their counts.
        asked: String,
        /// Resource that is missing.
        missing: String,
        /// A value for it.
        example: String,
    },
    /// The amounts are totals, and these are not the same on each GPU.
    #[error(
        "{resource}: {count} is the total for {gpus} GPUs, which get the same each, and does not divide by {gpus}: \
         ask for {multiples}",
        multiples = multiples(*less, *more)
    )]
    Uneven {
        /// Name of the resource.
        resource: String,
        /// Total.
        count: u32,
        /// GPUs.
        gpus: u32,
        /// The multiple below; `None` if it is 0.
        less: Option<u32>,
        /// The multiple above.
        more: u32,
    },
    /// More than a GPU's time.
    #[error("{resource}: {count} is more than {gpus} of {CORES_PER_GPU} percent, all the time of its GPUs")]
    MoreThanAGpu {
        /// Name of the resource.
        resource: String,
        /// Total.
        count: u32,
        /// GPUs.
        gpus: u32,
    },
}

/// The totals to ask for instead of an uneven one.
fn multiples(less: Option<u32>, more: u32) -> String {
    match less {
        Some(less) => format!("{less} or {more}"),
        None => more.to_string(),
    }
}

impl Counts {
    /// Counts of each GPU, with chunks of `chunk_bytes`.
    pub fn of_each_gpu(self, chunk_bytes: u64, names: ResourceNames<'_>) -> Result<EachGpu, CountsError> {
        if let Some(error) = self.missing(chunk_bytes, names) {
            return Err(error);
        }
        let gpus = self.gpus;
        for (resource, total) in [(names.memory, self.chunks), (names.cores, self.percents)] {
            if total % gpus != 0 {
                let less = total - total % gpus;
                return Err(CountsError::Uneven {
                    resource: resource.to_owned(),
                    count: total,
                    gpus,
                    less: (less > 0).then_some(less),
                    more: less.saturating_add(gpus),
                });
            }
        }
        let each = EachGpu { chunks: self.chunks / gpus, percents: self.percents / gpus };
        if each.percents > CORES_PER_GPU {
            return Err(CountsError::MoreThanAGpu {
                resource: names.cores.to_owned(),
                count: self.percents,
                gpus,
            });
        }
        Ok(each)
    }

    fn missing(self, chunk_bytes: u64, names: ResourceNames<'_>) -> Option<CountsError> {
        let counts = [
            (names.gpu, self.gpus, "1 (a share of one GPU)".to_owned()),
            (names.memory, self.chunks, format!("16 (chunks of {})", MemorySize(chunk_bytes))),
            (names.cores, self.percents, "30 (percent of a GPU's time; 100 for all of it)".to_owned()),
        ];
        let asked: Vec<String> = counts
            .iter()
            .filter(|(_, count, _)| *count > 0)
            .map(|(name, count, _)| format!("{name}: {count}"))
            .collect();
        let (missing, _, example) = counts.into_iter().find(|(_, count, _)| *count == 0)?;
        Some(CountsError::Missing { asked: asked.join(" and "), missing: missing.to_owned(), example })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(gpus: u32, chunks: u32, percents: u32) -> Result<EachGpu, String> {
        let names = ResourceNames { gpu: "v/gpu", memory: "v/memory", cores: "v/cores" };
        let counts = Counts { gpus, chunks, percents };
        let each = counts.of_each_gpu(256 << 20, names);
        each.map_err(|error| error.to_string())
    }

    #[test]
    fn totals_are_split_evenly() {
        let each = of(2, 16, 30).unwrap();
        assert_eq!((each.chunks, each.percents), (8, 15));
        let uneven = of(2, 33, 30).unwrap_err();
        assert!(uneven.starts_with("v/memory: 33 ") && uneven.ends_with("32 or 34"), "{uneven}");
        let below_the_first = of(2, 32, 1).unwrap_err();
        assert!(below_the_first.ends_with("by 2: ask for 2"), "{below_the_first}");
        assert!(of(1, 16, 101).unwrap_err().contains("more than 1 of 100 percent"));
        let most = of(u32::MAX, u32::MAX, u32::MAX).unwrap();
        assert_eq!((most.chunks, most.percents), (1, 1));
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_add() {
        for (counts, said) in [
            ((0, 0, 0), "for no v/gpu: add v/gpu: 1"),
            ((1, 0, 0), "add v/memory: 16 (chunks of 256 MiB)"),
            ((1, 16, 0), "it asks for v/gpu: 1 and v/memory: 16 and for no v/cores: add v/cores: 30"),
        ] {
            let error = of(counts.0, counts.1, counts.2).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
