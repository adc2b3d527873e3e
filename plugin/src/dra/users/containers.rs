//! The claims that the containers of a pod use.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};

/// For each container of a pod: the claims that it uses, with their requests. An empty request means all requests.
pub(super) fn container_claims(pod: &Pod) -> Vec<(String, BTreeMap<String, BTreeSet<String>>)> {
    let names = claim_names(pod);
    let mut uses: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for container in containers(pod) {
        let claims = container.resources.iter().flat_map(|resources| resources.claims.iter().flatten());
        for claim in claims {
            let Some(name) = names.get(claim.name.as_str()) else {
                continue;
            };
            let requests = uses.entry(container.name.clone()).or_default().entry(name.clone());
            requests.or_default().insert(claim.request.clone().unwrap_or_default());
        }
    }
    // Extended resources of a device class, for which the scheduler has made the claim.
    let extended = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
    if let Some(status) = extended {
        for mapping in &status.request_mappings {
            let of_container = uses.entry(mapping.container_name.clone()).or_default();
            let requests = of_container.entry(status.resource_claim_name.clone()).or_default();
            requests.insert(mapping.request_name.clone());
        }
    }
    uses.into_iter().collect()
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
    })
}

/// Names of claims by the names that the pod's specification gives them.
fn claim_names(pod: &Pod) -> BTreeMap<&str, String> {
    let named = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let mut names: BTreeMap<&str, String> =
        named.filter_map(|claim| Some((claim.name.as_str(), claim.resource_claim_name.clone()?))).collect();
    // Claims that were made from templates.
    let made = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    names.extend(made.filter_map(|claim| Some((claim.name.as_str(), claim.resource_claim_name.clone()?))));
    names
}
