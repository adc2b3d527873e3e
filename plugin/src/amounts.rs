//! What the manager is asked for: what a container's devices count, less what its pod's annotations give up.

use thiserror::Error;
use vcuda_manager_api::v1;
use vcuda_quota::{CoreShare, MemorySize};

use crate::annotations::Choice;
use crate::demand::Wanted;

/// All of a card's time (thousandths).
const WHOLE: u32 = 1000;

/// Annotations that do not go with what the pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AmountsError {
    /// More memory than was asked for.
    #[error(
        "annotation vcuda.io/memory: {0} is more than the {1} that it asks for of each card; annotations only lower"
    )]
    MoreMemory(MemorySize, MemorySize),
    /// More time than was asked for.
    #[error(
        "annotation vcuda.io/cores: {0} is more than the {1} that it asks for of each card; annotations only lower"
    )]
    MoreCores(CoreShare, CoreShare),
    /// Less than the guarantee.
    #[error("annotation vcuda.io/cores-max: {0} is less than its share, {1}; burst is from the share up")]
    LessThanShare(CoreShare, CoreShare),
    /// A card of its own has no limits.
    #[error(
        "its annotations limit it, and it asks for whole cards, which have no limits: ask for a chunk less of each"
    )]
    Whole,
}

/// The amounts of each of its cards.
///
/// # Errors
/// The annotations and what is asked for contradict each other.
pub fn amounts(wanted: &Wanted, choice: &Choice) -> Result<v1::Amounts, AmountsError> {
    let Some(most_bytes) = wanted.memory_bytes else {
        if *choice != Choice::default() {
            return Err(AmountsError::Whole);
        }
        return Ok(v1::Amounts {
            cores_permille: WHOLE,
            ..v1::Amounts::default()
        });
    };
    let memory_bytes = choice.memory_bytes.unwrap_or(most_bytes);
    if memory_bytes > most_bytes {
        return Err(AmountsError::MoreMemory(
            MemorySize(memory_bytes),
            MemorySize(most_bytes),
        ));
    }
    let most = wanted.cores_permille;
    let cores_permille = choice.cores_permille.unwrap_or(most);
    if cores_permille > most {
        return Err(AmountsError::MoreCores(
            CoreShare(cores_permille),
            CoreShare(most),
        ));
    }
    let competition = &choice.competition;
    let is_burst = competition.policy == v1::Policy::Burst;
    // Thousand thousandths under `fixed` are what others were not promised (docs/policies.md). A pod that counts a hundred
    // percent of a card is promised them, which is `burst` with nothing above it.
    let is_all = competition.policy == v1::Policy::Fixed && cores_permille == WHOLE;
    let cores_max_permille = match competition.cores_max_permille {
        0 if is_burst || is_all => WHOLE,
        most => most,
    };
    if is_burst && cores_max_permille < cores_permille {
        return Err(AmountsError::LessThanShare(
            CoreShare(cores_max_permille),
            CoreShare(cores_permille),
        ));
    }
    let policy = if is_all {
        v1::Policy::Burst
    } else {
        competition.policy
    };
    Ok(v1::Amounts {
        memory_bytes,
        cores_permille,
        cores_max_permille,
        policy: policy.into(),
        priority: competition.priority.into(),
        weight: competition.weight,
    })
}

/// Them as a text that is equal for equal amounts.
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
    use super::*;
    use crate::competition::Competition;

    fn wanted(memory_bytes: Option<u64>, cores_permille: u32) -> Wanted {
        Wanted {
            cards: 1,
            memory_bytes,
            cores_permille,
            among: Vec::new(),
        }
    }

    fn of(wanted: &Wanted, choice: &Choice) -> Result<v1::Amounts, String> {
        amounts(wanted, choice).map_err(|error| error.to_string())
    }

    #[test]
    fn annotations_lower_and_never_raise() {
        let asked = wanted(Some(4 << 30), 300);
        let mut choice = Choice {
            memory_bytes: Some(1 << 30),
            cores_permille: Some(125),
            ..Choice::default()
        };
        let given = of(&asked, &choice).unwrap();
        assert_eq!((given.memory_bytes, given.cores_permille), (1 << 30, 125));
        assert_ne!(text(&given), text(&of(&asked, &Choice::default()).unwrap()));
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
        let burst = |most| Choice {
            competition: Competition {
                policy: v1::Policy::Burst,
                cores_max_permille: most,
                ..Competition::default()
            },
            ..Choice::default()
        };
        assert_eq!(of(&asked, &burst(0)).unwrap().cores_max_permille, 1000);
        assert_eq!(of(&asked, &burst(300)).unwrap().cores_max_permille, 300);
        assert!(of(&asked, &burst(299)).unwrap_err().contains("29.9 %"));
    }

    #[test]
    fn a_hundred_percent_are_promised() {
        let all = of(&wanted(Some(4 << 30), 1000), &Choice::default()).unwrap();
        assert_eq!(all.policy(), v1::Policy::Burst);
        assert_eq!((all.cores_permille, all.cores_max_permille), (1000, 1000));
    }

    #[test]
    fn a_card_of_its_own_has_no_limits_to_choose() {
        let whole = of(&wanted(None, 1000), &Choice::default()).unwrap();
        assert_eq!((whole.memory_bytes, whole.policy()), (0, v1::Policy::Unspecified));
        let low = Choice {
            competition: Competition {
                priority: v1::Priority::Low,
                ..Competition::default()
            },
            ..Choice::default()
        };
        assert!(
            of(&wanted(None, 1000), &low)
                .unwrap_err()
                .contains("a chunk less")
        );
    }
}
