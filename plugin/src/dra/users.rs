//! The containers that use each request of a claim. A container has the same limits on all its GPUs, so the requests of a
//! container are granted together. Containers that use the same requests share the grant.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use thiserror::Error;

/// Requests of a claim that the same containers use. A group has a single grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) requests: BTreeSet<String>,
    /// Pod and name of each container that uses the requests.
    pub(crate) containers: Vec<(String, String)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Users {
    /// Groups; no request is in two of them.
    pub(crate) groups: Vec<Group>,
    /// Names of other claims that its containers use too.
    pub(crate) other_claims: BTreeSet<String>,
}

/// Two containers have some requests in common and others not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "containers {} and {} use some of the claim's requests in common and others not: containers share all their requests or \
     none", .0, .1
)]
pub(crate) struct Overlap(String, String);

impl Users {
    /// Adds the requests that no container uses yet, each as a group of its own: later pods of a shared claim may, for which kubelet asks
    /// nothing.
    pub(crate) fn add_unused(&mut self, requests: &BTreeSet<String>) {
        let used: BTreeSet<&String> = self.groups.iter().flat_map(|group| &group.requests).collect();
        let unused = requests.iter().filter(|request| !used.contains(request));
        let unused: Vec<Group> = unused
            .map(|request| Group { requests: [request.clone()].into(), containers: Vec::new() })
            .collect();
        self.groups.extend(unused);
    }
}

/// Finds the containers among `pods` that use the claim named `claim`, which has these `requests`.
pub(crate) fn find_users(pods: &[Pod], claim: &str, requests: &BTreeSet<String>) -> Result<Users, Overlap> {
    let mut users = Users::default();
    for pod in pods {
        let pod_name = pod.metadata.name.clone().unwrap_or_default();
        for (container, used) in container_claims(pod) {
            let Some(of_claim) = used.get(claim) else {
                continue;
            };
            users.other_claims.extend(used.keys().filter(|name| *name != claim).cloned());
            let of_claim = match of_claim.contains("") {
                true => requests.clone(),
                false => of_claim.intersection(requests).cloned().collect(),
            };
            add_to_groups(&mut users.groups, of_claim, (pod_name.clone(), container))?;
        }
    }
    Ok(users)
}

fn add_to_groups(
    groups: &mut Vec<Group>,
    requests: BTreeSet<String>,
    container: (String, String),
) -> Result<(), Overlap> {
    if requests.is_empty() {
        return Ok(());
    }
    if let Some(same) = groups.iter_mut().find(|group| group.requests == requests) {
        same.containers.push(container);
        return Ok(());
    }
    if let Some(other) = groups.iter().find(|group| !group.requests.is_disjoint(&requests)) {
        let shown = |(pod, container): &(String, String)| format!("{pod}/{container}");
        let first = other.containers.first().map(shown).unwrap_or_default();
        return Err(Overlap(first, shown(&container)));
    }
    groups.push(Group { requests, containers: vec![container] });
    Ok(())
}

/// For each container of a pod: the claims that it uses, with their requests. An empty request means all requests.
fn container_claims(pod: &Pod) -> Vec<(String, BTreeMap<String, BTreeSet<String>>)> {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pod whose claim `gpu` was made of a template as `p-gpu`, and whose claim `other` is the claim `shared`.
    fn pod(containers: &[(&str, &[(&str, &str)])]) -> Pod {
        let containers: Vec<Value> = containers
            .iter()
            .map(|(name, claims)| {
                let claims: Vec<Value> = claims
                    .iter()
                    .map(|(claim, request)| match *request {
                        "" => json!({"name": claim}),
                        request => json!({"name": claim, "request": request}),
                    })
                    .collect();
                json!({"name": name, "resources": {"claims": claims}})
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": containers,
                "resourceClaims": [
                    {"name": "gpu", "resourceClaimTemplateName": "t"},
                    {"name": "other", "resourceClaimName": "shared"},
                ],
            },
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]},
        }))
        .unwrap()
    }

    fn users_of_claim(pod: Pod) -> Result<Users, Overlap> {
        find_users(&[pod], "p-gpu", &["a", "b"].map(str::to_owned).into())
    }

    fn sets(users: &Users) -> Vec<(String, usize)> {
        let shown = |group: &Group| {
            let requests: Vec<&str> = group.requests.iter().map(String::as_str).collect();
            (requests.join("+"), group.containers.len())
        };
        users.groups.iter().map(shown).collect()
    }

    #[test]
    fn a_container_has_all_requests_that_it_uses_together() {
        let one = users_of_claim(pod(&[("c", &[("gpu", "")])])).unwrap();
        assert_eq!(sets(&one), [("a+b".to_owned(), 1)]);
        let both =
            users_of_claim(pod(&[("c", &[("gpu", "a"), ("gpu", "b")]), ("d", &[("gpu", "")])])).unwrap();
        assert_eq!(sets(&both), [("a+b".to_owned(), 2)]);
        let each =
            users_of_claim(pod(&[("c", &[("gpu", "a")]), ("d", &[("gpu", "b")]), ("e", &[])])).unwrap();
        assert_eq!(sets(&each), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
        assert!(each.other_claims.is_empty());
    }

    #[test]
    fn requests_that_no_container_uses_are_for_later_pods() {
        let mut users = users_of_claim(pod(&[("c", &[("gpu", "b")])])).unwrap();
        users.add_unused(&["a", "b", "c"].map(str::to_owned).into());
        assert_eq!(sets(&users), [("b".to_owned(), 1), ("a".to_owned(), 0), ("c".to_owned(), 0)]);
    }

    #[test]
    fn a_part_in_common_is_refused() {
        let overlap = users_of_claim(pod(&[("c", &[("gpu", "")]), ("d", &[("gpu", "b")])])).unwrap_err();
        assert_eq!(overlap, Overlap("p/c".to_owned(), "p/d".to_owned()));
    }

    #[test]
    fn other_claims_of_the_same_containers_are_named() {
        let users =
            users_of_claim(pod(&[("c", &[("gpu", "a"), ("other", "")]), ("d", &[("other", "")])])).unwrap();
        assert_eq!(users.other_claims, ["shared".to_owned()].into());
        assert_eq!(sets(&users), [("a".to_owned(), 1)]);
    }

    #[test]
    fn extended_resources_are_requests_too() {
        let mut pod = pod(&[("c", &[])]);
        let status = json!({
            "resourceClaimName": "p-extended",
            "requestMappings": [{"containerName": "c", "requestName": "r", "resourceName": "vcuda.io/share"}],
        });
        pod.status.get_or_insert_default().extended_resource_claim_status =
            serde_json::from_value(status).unwrap();
        let users = find_users(&[pod], "p-extended", &["r".to_owned()].into()).unwrap();
        assert_eq!(sets(&users), [("r".to_owned(), 1)]);
    }
}
