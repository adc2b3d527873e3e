//! Amounts of a grant: what was allocated, lowered by annotations. Arithmetic alone.

use vcuda_manager_api::v1;
use vcuda_quota::pods::lowered;
use vcuda_quota::{CoreShare, Policy, Quota, QuotaChange};

use crate::amounts;
use crate::dra::claim::Amounts;
use crate::dra::prepare::PrepareError;

/// The manager's amounts for a share whose containers have these annotations, and the same as a text to compare. The manager
/// must not hold more of the GPU's time than the scheduler counts.
///
/// # Errors
/// Parameters or annotations contradict the share or each other.
pub(in crate::dra) fn granted(
    share: &Amounts,
    annotations: &QuotaChange,
) -> Result<(v1::Amounts, String), PrepareError> {
    if share.is_whole {
        return whole(&over(&share.competition, annotations));
    }
    let promised = share.cores_permille;
    let most = if promised == 0 {
        CoreShare::WHOLE.0
    } else {
        promised
    };
    // What the parameters contradict by themselves is told as theirs.
    Quota::fixed(Some(share.memory_bytes), most).merge(&kept(promised, share.competition))?;
    let choice = kept(promised, over(&share.competition, annotations));
    let mut quota = lowered(share.memory_bytes, most, &choice)?;
    // `fixed` with all GPU time promises nothing (docs/policies.md). A claim of 100 cores is promised them.
    if promised > 0 && quota.reserved_permille() != quota.promised_permille() {
        quota.policy = Policy::Burst;
    }
    let granted = amounts::asked(&quota);
    Ok((amounts::chosen(&granted, &choice), amounts::text(&granted)))
}

/// GPUs alone: there is nothing to choose.
fn whole(choice: &QuotaChange) -> Result<(v1::Amounts, String), PrepareError> {
    if *choice != QuotaChange::default() {
        return Err(PrepareError::Whole);
    }
    let amounts = v1::Amounts {
        cores_permille: CoreShare::WHOLE.0,
        ..v1::Amounts::default()
    };
    Ok((amounts, amounts::text(&amounts)))
}

/// A choice of a tenant that was promised so much, without what would promise it more: nothing, and what is left up to a
/// maximum, is `best-effort`.
fn kept(promised: u32, mut choice: QuotaChange) -> QuotaChange {
    if promised > 0 {
        return choice;
    }
    if choice.policy == Some(Policy::Burst) {
        choice.cores_permille = choice.cores_max_permille.take().or(choice.cores_permille);
        choice.policy = Some(Policy::BestEffort);
    } else if choice.cores_permille.is_some() {
        choice.policy = Some(Policy::BestEffort);
    }
    choice
}

/// What both choose; the later ones win.
fn over(former: &QuotaChange, later: &QuotaChange) -> QuotaChange {
    QuotaChange {
        memory_bytes: later.memory_bytes.or(former.memory_bytes),
        cores_permille: later.cores_permille.or(former.cores_permille),
        cores_max_permille: later.cores_max_permille.or(former.cores_max_permille),
        policy: later.policy.or(former.policy),
        priority: later.priority.or(former.priority),
        weight: later.weight.or(former.weight),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_lower_and_never_raise_what_was_allocated() {
        let change = |memory_bytes, cores_permille| QuotaChange {
            memory_bytes,
            cores_permille,
            ..QuotaChange::default()
        };
        let burst = QuotaChange {
            policy: Some(Policy::Burst),
            ..QuotaChange::default()
        };
        let of = |cores_permille, competition, annotations: &QuotaChange| {
            let share = Amounts {
                memory_bytes: 4 << 30,
                cores_permille,
                competition,
                is_whole: false,
            };
            let (amounts, _) = granted(&share, annotations).map_err(|error| error.to_string())?;
            Ok::<_, String>(Quota::from(&amounts))
        };
        let less = of(300, burst, &change(Some(1 << 30), Some(100))).unwrap();
        assert_eq!((less.memory_bytes, less.cores_permille), (Some(1 << 30), 100));
        assert_eq!(less.policy, Policy::Burst, "the parameters stay");
        let more = of(300, burst, &change(Some(5 << 30), None)).unwrap_err();
        assert!(more.contains("annotations only lower"), "{more}");
        assert!(of(300, burst, &change(None, Some(301))).is_err());
        // A share without a guarantee reserves no GPU time, whatever its annotation says.
        let capped = of(0, QuotaChange::default(), &change(None, Some(300))).unwrap();
        assert_eq!((capped.policy, capped.cores_permille), (Policy::BestEffort, 300));
        assert_eq!(capped.reserved_permille(), 0);
    }
}
