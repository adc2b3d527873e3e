//! The request to the manager for a group of shares.

use k8s_openapi::api::core::v1::Pod;
use vcuda_kubelet_api::dra;
use vcuda_manager_api::v1;
use vcuda_quota::{CoreShare, Policy, Quota, QuotaChange};

use super::claim::{Amounts, Share};
use super::prepare::{PrepareError, hash, prefix};
use super::users::Group;
use crate::amounts;

/// The request for a group's grant on `gpus` (UUIDs); nothing for admin access.
///
/// # Errors
/// The shares cannot be one tenant's.
pub(super) fn request(
    asked: &dra::Claim,
    group: &Group,
    shares: &[&Share],
    gpus: Vec<String>,
    pods: &[Pod],
) -> Result<Option<v1::CreateGrantRequest>, PrepareError> {
    let Some((first, common)) = common(shares)? else {
        return Ok(None);
    };
    let amounts = granted(common)?;
    let suffix = hash(&first.request, 4);
    let key = format!("{}{suffix}", prefix(&asked.uid));
    Ok(Some(v1::CreateGrantRequest {
        request_id: format!(
            "{key}-{}",
            hash(&format!("{} {}", amounts::text(&amounts), gpus.join(" ")), 8)
        ),
        key,
        holder: Some(holder(asked, group, pods)),
        amounts: Some(amounts::chosen(&amounts, &common.competition)),
        gpu_uuids: gpus,
        ..v1::CreateGrantRequest::default()
    }))
}

/// The amounts that all shares have; nothing if all are for admin access.
fn common<'a>(shares: &[&'a Share]) -> Result<Option<(&'a Share, &'a Amounts)>, PrepareError> {
    let with_amounts = shares
        .iter()
        .filter_map(|share| Some((*share, share.amounts.as_ref()?)));
    let Some((first, amounts)) = with_amounts.clone().next() else {
        return Ok(None);
    };
    if let Some(admin) = shares.iter().find(|share| share.amounts.is_none()) {
        return Err(PrepareError::AdminBeside(admin.request.clone()));
    }
    for (other, others) in with_amounts {
        if others != amounts {
            return Err(PrepareError::Unequal(
                first.request.clone(),
                other.request.clone(),
            ));
        }
    }
    Ok(Some((first, amounts)))
}

/// The manager's amounts. It must not hold more of the GPU's time than the scheduler counts.
fn granted(amounts: &Amounts) -> Result<v1::Amounts, PrepareError> {
    let promised = amounts.cores_permille;
    let whole = CoreShare::WHOLE.0;
    let mut choice: QuotaChange = amounts.competition;
    if promised == 0 && choice.policy == Some(Policy::Burst) {
        // Nothing is promised, and it may have what is left up to its maximum: that is `best-effort`.
        choice.policy = Some(Policy::BestEffort);
        choice.cores_permille = choice.cores_max_permille.take();
    }
    let cores = if promised == 0 { whole } else { promised };
    let mut quota = Quota::fixed(Some(amounts.memory_bytes), cores).merge(&choice)?;
    // `fixed` with all GPU time promises nothing (docs/policies.md). A claim of 100 cores is promised them.
    if promised > 0 && quota.reserved_permille() != quota.promised_permille() {
        quota.policy = Policy::Burst;
    }
    let mut granted = v1::Amounts::from(&quota);
    if quota.policy != Policy::Burst {
        granted.cores_max_permille = 0;
    }
    Ok(granted)
}

/// Whom the grant is shown for: the first container, of those that share.
fn holder(asked: &dra::Claim, group: &Group, pods: &[Pod]) -> v1::Holder {
    let (pod, container) = group.containers.first().cloned().unwrap_or_default();
    let of_name = pods
        .iter()
        .find(|found| found.metadata.name.as_deref() == Some(pod.as_str()));
    v1::Holder {
        namespace: asked.namespace.clone(),
        container,
        pod_uid: of_name
            .and_then(|pod| pod.metadata.uid.clone())
            .unwrap_or_default(),
        pod,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(request: &str, amounts: Option<Amounts>) -> Share {
        Share {
            request: request.to_owned(),
            device: "gpu-1".to_owned(),
            share_id: None,
            amounts,
        }
    }

    fn amounts(cores_permille: u32, competition: QuotaChange) -> Amounts {
        Amounts {
            memory_bytes: 4 << 30,
            cores_permille,
            competition,
        }
    }

    fn of(shares: &[&Share]) -> Result<Option<v1::CreateGrantRequest>, String> {
        let asked = dra::Claim {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: "9e3b6a0e-1d1f-4c9e-9d52-0c9f4ad4f111".to_owned(),
        };
        let group = Group {
            requests: shares.iter().map(|share| share.request.clone()).collect(),
            containers: vec![("p".to_owned(), "main".to_owned())],
        };
        request(&asked, &group, shares, vec!["GPU-1".to_owned()], &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_names_amounts_gpus_and_container() {
        let request = of(&[&share("gpu", Some(amounts(300, QuotaChange::default())))])
            .unwrap()
            .unwrap();
        let granted = request.amounts.unwrap();
        assert_eq!((granted.memory_bytes, granted.cores_permille), (4 << 30, 300));
        assert_eq!(
            granted.policy(),
            v1::Policy::Unspecified,
            "the namespace's default"
        );
        assert!(
            request.key.len() <= 40 && request.request_id.len() <= 64,
            "{request:?}"
        );
        assert_eq!(request.holder.unwrap().container, "main");
    }

    #[test]
    fn the_manager_holds_what_the_scheduler_counts() {
        let burst = QuotaChange {
            policy: Some(Policy::Burst),
            ..QuotaChange::default()
        };
        for (cores, competition, reserved) in [
            (0, QuotaChange::default(), 0),
            (0, burst, 0),
            (300, burst, 300),
            (1000, QuotaChange::default(), 1000),
            (1000, burst, 1000),
        ] {
            let request = of(&[&share("gpu", Some(amounts(cores, competition)))])
                .unwrap()
                .unwrap();
            let quota = Quota::from(request.amounts.as_ref().unwrap());
            assert_eq!(quota.reserved_permille(), reserved, "{cores} {competition:?}");
            assert!(quota.is_valid(), "{quota:?}");
        }
    }

    #[test]
    fn shares_of_one_container_are_equal_or_refused() {
        let one = share("a", Some(amounts(300, QuotaChange::default())));
        let other = share("b", Some(amounts(400, QuotaChange::default())));
        let admin = share("see", None);
        assert!(of(&[&one, &one]).unwrap().is_some());
        assert!(of(&[&one, &other]).unwrap_err().contains("requests a and b"));
        assert!(
            of(&[&one, &admin])
                .unwrap_err()
                .contains("request see has admin access")
        );
        assert!(of(&[&admin]).unwrap().is_none());
    }

    #[test]
    fn a_maximum_without_burst_is_refused() {
        let maximum = QuotaChange {
            cores_max_permille: Some(800),
            ..QuotaChange::default()
        };
        let error = of(&[&share("gpu", Some(amounts(300, maximum)))]).unwrap_err();
        assert!(error.contains("coresMax 80 % is for policy burst"), "{error}");
    }
}
