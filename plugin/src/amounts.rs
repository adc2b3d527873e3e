//! Amounts of the request to the manager: those of the container's devices, lowered by the pod's annotations.

use vcuda_manager_api::v1;
use vcuda_quota::pods::{AmountsError, lowered_quota};
use vcuda_quota::{CoreShare, Policy, Quota, QuotaChange};

use crate::gpu_request::GpuRequest;

/// Computes the amounts of each GPU from the container's request and the quota change of its annotations.
///
/// # Errors
/// The annotations contradict the request.
pub fn amounts(request: &GpuRequest, change: &QuotaChange) -> Result<v1::Amounts, AmountsError> {
    let Some(most_bytes) = request.memory_bytes else {
        if change.suspendable == Some(true) {
            return Err(AmountsError::SuspendableWhole);
        }
        return match Quota::UNLIMITED.merge(change) {
            Ok(Quota::UNLIMITED) => {
                Ok(v1::Amounts { cores_permille: CoreShare::WHOLE.0, ..v1::Amounts::default() })
            }
            _ => Err(AmountsError::Whole),
        };
    };
    if request.is_suspendable && change.suspendable == Some(false) {
        return Err(AmountsError::NotSuspendable);
    }
    let mut quota = lowered_quota(most_bytes, request.cores_permille, change)?;
    // `fixed` with all GPU time guarantees nothing (docs/policies.md). A pod that requests 100 percent of a GPU has a guarantee
    // of them, which is `burst` with a maximum equal to the share.
    if quota.reserved_permille() != quota.promised_permille() {
        quota.policy = Policy::Burst;
    }
    Ok(requested(&quota))
}

/// The manager's form of a quota.
pub fn requested(quota: &Quota) -> v1::Amounts {
    let mut amounts = v1::Amounts::from(quota);
    if quota.policy != Policy::Burst {
        // A maximum goes with `burst` alone.
        amounts.cores_max_permille = 0;
    }
    amounts
}

/// The amounts without the fields that `change` does not set: the manager fills those with the namespace's defaults.
pub fn without_defaults(amounts: &v1::Amounts, change: &QuotaChange) -> v1::Amounts {
    let mut stated = *amounts;
    // `burst` stays: it guarantees 100 percent, see `amounts`.
    if change.policy.is_none() && stated.policy() == v1::Policy::Fixed {
        stated.set_policy(v1::Policy::Unspecified);
    }
    if change.priority.is_none() {
        stated.set_priority(v1::Priority::Unspecified);
    }
    if change.cores_max_permille.is_none() {
        stated.cores_max_permille = 0;
    }
    stated
}

/// The amounts as a text that is equal for equal amounts. Each container's record has it, and later releases compare it. Its
/// form must not change: a difference would resize the grant and undo an operator's change.
pub fn canonical_text(amounts: &v1::Amounts) -> String {
    format!(
        "memory {} cores {} to {} policy {} priority {} weight {}",
        amounts.memory_bytes,
        amounts.cores_permille,
        amounts.cores_max_permille,
        amounts.policy().as_str_name(),
        amounts.priority().as_str_name(),
        amounts.weight
    )
}

#[cfg(test)]
mod tests {
    use vcuda_quota::Priority;

    use super::*;

    fn request(memory_bytes: Option<u64>, cores_permille: u32) -> GpuRequest {
        GpuRequest { gpus: 1, memory_bytes, cores_permille, among: Vec::new(), is_suspendable: false }
    }

    fn computed(request: &GpuRequest, change: &QuotaChange) -> Result<v1::Amounts, String> {
        amounts(request, change).map_err(|error| error.to_string())
    }

    #[test]
    fn memory_for_suspendable_containers_is_for_no_others() {
        let suspendable = GpuRequest { is_suspendable: true, ..request(Some(4 << 30), 300) };
        let change = |suspendable| QuotaChange { suspendable, ..QuotaChange::default() };
        for allowed in [None, Some(true)] {
            computed(&suspendable, &change(allowed)).unwrap();
        }
        let refusal = computed(&suspendable, &change(Some(false))).unwrap_err();
        assert!(refusal.contains("vcuda.io/suspendable: it asks for memory that"), "{refusal}");
    }

    #[test]
    fn whole_gpus_are_not_suspended() {
        let change = QuotaChange { suspendable: Some(true), ..QuotaChange::default() };
        let refusal = computed(&request(None, 1000), &change).unwrap_err();
        assert!(refusal.contains("vcuda.io/suspendable: it asks for whole GPUs"), "{refusal}");
        computed(&request(Some(4 << 30), 300), &change).unwrap();
    }

    #[test]
    fn annotations_lower_and_never_raise() {
        let full = request(Some(4 << 30), 300);
        let mut change =
            QuotaChange { memory_bytes: Some(1 << 30), cores_permille: Some(125), ..QuotaChange::default() };
        let given = computed(&full, &change).unwrap();
        assert_eq!((given.memory_bytes, given.cores_permille), (1 << 30, 125));
        assert_ne!(
            canonical_text(&given),
            canonical_text(&computed(&full, &QuotaChange::default()).unwrap())
        );
        change.memory_bytes = Some((4 << 30) + 1);
        assert!(computed(&full, &change).unwrap_err().contains("vcuda.io/memory"));
        change.memory_bytes = None;
        change.cores_permille = Some(301);
        assert!(computed(&full, &change).unwrap_err().contains("30.1 % is more than the 30 %"));
    }

    #[test]
    fn burst_is_from_the_share_up() {
        let full = request(Some(4 << 30), 300);
        let burst = |cores_max_permille| QuotaChange {
            policy: Some(Policy::Burst),
            cores_max_permille,
            ..QuotaChange::default()
        };
        assert_eq!(computed(&full, &burst(None)).unwrap().cores_max_permille, 1000);
        assert_eq!(computed(&full, &burst(Some(300))).unwrap().cores_max_permille, 300);
        assert!(computed(&full, &burst(Some(299))).unwrap_err().contains("29.9 %"));
        let capped = QuotaChange { policy: None, ..burst(Some(500)) };
        assert!(computed(&full, &capped).unwrap_err().contains("the most of vcuda.io/policy \"burst\""));
    }

    #[test]
    fn fields_without_an_annotation_are_left_to_the_manager() {
        let full = request(Some(4 << 30), 300);
        let none = QuotaChange::default();
        let default = without_defaults(&computed(&full, &none).unwrap(), &none);
        assert_eq!(default.policy(), v1::Policy::Unspecified);
        assert_eq!(default.priority(), v1::Priority::Unspecified);
        assert_eq!((default.memory_bytes, default.cores_permille), (4 << 30, 300));
        let all_set = QuotaChange { policy: Some(Policy::Fixed), priority: Some(Priority::Normal), ..none };
        let explicit = computed(&full, &all_set).unwrap();
        assert_eq!(without_defaults(&explicit, &all_set), explicit);
        let all = without_defaults(&computed(&request(Some(1), 1000), &none).unwrap(), &none);
        assert_eq!((all.policy(), all.cores_max_permille), (v1::Policy::Burst, 0));
    }

    /// Texts that version 0.1.0 wrote into records.
    #[test]
    fn texts_in_records_of_earlier_releases_are_still_equal() {
        let change =
            QuotaChange { priority: Some(Priority::High), weight: Some(7), ..QuotaChange::default() };
        for (request, change, recorded) in [
            (
                request(None, 1000),
                QuotaChange::default(),
                "memory 0 cores 1000 to 0 policy POLICY_UNSPECIFIED priority PRIORITY_UNSPECIFIED weight 0",
            ),
            (
                request(Some(64), 300),
                QuotaChange::default(),
                "memory 64 cores 300 to 0 policy POLICY_FIXED priority PRIORITY_NORMAL weight 0",
            ),
            (
                request(Some(64), 1000),
                change,
                "memory 64 cores 1000 to 1000 policy POLICY_BURST priority PRIORITY_HIGH weight 7",
            ),
        ] {
            assert_eq!(canonical_text(&computed(&request, &change).unwrap()), recorded);
        }
    }

    #[test]
    fn a_hundred_percent_are_guaranteed() {
        let all = computed(&request(Some(4 << 30), 1000), &QuotaChange::default()).unwrap();
        assert_eq!(all.policy(), v1::Policy::Burst);
        assert_eq!((all.cores_permille, all.cores_max_permille), (1000, 1000));
    }

    #[test]
    fn annotations_cannot_limit_a_whole_gpu() {
        let whole = computed(&request(None, 1000), &QuotaChange::default()).unwrap();
        assert_eq!((whole.memory_bytes, whole.policy()), (0, v1::Policy::Unspecified));
        let low = QuotaChange { priority: Some(Priority::Low), ..QuotaChange::default() };
        assert!(computed(&request(None, 1000), &low).unwrap_err().contains("a chunk less"));
    }
}
