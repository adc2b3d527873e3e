//! The request to the manager: the amounts by a container's devices, lowered by its pod's annotations.

use vcuda_manager_api::v1;
use vcuda_quota::pods::{AmountsError, lowered};
use vcuda_quota::{CoreShare, Policy, Quota, QuotaChange};

use crate::demand::Wanted;

/// The amounts of each of its GPUs.
///
/// # Errors
/// The annotations contradict the request.
pub fn amounts(wanted: &Wanted, choice: &QuotaChange) -> Result<v1::Amounts, AmountsError> {
    let Some(most_bytes) = wanted.memory_bytes else {
        return match Quota::UNLIMITED.merge(choice) {
            Ok(Quota::UNLIMITED) => Ok(v1::Amounts {
                cores_permille: CoreShare::WHOLE.0,
                ..v1::Amounts::default()
            }),
            _ => Err(AmountsError::Whole),
        };
    };
    let mut quota = lowered(most_bytes, wanted.cores_permille, choice)?;
    // `fixed` with all GPU time promises nothing (docs/policies.md). A pod that counts a hundred percent of a GPU is promised
    // them, which is `burst` with nothing above it.
    if quota.reserved_permille() != quota.promised_permille() {
        quota.policy = Policy::Burst;
    }
    Ok(asked(&quota))
}

/// A quota as the manager is asked for it.
#[must_use]
pub fn asked(quota: &Quota) -> v1::Amounts {
    let mut amounts = v1::Amounts::from(quota);
    if quota.policy != Policy::Burst {
        // As in the texts of earlier releases.
        amounts.cores_max_permille = 0;
    }
    amounts
}

/// These amounts as the manager is asked for them: what no annotation chose is left out, so that the manager's defaults, and
/// the bounds of the namespace, decide.
#[must_use]
pub fn chosen(amounts: &v1::Amounts, choice: &QuotaChange) -> v1::Amounts {
    let mut chosen = *amounts;
    // A hundred percent are promised by `burst`, which is then no default.
    if choice.policy.is_none() && chosen.policy() == v1::Policy::Fixed {
        chosen.set_policy(v1::Policy::Unspecified);
    }
    if choice.priority.is_none() {
        chosen.set_priority(v1::Priority::Unspecified);
    }
    if choice.cores_max_permille.is_none() {
        chosen.cores_max_permille = 0;
    }
    chosen
}

/// The amounts as a text that is equal for equal amounts. It stays in each container's record, and a later release compares it:
/// a changed text would undo what an operator has changed since.
#[must_use]
pub fn text(amounts: &v1::Amounts) -> String {
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

    fn wanted(memory_bytes: Option<u64>, cores_permille: u32) -> Wanted {
        Wanted {
            gpus: 1,
            memory_bytes,
            cores_permille,
            among: Vec::new(),
        }
    }

    fn of(wanted: &Wanted, choice: &QuotaChange) -> Result<v1::Amounts, String> {
        amounts(wanted, choice).map_err(|error| error.to_string())
    }

    #[test]
    fn annotations_lower_and_never_raise() {
        let asked = wanted(Some(4 << 30), 300);
        let mut choice = QuotaChange {
            memory_bytes: Some(1 << 30),
            cores_permille: Some(125),
            ..QuotaChange::default()
        };
        let given = of(&asked, &choice).unwrap();
        assert_eq!((given.memory_bytes, given.cores_permille), (1 << 30, 125));
        assert_ne!(text(&given), text(&of(&asked, &QuotaChange::default()).unwrap()));
        choice.memory_bytes = Some((4 << 30) + 1);
        assert!(of(&asked, &choice).unwrap_err().contains("vcuda.io/memory"));
        choice.memory_bytes = None;
        choice.cores_permille = Some(301);
        assert!(
            of(&asked, &choice)
                .unwrap_err()
                .contains("30.1 % is more than the 30 %")
        );
    }

    #[test]
    fn burst_is_from_the_share_up() {
        let asked = wanted(Some(4 << 30), 300);
        let burst = |cores_max_permille| QuotaChange {
            policy: Some(Policy::Burst),
            cores_max_permille,
            ..QuotaChange::default()
        };
        assert_eq!(of(&asked, &burst(None)).unwrap().cores_max_permille, 1000);
        assert_eq!(of(&asked, &burst(Some(300))).unwrap().cores_max_permille, 300);
        assert!(of(&asked, &burst(Some(299))).unwrap_err().contains("29.9 %"));
        let capped = QuotaChange {
            policy: None,
            ..burst(Some(500))
        };
        assert!(
            of(&asked, &capped)
                .unwrap_err()
                .contains("the most of vcuda.io/policy \"burst\"")
        );
    }

    #[test]
    fn what_no_annotation_chose_is_the_managers_to_choose() {
        let asked = wanted(Some(4 << 30), 300);
        let none = QuotaChange::default();
        let default = chosen(&of(&asked, &none).unwrap(), &none);
        assert_eq!(default.policy(), v1::Policy::Unspecified);
        assert_eq!(default.priority(), v1::Priority::Unspecified);
        assert_eq!((default.memory_bytes, default.cores_permille), (4 << 30, 300));
        let wish = QuotaChange {
            policy: Some(Policy::Fixed),
            priority: Some(Priority::Normal),
            ..none
        };
        let explicit = of(&asked, &wish).unwrap();
        assert_eq!(chosen(&explicit, &wish), explicit);
        let all = chosen(&of(&wanted(Some(1), 1000), &none).unwrap(), &none);
        assert_eq!((all.policy(), all.cores_max_permille), (v1::Policy::Burst, 0));
    }

    /// Texts that version 0.1.0 wrote into records.
    #[test]
    fn texts_in_records_of_earlier_releases_are_still_equal() {
        let choice = QuotaChange {
            priority: Some(Priority::High),
            weight: Some(7),
            ..QuotaChange::default()
        };
        for (wanted, choice, recorded) in [
            (
                wanted(None, 1000),
                QuotaChange::default(),
                "memory 0 cores 1000 to 0 policy POLICY_UNSPECIFIED priority PRIORITY_UNSPECIFIED weight 0",
            ),
            (
                wanted(Some(64), 300),
                QuotaChange::default(),
                "memory 64 cores 300 to 0 policy POLICY_FIXED priority PRIORITY_NORMAL weight 0",
            ),
            (
                wanted(Some(64), 1000),
                choice,
                "memory 64 cores 1000 to 1000 policy POLICY_BURST priority PRIORITY_HIGH weight 7",
            ),
        ] {
            assert_eq!(text(&of(&wanted, &choice).unwrap()), recorded);
        }
    }

    #[test]
    fn a_hundred_percent_are_promised() {
        let all = of(&wanted(Some(4 << 30), 1000), &QuotaChange::default()).unwrap();
        assert_eq!(all.policy(), v1::Policy::Burst);
        assert_eq!((all.cores_permille, all.cores_max_permille), (1000, 1000));
    }

    #[test]
    fn a_gpu_of_its_own_has_no_limits_to_choose() {
        let whole = of(&wanted(None, 1000), &QuotaChange::default()).unwrap();
        assert_eq!((whole.memory_bytes, whole.policy()), (0, v1::Policy::Unspecified));
        let low = QuotaChange {
            priority: Some(Priority::Low),
            ..QuotaChange::default()
        };
        assert!(
            of(&wanted(None, 1000), &low)
                .unwrap_err()
                .contains("a chunk less")
        );
    }
}
