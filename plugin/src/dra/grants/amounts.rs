//! Amounts of a grant: those of the allocation, lowered by parameters and annotations.

use vcuda_manager_api::v1;
use vcuda_quota::pods::{lowered_quota, overlaid, without_guarantee};
use vcuda_quota::{CoreShare, Policy, Quota, QuotaChange};

use crate::amounts;
use crate::dra::claim::Amounts;
use crate::dra::prepare::PrepareError;

/// The manager's amounts for a share whose containers have these annotations, and the same as a text to compare. The manager
/// must not reserve more of the GPU's time than the scheduler counts.
///
/// # Errors
/// Parameters or annotations contradict the share or each other.
pub(in crate::dra) fn grant_amounts(
    share: &Amounts,
    annotations: &QuotaChange,
) -> Result<(v1::Amounts, String), PrepareError> {
    if share.is_whole {
        return whole_gpu_amounts(&overlaid(&share.quota_change, annotations));
    }
    let guaranteed = share.cores_permille;
    let most = if guaranteed == 0 { CoreShare::WHOLE.0 } else { guaranteed };
    // Checked without the annotations first, so that a fault of the parameters is reported as theirs.
    Quota::fixed(Some(share.memory_bytes), most).merge(&without_guarantee(guaranteed, share.quota_change))?;
    let change = without_guarantee(guaranteed, overlaid(&share.quota_change, annotations));
    let mut quota = lowered_quota(share.memory_bytes, most, &change)?;
    // `fixed` with all GPU time guarantees nothing (docs/policies.md). A claim of 100 cores has a guarantee of them.
    if guaranteed > 0 && quota.reserved_permille() != quota.promised_permille() {
        quota.policy = Policy::Burst;
    }
    let granted = amounts::requested(&quota);
    Ok((amounts::without_defaults(&granted, &change), amounts::canonical_text(&granted)))
}

/// Amounts of whole GPUs.
///
/// # Errors
/// `change` would limit them.
fn whole_gpu_amounts(change: &QuotaChange) -> Result<(v1::Amounts, String), PrepareError> {
    if *change != QuotaChange::default() {
        return Err(PrepareError::Whole);
    }
    let amounts = v1::Amounts { cores_permille: CoreShare::WHOLE.0, ..v1::Amounts::default() };
    Ok((amounts, amounts::canonical_text(&amounts)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_lower_and_never_raise_what_was_allocated() {
        let less_than = |memory_bytes, cores_permille| QuotaChange {
            memory_bytes,
            cores_permille,
            ..QuotaChange::default()
        };
        let burst = QuotaChange { policy: Some(Policy::Burst), ..QuotaChange::default() };
        let quota = |cores_permille, quota_change, annotations: &QuotaChange| {
            let share = Amounts { memory_bytes: 4 << 30, cores_permille, quota_change, is_whole: false };
            let (amounts, _) = grant_amounts(&share, annotations).map_err(|error| error.to_string())?;
            Ok::<_, String>(Quota::from(&amounts))
        };
        let less = quota(300, burst, &less_than(Some(1 << 30), Some(100))).unwrap();
        assert_eq!((less.memory_bytes, less.cores_permille), (Some(1 << 30), 100));
        assert_eq!(less.policy, Policy::Burst, "the parameters stay");
        let more = quota(300, burst, &less_than(Some(5 << 30), None)).unwrap_err();
        assert!(more.contains("annotations only lower"), "{more}");
        assert!(quota(300, burst, &less_than(None, Some(301))).is_err());
        // A share without a guarantee reserves no GPU time, whatever its annotation says.
        let capped = quota(0, QuotaChange::default(), &less_than(None, Some(300))).unwrap();
        assert_eq!((capped.policy, capped.cores_permille), (Policy::BestEffort, 300));
        assert_eq!(capped.reserved_permille(), 0);
    }
}
