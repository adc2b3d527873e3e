//! The quota of a container: what it asked for, lowered by its pod's annotations.

use thiserror::Error;

use crate::{Contradiction, CoreShare, MemorySize, Policy, Quota, QuotaChange};

/// Annotations that contradict the pod's request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AmountsError {
    /// More memory than was asked for.
    #[error(
        "annotation vcuda.io/memory: {0} is more than the {1} that it asks for of each GPU; annotations only lower"
    )]
    MoreMemory(MemorySize, MemorySize),
    /// More time than was asked for.
    #[error(
        "annotation vcuda.io/cores: {0} is more than the {1} that it asks for of each GPU; annotations only lower"
    )]
    MoreCores(CoreShare, CoreShare),
    /// Less than the guarantee.
    #[error("annotation vcuda.io/cores-max: {0} is less than its share, {1}; burst is from the share up")]
    LessThanShare(CoreShare, CoreShare),
    /// A maximum for a policy that has none.
    #[error(
        "annotation vcuda.io/cores-max: it is the most of vcuda.io/policy \"burst\", and the policy is another"
    )]
    MaximumWithoutBurst,
    /// A GPU of its own has no limits.
    #[error(
        "its annotations limit it, and it asks for whole GPUs, which have no limits: ask for a chunk less of each"
    )]
    Whole,
    /// A GPU of its own is used without the shim.
    #[error(
        "annotation vcuda.io/suspendable: it asks for whole GPUs, whose memory stays where it is: ask for a chunk less of each"
    )]
    SuspendableWhole,
    /// It takes turns in its memory.
    #[error(
        "annotation vcuda.io/suspendable: it asks for memory that suspendable containers take turns in: leave the annotation out, or \
         ask for the other memory"
    )]
    NotSuspendable,
}

impl From<Contradiction> for AmountsError {
    fn from(contradiction: Contradiction) -> Self {
        match contradiction {
            Contradiction::MaximumWithoutBurst { .. } => Self::MaximumWithoutBurst,
            Contradiction::MaximumBelowShare { cores_max_permille, cores_permille } => {
                Self::LessThanShare(CoreShare(cores_max_permille), CoreShare(cores_permille))
            }
        }
    }
}

/// The quota of a container that requests `most_bytes` of memory and `most` thousandths of GPU time on each of its GPUs,
/// lowered by `change`.
pub fn lowered_quota(most_bytes: u64, most: u32, change: &QuotaChange) -> Result<Quota, AmountsError> {
    match (change.memory_bytes, change.cores_permille) {
        (Some(bytes), _) if bytes > most_bytes => {
            Err(AmountsError::MoreMemory(MemorySize(bytes), MemorySize(most_bytes)))
        }
        (_, Some(cores)) if cores > most => Err(AmountsError::MoreCores(CoreShare(cores), CoreShare(most))),
        _ => Ok(Quota::fixed(Some(most_bytes), most).merge(change)?),
    }
}

/// The change for a tenant with this guarantee (thousandths). If the guarantee is 0, a share or a maximum in the change would
/// reserve GPU time: then it becomes the maximum of `best-effort`.
pub fn without_guarantee(guaranteed: u32, mut change: QuotaChange) -> QuotaChange {
    if guaranteed > 0 {
        return change;
    }
    if change.policy == Some(Policy::Burst) {
        change.cores_permille = change.cores_max_permille.take().or(change.cores_permille);
        change.policy = Some(Policy::BestEffort);
    } else if change.cores_permille.is_some() {
        change.policy = Some(Policy::BestEffort);
    }
    change
}

/// Both changes together; fields of `later` win.
pub fn overlaid(former: &QuotaChange, later: &QuotaChange) -> QuotaChange {
    QuotaChange {
        memory_bytes: later.memory_bytes.or(former.memory_bytes),
        cores_permille: later.cores_permille.or(former.cores_permille),
        cores_max_permille: later.cores_max_permille.or(former.cores_max_permille),
        policy: later.policy.or(former.policy),
        priority: later.priority.or(former.priority),
        weight: later.weight.or(former.weight),
        suspendable: later.suspendable.or(former.suspendable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_lowers_a_request_and_never_raises_it() {
        let lowered = |memory_bytes, cores_permille| {
            let change = QuotaChange { memory_bytes, cores_permille, ..QuotaChange::default() };
            lowered_quota(1000, 300, &change)
        };
        assert_eq!(lowered(None, None), Ok(Quota::fixed(Some(1000), 300)));
        assert_eq!(lowered(Some(1000), Some(300)), Ok(Quota::fixed(Some(1000), 300)));
        assert_eq!(lowered(Some(1), Some(1)), Ok(Quota::fixed(Some(1), 1)));
        let more_memory = AmountsError::MoreMemory(MemorySize(1001), MemorySize(1000));
        assert_eq!(lowered(Some(1001), Some(1)), Err(more_memory));
        let more_cores = AmountsError::MoreCores(CoreShare(301), CoreShare(300));
        assert_eq!(lowered(Some(1), Some(301)), Err(more_cores));
    }
}
