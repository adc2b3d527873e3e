//! Quota changes by the annotations of a claim, and of the pod that the claim was made for.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use vcuda_manager_api::v1;
use vcuda_quota::QuotaChange;
use vcuda_quota::pods::annotations::{AnnotationError, DOMAIN, quota_change as container_quota_change};

use super::users::Group;

pub(super) type Annotations = BTreeMap<String, String>;

/// Whether the claim was made for a single pod, by a template or for extended resources. It is deleted with that pod.
pub(super) fn is_of_pod(claim: &ResourceClaim) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "Pod" && owner.controller == Some(true))
}

/// Our annotations of a claim, and of the pod that it was made for: those of the pod win.
pub(super) fn merged(claim: &ResourceClaim, of_pod: Option<&Annotations>) -> Annotations {
    let own = claim.metadata.annotations.iter().flatten();
    let all = own.chain(of_pod.into_iter().flatten());
    let ours = all.filter(|(key, _)| key.starts_with(DOMAIN));
    ours.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The annotations of the holder's pod if the claim was made for it.
pub(super) fn of_pod<'a>(
    claim: &ResourceClaim,
    pods: &'a [Pod],
    holder: &v1::Holder,
) -> Option<&'a Annotations> {
    let is_named = |pod: &&Pod| pod.metadata.name.as_ref() == Some(&holder.pod);
    let pod = pods.iter().find(is_named).filter(|_| is_of_pod(claim));
    pod.and_then(|pod| pod.metadata.annotations.as_ref())
}

/// The quota change for the containers of a group at their start.
pub(super) fn quota_change(
    claim: &ResourceClaim,
    pods: &[Pod],
    holder: &v1::Holder,
    groups: &[Group],
) -> Result<QuotaChange, AnnotationError> {
    let of_pod = of_pod(claim, pods, holder);
    let containers = groups.iter().flat_map(|group| &group.containers);
    let names: BTreeSet<String> = containers.map(|(_, container)| container.clone()).collect();
    container_quota_change(&merged(claim, of_pod), &holder.container, &names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(owner: &str) -> ResourceClaim {
        serde_json::from_value(json!({
            "metadata": {
                "annotations": {"vcuda.io/memory": "2Gi", "vcuda.io/cores": "20", "example.com/a": "b"},
                "ownerReferences": [{"apiVersion": "v1", "kind": owner, "name": "p", "uid": "u", "controller": true}],
            },
            "spec": {},
        }))
        .unwrap()
    }

    fn chosen(owner: &str, of_pod: &[(&str, &str)]) -> Result<QuotaChange, String> {
        let pod = json!({"metadata": {"name": "p", "annotations": of_pod.iter().copied().collect::<BTreeMap<_, _>>()}});
        let holder =
            v1::Holder { pod: "p".to_owned(), container: "main".to_owned(), ..v1::Holder::default() };
        let group =
            Group { requests: BTreeSet::new(), containers: vec![("p".to_owned(), "main".to_owned())] };
        let pods = [serde_json::from_value(pod).unwrap()];
        quota_change(&claim(owner), &pods, &holder, &[group]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pods_annotations_win_over_those_of_its_own_claim_alone() {
        let own = chosen("Pod", &[("vcuda.io/memory", "1Gi"), ("vcuda.io/policy.main", "burst")]).unwrap();
        assert_eq!((own.memory_bytes, own.cores_permille), (Some(1 << 30), Some(200)));
        let shared = chosen("Job", &[("vcuda.io/memory", "1Gi")]).unwrap();
        assert_eq!(shared.memory_bytes, Some(2 << 30));
        let wrong = chosen("Pod", &[("vcuda.io/policy.mian", "burst")]).unwrap_err();
        assert!(wrong.ends_with("it has main"), "{wrong}");
    }
}
