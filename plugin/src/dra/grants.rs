//! The request to the manager for the grant of a group of shares.

use k8s_openapi::api::core::v1::Pod;
use vcuda_kubelet_api::dra;
use vcuda_manager_api::v1;
use vcuda_quota::pods::{AmountsError, overlaid, without_guarantee};
use vcuda_quota::{Quota, QuotaChange};

use super::claim::Share;
use super::prepare::error::PrepareError;
use super::prepare::names::key_prefix;
use super::users::Group;
use crate::amounts::{Asked, Counted, asked, most_permille};
use crate::ids::digest;

/// The request for a group's grant on `gpus` (UUIDs), with its containers' `annotations`, and the amounts as a text to compare.
/// Returns `None` for admin access.
pub(super) fn create_request(
    claim: &dra::Claim,
    holder: v1::Holder,
    shares: &[&Share],
    gpus: Vec<String>,
    annotations: &QuotaChange,
) -> Result<Option<(v1::CreateGrantRequest, String)>, PrepareError> {
    let Some((first, common)) = common_amounts(shares)? else {
        return Ok(None);
    };
    let Asked { amounts, text } = grant_amounts(common, annotations)?;
    let chosen = overlaid(&common.parameters, annotations);
    let key = format!("{}{}", key_prefix(&claim.uid), digest(&first.request, 4));
    let request = v1::CreateGrantRequest {
        request_id: format!("{key}-{}", digest(&format!("{text} {}", gpus.join(" ")), 8)),
        key,
        holder: Some(holder),
        amounts: Some(amounts),
        gpu_uuids: gpus,
        suspendable: chosen.suspendable.unwrap_or(false),
        ..v1::CreateGrantRequest::default()
    };
    Ok(Some((request, text)))
}

/// The amounts of the grant for a share whose containers have these annotations.
pub(super) fn grant_amounts(counted: &Counted, annotations: &QuotaChange) -> Result<Asked, PrepareError> {
    if !counted.is_whole {
        // Without the annotations first, so that a fault of the parameters is reported as theirs.
        let guaranteed = counted.cores_permille;
        let full = Quota::fixed(Some(counted.memory_bytes), most_permille(guaranteed));
        full.merge(&without_guarantee(guaranteed, counted.parameters))?;
    }
    asked(counted, annotations).map_err(|error| match error {
        AmountsError::Whole | AmountsError::SuspendableWhole => PrepareError::Whole,
        error => error.into(),
    })
}

/// The amounts that all shares have; `None` if all are for admin access.
///
/// # Errors
/// The shares have different amounts, or only some are for admin access.
fn common_amounts<'a>(shares: &[&'a Share]) -> Result<Option<(&'a Share, &'a Counted)>, PrepareError> {
    let with_amounts = shares.iter().filter_map(|share| Some((*share, share.counted.as_ref()?)));
    let Some((first, counted)) = with_amounts.clone().next() else {
        return Ok(None);
    };
    if let Some(admin) = shares.iter().find(|share| share.counted.is_none()) {
        return Err(PrepareError::AdminBeside(admin.request.clone()));
    }
    for (other, others) in with_amounts {
        // Whole GPUs may differ in size.
        let are_equal = match others.is_whole && counted.is_whole {
            true => others.parameters == counted.parameters,
            false => others == counted,
        };
        if !are_equal {
            return Err(PrepareError::Unequal(first.request.clone(), other.request.clone()));
        }
    }
    Ok(Some((first, counted)))
}

/// The holder of a grant: the group's first container.
pub(super) fn grant_holder(claim: &dra::Claim, group: &Group, pods: &[Pod]) -> v1::Holder {
    let (pod, container) = group.containers.first().cloned().unwrap_or_default();
    let found = pods.iter().find(|found| found.metadata.name.as_deref() == Some(pod.as_str()));
    v1::Holder {
        namespace: claim.namespace.clone(),
        container,
        pod_uid: found.and_then(|pod| pod.metadata.uid.clone()).unwrap_or_default(),
        pod,
    }
}

#[cfg(test)]
mod tests {
    use vcuda_quota::{Policy, Quota};

    use super::*;

    fn share(request: &str, counted: Option<Counted>) -> Share {
        Share { request: request.to_owned(), device: "gpu-1".to_owned(), share_id: None, counted }
    }

    fn counted(cores_permille: u32, parameters: QuotaChange) -> Counted {
        Counted { memory_bytes: 4 << 30, cores_permille, parameters, is_whole: false }
    }

    fn request(shares: &[&Share]) -> Result<Option<v1::CreateGrantRequest>, String> {
        request_with(shares, &QuotaChange::default()).map(|request| request.map(|(request, _)| request))
    }

    fn request_with(
        shares: &[&Share],
        annotations: &QuotaChange,
    ) -> Result<Option<(v1::CreateGrantRequest, String)>, String> {
        let asked = dra::Claim {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: "9e3b6a0e-1d1f-4c9e-9d52-0c9f4ad4f111".to_owned(),
        };
        let group = Group {
            requests: shares.iter().map(|share| share.request.clone()).collect(),
            containers: vec![("p".to_owned(), "main".to_owned())],
        };
        let holder = grant_holder(&asked, &group, &[]);
        let gpus = vec!["GPU-1".to_owned()];
        create_request(&asked, holder, shares, gpus, annotations).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_names_amounts_gpus_and_container() {
        let request = request(&[&share("gpu", Some(counted(300, QuotaChange::default())))]).unwrap().unwrap();
        let granted = request.amounts.unwrap();
        assert_eq!((granted.memory_bytes, granted.cores_permille), (4 << 30, 300));
        assert_eq!(granted.policy(), v1::Policy::Unspecified, "the namespace's default");
        assert!(request.key.len() <= 40 && request.request_id.len() <= 64, "{request:?}");
        assert_eq!(request.holder.unwrap().container, "main");
    }

    /// A claim that was created again has the name of the one before, and another UID. Its request must not be answered with the
    /// grant of the one before.
    #[test]
    fn each_part_of_a_request_changes_its_identifier() {
        let identifiers = |uid: &str, memory_bytes, gpu: &str| {
            let asked = dra::Claim { namespace: "n".to_owned(), name: "c".to_owned(), uid: uid.to_owned() };
            let one = Counted { memory_bytes, ..counted(300, QuotaChange::default()) };
            let change = QuotaChange::default();
            let holder = v1::Holder::default();
            let (request, _) =
                create_request(&asked, holder, &[&share("gpu", Some(one))], vec![gpu.to_owned()], &change)
                    .unwrap()
                    .unwrap();
            (request.key, request.request_id)
        };
        let [one, other] = ["9e3b6a0e-1d1f-4c9e-9d52-0c9f4ad4f111", "9e3b6a0e-1d1f-4c9e-9d52-0c9f4ad4f112"];
        let same = identifiers(one, 1 << 30, "GPU-1");
        assert_eq!(identifiers(one, 1 << 30, "GPU-1"), same);
        let another = identifiers(other, 1 << 30, "GPU-1");
        assert!(another.0 != same.0 && another.1 != same.1, "{another:?}");
        for changed in [identifiers(one, 2 << 30, "GPU-1"), identifiers(one, 1 << 30, "GPU-2")] {
            assert_eq!(changed.0, same.0);
            assert_ne!(changed.1, same.1);
        }
    }

    #[test]
    fn the_manager_reserves_what_the_scheduler_counts() {
        let burst = QuotaChange { policy: Some(Policy::Burst), ..QuotaChange::default() };
        for (cores, quota_change, reserved) in [
            (0, QuotaChange::default(), 0),
            (0, burst, 0),
            (300, burst, 300),
            (1000, QuotaChange::default(), 1000),
            (1000, burst, 1000),
        ] {
            let request = request(&[&share("gpu", Some(counted(cores, quota_change)))]).unwrap().unwrap();
            let quota = Quota::from(request.amounts.as_ref().unwrap());
            assert_eq!(quota.reserved_permille(), reserved, "{cores} {quota_change:?}");
            assert!(quota.is_valid(), "{quota:?}");
        }
    }

    #[test]
    fn shares_of_one_container_are_equal_or_refused() {
        let one = share("a", Some(counted(300, QuotaChange::default())));
        let other = share("b", Some(counted(400, QuotaChange::default())));
        let admin = share("see", None);
        assert!(request(&[&one, &one]).unwrap().is_some());
        assert!(request(&[&one, &other]).unwrap_err().contains("requests a and b"));
        assert!(request(&[&one, &admin]).unwrap_err().contains("request see has admin access"));
        assert!(request(&[&admin]).unwrap().is_none());
    }

    #[test]
    fn an_annotation_wins_over_a_parameter() {
        let suspendable = |suspendable| QuotaChange { suspendable, ..QuotaChange::default() };
        for (parameter, annotation, is_suspendable) in [
            (None, None, false),
            (Some(true), None, true),
            (Some(true), Some(false), false),
            (None, Some(true), true),
        ] {
            let share = share("gpu", Some(counted(300, suspendable(parameter))));
            let (request, _) = request_with(&[&share], &suspendable(annotation)).unwrap().unwrap();
            assert_eq!(request.suspendable, is_suspendable, "{parameter:?} {annotation:?}");
        }
    }

    #[test]
    fn whole_gpus_are_granted_without_limits() {
        let whole = |request: &str, memory_bytes| Counted {
            memory_bytes,
            is_whole: true,
            ..share(request, Some(counted(0, QuotaChange::default()))).counted.unwrap()
        };
        // GPUs of unequal size fit together.
        let [one, other] = [("a", 4 << 30), ("b", 8 << 30)]
            .map(|(request, bytes)| share(request, Some(whole(request, bytes))));
        let request = request(&[&one, &other]).unwrap().unwrap();
        let granted = request.amounts.unwrap();
        assert_eq!((granted.memory_bytes, granted.cores_permille), (0, 1000));
        let less = QuotaChange { cores_permille: Some(500), ..QuotaChange::default() };
        assert!(request_with(&[&one], &less).unwrap_err().contains("whole GPUs"));
    }

    #[test]
    fn a_maximum_without_burst_is_refused() {
        let maximum = QuotaChange { cores_max_permille: Some(800), ..QuotaChange::default() };
        let error = request(&[&share("gpu", Some(counted(300, maximum)))]).unwrap_err();
        assert!(error.contains("coresMax 80 % is for policy burst"), "{error}");
    }
}
