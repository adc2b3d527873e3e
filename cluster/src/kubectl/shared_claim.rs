//! Whether a pod uses the requests of a shared claim together that the pods before it use apart, or the other way round. Kubelet asks the
//! driver once for each claim, which grants together what containers use together, and each request that none uses by itself. No network.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::finding::Finding;

/// Requests that a container uses together.
type Group = BTreeSet<String>;

/// A finding for each claim of `pod` whose earlier users, of `others`, use it otherwise.
pub(super) fn differing(pod: &Pod, claims: &[ResourceClaim], others: &[Pod]) -> Vec<Finding> {
    claims.iter().filter_map(|claim| of_claim(pod, claim, others)).collect()
}

fn of_claim(pod: &Pod, claim: &ResourceClaim, others: &[Pod]) -> Option<Finding> {
    let name = claim.metadata.name.as_deref()?;
    let started = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let own = groups(pod, claim, name);
    let earlier = others.iter().filter(|other| started(other) < started(pod));
    let before: Vec<(&Pod, BTreeSet<Group>)> = earlier
        .map(|other| (other, groups(other, claim, name)))
        .filter(|(_, groups)| !groups.is_empty())
        .collect();
    let (first, theirs) = before.first()?;
    let requests = claim.spec.iter().filter_map(|spec| spec.devices.as_ref());
    let requests: Vec<&str> = requests
        .flat_map(|devices| devices.requests.iter().flatten())
        .map(|request| request.name.as_str())
        .collect();
    let is_by_itself = |group: &Group| {
        group.len() == 1
            && group.iter().all(|name| requests.contains(&name.as_str()))
            && theirs.iter().all(|known| known.is_disjoint(group))
    };
    let is_known =
        |group: &&Group| before.iter().any(|(_, groups)| groups.contains(*group)) || is_by_itself(group);
    let unknown = own.iter().find(|group| !is_known(group))?;
    let words = |group: &Group| group.iter().map(String::as_str).collect::<Vec<_>>().join(" and ");
    let theirs: Vec<String> = theirs.iter().map(words).collect();
    Some(Finding {
        source: "claim".to_owned(),
        reason: format!(
            "a container uses {} of claim {name}, which was prepared as pod {} uses it ({}): it has no GPU, or memory of one only",
            words(unknown),
            first.metadata.name.as_deref().unwrap_or_default(),
            theirs.join("; ")
        ),
        remedy: "let all pods use the same requests of a shared claim, or give each a claim of its own (resourceClaimTemplateName)"
            .to_owned(),
    })
}

/// The requests that each container of a pod uses of the claim. A container that names none uses all.
fn groups(pod: &Pod, claim: &ResourceClaim, name: &str) -> BTreeSet<Group> {
    let Some(spec) = &pod.spec else {
        return BTreeSet::new();
    };
    let entries: BTreeSet<&str> = spec
        .resource_claims
        .iter()
        .flatten()
        .filter(|entry| entry.resource_claim_name.as_deref() == Some(name))
        .map(|entry| entry.name.as_str())
        .collect();
    let all = || claim.spec.iter().filter_map(|spec| spec.devices.as_ref());
    let all = || all().flat_map(|devices| devices.requests.iter().flatten());
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let uses = containers.map(|container| {
        let resources = container.resources.iter();
        let claims = resources.flat_map(|resources| resources.claims.iter().flatten());
        claims
            .filter(|used| entries.contains(used.name.as_str()))
            .flat_map(|used| match &used.request {
                Some(request) => Group::from([request.clone()]),
                None => all().map(|request| request.name.clone()).collect(),
            })
            .collect::<Group>()
    });
    uses.filter(|group| !group.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, second: u32, requests: &[Option<&str>]) -> Pod {
        let uses = |request: &Option<&str>| match request {
            Some(request) => json!({"name": "gpus", "request": request}),
            None => json!({"name": "gpus"}),
        };
        let claims: Vec<Value> = requests.iter().map(uses).collect();
        let value = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{second}Z")},
            "spec": {"resourceClaims": [{"name": "gpus", "resourceClaimName": "shared"}],
                "containers": [{"name": "c", "resources": {"claims": claims}}, {"name": "without"}]},
        });
        serde_json::from_value(value).unwrap()
    }

    fn found(pod: &Pod, others: &[Pod]) -> Vec<String> {
        let claim = json!({"metadata": {"name": "shared"}, "spec": {"devices": {"requests": [{"name": "a"}, {"name": "b"}]}}});
        let claims = [serde_json::from_value(claim).unwrap()];
        let findings = differing(pod, &claims, others);
        findings.into_iter().map(|finding| finding.reason).collect()
    }

    #[test]
    fn a_later_pod_is_told_that_it_uses_a_claim_otherwise() {
        let (first, same) = (pod("first", 1, &[Some("a")]), pod("same", 2, &[Some("a")]));
        let late = pod("late", 3, &[Some("b")]);
        let all = pod("all", 4, &[None]);
        let others = [first.clone(), same.clone()];
        assert!(found(&late, &others).is_empty(), "granted by itself");
        assert_eq!(
            found(&all, &others),
            [
                "a container uses a and b of claim shared, which was prepared as pod first uses it (a): it has no GPU, or memory of \
                 one only"
            ]
        );
        let unknown = pod("unknown", 3, &[Some("gpu9")]);
        assert!(found(&unknown, &others)[0].starts_with("a container uses gpu9 of claim shared"));
        let together = [pod("together", 1, &[None])];
        assert!(found(&late, &together)[0].starts_with("a container uses b of claim shared"));
        assert!(found(&same, std::slice::from_ref(&first)).is_empty());
        // It is the later one that has none.
        assert!(found(&first, &[late]).is_empty());
    }
}
