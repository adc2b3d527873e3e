//! Amounts of the request to the manager, the same for both daemons: what was counted of each GPU, changed by a claim's parameters and
//! lowered by annotations.

use vcuda_manager_api::v1;
use vcuda_quota::pods::{AmountsError, lowered_quota, overlaid, without_guarantee};
use vcuda_quota::{CoreShare, Policy, Quota, QuotaChange};

/// What a container has of each of its GPUs, as kubelet counted devices or Kubernetes' scheduler allocated a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) memory_bytes: u64,
    /// Guaranteed GPU time (thousandths). 0 means no guarantee: the container gets the time that others leave.
    pub(crate) cores_permille: u32,
    /// Change of the quota by the claim's parameters.
    pub(crate) parameters: QuotaChange,
    /// Whether it is a whole GPU, without limits.
    pub(crate) is_whole: bool,
}

/// Amounts to ask the manager for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    /// The amounts. Fields that neither parameters nor annotations set are left to the namespace's defaults.
    pub(crate) amounts: v1::Amounts,
    /// The amounts with all defaults, as a text that is equal for equal amounts. Each record has it. Its form must not change between
    /// releases: a difference resizes the grant and undoes an operator's change.
    pub(crate) text: String,
}

/// Most GPU time (thousandths) of a container with this guarantee.
pub(crate) fn most_permille(guaranteed: u32) -> u32 {
    if guaranteed == 0 { CoreShare::WHOLE.0 } else { guaranteed }
}

/// The amounts of each GPU. The manager must not reserve more of the GPU's time than was counted.
pub(crate) fn asked(counted: &Counted, annotations: &QuotaChange) -> Result<Asked, AmountsError> {
    let chosen = overlaid(&counted.parameters, annotations);
    if counted.is_whole {
        if chosen.suspendable == Some(true) {
            return Err(AmountsError::SuspendableWhole);
        }
        if Quota::UNLIMITED.merge(&chosen) != Ok(Quota::UNLIMITED) {
            return Err(AmountsError::Whole);
        }
        let amounts = v1::Amounts { cores_permille: CoreShare::WHOLE.0, ..v1::Amounts::default() };
        return Ok(Asked { amounts, text: canonical_text(&amounts) });
    }
    let guaranteed = counted.cores_permille;
    let change = without_guarantee(guaranteed, chosen);
    let mut quota = lowered_quota(counted.memory_bytes, most_permille(guaranteed), &change)?;
    // `fixed` with all GPU time guarantees nothing (docs/policies.md). A container that was counted 100 percent of a GPU has a
    // guarantee of them, which is `burst` with a maximum equal to the share.
    if guaranteed > 0 && quota.reserved_permille() != quota.promised_permille() {
        quota.policy = Policy::Burst;
    }
    let mut amounts = v1::Amounts::from(&quota);
    if quota.policy != Policy::Burst {
        // A maximum goes with `burst` alone.
        amounts.cores_max_permille = 0;
    }
    Ok(Asked { text: canonical_text(&amounts), amounts: without_defaults(amounts, &change) })
}

/// The amounts without the fields that `change` does not set.
fn without_defaults(mut amounts: v1::Amounts, change: &QuotaChange) -> v1::Amounts {
    // `burst` stays: it guarantees 100 percent, see `asked`.
    if change.policy.is_none() && amounts.policy() == v1::Policy::Fixed {
        amounts.set_policy(v1::Policy::Unspecified);
    }
    if change.priority.is_none() {
        amounts.set_priority(v1::Priority::Unspecified);
    }
    if change.cores_max_permille.is_none() {
        amounts.cores_max_permille = 0;
    }
    amounts
}

fn canonical_text(amounts: &v1::Amounts) -> String {
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

    fn counted(memory_bytes: u64, cores_permille: u32) -> Counted {
        Counted { memory_bytes, cores_permille, ..Counted::default() }
    }

    fn whole() -> Counted {
        Counted { is_whole: true, ..counted(4 << 30, 1000) }
    }

    fn computed(counted: &Counted, change: &QuotaChange) -> Result<v1::Amounts, String> {
        asked(counted, change).map(|asked| asked.amounts).map_err(|error| error.to_string())
    }

    #[test]
    fn whole_gpus_are_not_suspended() {
        let change = QuotaChange { suspendable: Some(true), ..QuotaChange::default() };
        let refusal = computed(&whole(), &change).unwrap_err();
        assert!(refusal.contains("vcuda.io/suspendable: it asks for whole GPUs"), "{refusal}");
        computed(&counted(4 << 30, 300), &change).unwrap();
    }

    #[test]
    fn annotations_lower_and_never_raise() {
        let full = counted(4 << 30, 300);
        let mut change =
            QuotaChange { memory_bytes: Some(1 << 30), cores_permille: Some(125), ..QuotaChange::default() };
        let given = asked(&full, &change).unwrap();
        assert_eq!((given.amounts.memory_bytes, given.amounts.cores_permille), (1 << 30, 125));
        assert_ne!(given.text, asked(&full, &QuotaChange::default()).unwrap().text);
        change.memory_bytes = Some((4 << 30) + 1);
        assert!(computed(&full, &change).unwrap_err().contains("vcuda.io/memory"));
        change.memory_bytes = None;
        change.cores_permille = Some(301);
        assert!(computed(&full, &change).unwrap_err().contains("30.1 % is more than the 30 %"));
    }

    #[test]
    fn parameters_stay_beside_annotations() {
        let parameters = QuotaChange { policy: Some(Policy::Burst), ..QuotaChange::default() };
        let change = QuotaChange { memory_bytes: Some(1 << 30), ..QuotaChange::default() };
        let given = computed(&Counted { parameters, ..counted(4 << 30, 300) }, &change).unwrap();
        assert_eq!((given.policy(), given.memory_bytes), (v1::Policy::Burst, 1 << 30));
    }

    /// Whatever its annotation says.
    #[test]
    fn no_time_is_reserved_without_a_guarantee() {
        let change = QuotaChange { cores_permille: Some(300), ..QuotaChange::default() };
        let quota = Quota::from(&computed(&counted(4 << 30, 0), &change).unwrap());
        assert_eq!((quota.policy, quota.cores_permille), (Policy::BestEffort, 300));
        assert_eq!(quota.reserved_permille(), 0);
    }

    #[test]
    fn burst_is_from_the_share_up() {
        let full = counted(4 << 30, 300);
        let burst = |cores_max_permille| QuotaChange {
            policy: Some(Policy::Burst),
            cores_max_permille,
            ..QuotaChange::default()
        };
        let text = |change| asked(&full, &change).unwrap().text;
        assert!(text(burst(None)).contains("cores 300 to 1000 policy POLICY_BURST"), "{}", text(burst(None)));
        assert_eq!(computed(&full, &burst(Some(300))).unwrap().cores_max_permille, 300);
        assert!(computed(&full, &burst(Some(299))).unwrap_err().contains("29.9 %"));
        let capped = QuotaChange { policy: None, ..burst(Some(500)) };
        assert!(computed(&full, &capped).unwrap_err().contains("the most of vcuda.io/policy \"burst\""));
    }

    #[test]
    fn fields_without_an_annotation_are_left_to_the_manager() {
        let full = counted(4 << 30, 300);
        let none = QuotaChange::default();
        let default = computed(&full, &none).unwrap();
        assert_eq!(default.policy(), v1::Policy::Unspecified);
        assert_eq!(default.priority(), v1::Priority::Unspecified);
        assert_eq!((default.memory_bytes, default.cores_permille), (4 << 30, 300));
        let all_set = QuotaChange { policy: Some(Policy::Fixed), priority: Some(Priority::Normal), ..none };
        let explicit = computed(&full, &all_set).unwrap();
        assert_eq!((explicit.policy(), explicit.priority()), (v1::Policy::Fixed, v1::Priority::Normal));
    }

    #[test]
    fn a_hundred_percent_are_guaranteed() {
        let all = asked(&counted(4 << 30, 1000), &QuotaChange::default()).unwrap();
        assert_eq!((all.amounts.policy(), all.amounts.cores_permille), (v1::Policy::Burst, 1000));
        assert!(all.text.contains("cores 1000 to 1000"), "{}", all.text);
    }

    #[test]
    fn annotations_cannot_limit_a_whole_gpu() {
        let given = computed(&whole(), &QuotaChange::default()).unwrap();
        assert_eq!((given.memory_bytes, given.policy()), (0, v1::Policy::Unspecified));
        let low = QuotaChange { priority: Some(Priority::Low), ..QuotaChange::default() };
        assert!(computed(&whole(), &low).unwrap_err().contains("a chunk less"));
    }
}
