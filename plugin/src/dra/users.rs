//! The containers that use each request of a claim. A container has the same limits on all its GPUs, so the requests of a
//! container are granted together. Containers that use the same requests share the grant.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use thiserror::Error;
use tracing::warn;

use super::claim::request_base;

mod containers;

use containers::container_claims;

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

/// The requests of a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests<'a> {
    /// Names of all its requests, of other drivers too.
    pub(crate) all: &'a BTreeSet<String>,
    /// Those for which it was allocated shares.
    pub(crate) ours: &'a BTreeSet<String>,
}

/// Containers use the claim in a way that gives them no grant. A container is named with its pod.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum UsersError {
    #[error(
        "containers {0} and {1} use some of the claim's requests in common and others not: containers share all their requests or \
         none"
    )]
    Overlap(String, String),
    #[error(
        "container {container} names request \"{request}\", which the claim does not have; it has {}",
        .has.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    )]
    NoRequest { container: String, request: String, has: BTreeSet<String> },
}

impl Requests<'_> {
    /// Those of ours that `container` uses. `named` are the names in its specification, of which an empty one means all.
    fn used(
        self,
        named: &BTreeSet<String>,
        container: &(String, String),
    ) -> Result<BTreeSet<String>, UsersError> {
        let is_known = |name: &&String| name.is_empty() || self.all.contains(request_base(name));
        if let Some(unknown) = named.iter().find(|name| !is_known(name)) {
            return Err(UsersError::NoRequest {
                container: shown(container),
                request: unknown.clone(),
                has: self.all.clone(),
            });
        }
        let is_used = |ours: &&String| named.iter().any(|name| request_base(name) == ours.as_str());
        Ok(match named.contains("") {
            true => self.ours.clone(),
            false => self.ours.iter().filter(is_used).cloned().collect(),
        })
    }
}

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
///
/// # Errors
/// Two containers have some requests in common and others not, or all that use the claim name requests that it lacks: one wrong pod keeps
/// no other from a shared claim.
pub(crate) fn find_users(pods: &[Pod], claim: &str, requests: Requests<'_>) -> Result<Users, UsersError> {
    let (mut users, mut wrong) = (Users::default(), None);
    for pod in pods {
        let pod_name = pod.metadata.name.clone().unwrap_or_default();
        for (container, used) in container_claims(pod) {
            let Some(of_claim) = used.get(claim) else {
                continue;
            };
            users.other_claims.extend(used.keys().filter(|name| *name != claim).cloned());
            let container = (pod_name.clone(), container);
            match requests.used(of_claim, &container) {
                Ok(of_claim) => add_to_groups(&mut users.groups, of_claim, container)?,
                Err(error) => wrong = Some(error),
            }
        }
    }
    match wrong {
        Some(error) if users.groups.is_empty() => Err(error),
        Some(error) => {
            warn!("{error}");
            Ok(users)
        }
        None => Ok(users),
    }
}

fn add_to_groups(
    groups: &mut Vec<Group>,
    requests: BTreeSet<String>,
    container: (String, String),
) -> Result<(), UsersError> {
    if requests.is_empty() {
        return Ok(());
    }
    if let Some(same) = groups.iter_mut().find(|group| group.requests == requests) {
        same.containers.push(container);
        return Ok(());
    }
    if let Some(other) = groups.iter().find(|group| !group.requests.is_disjoint(&requests)) {
        let first = other.containers.first().map(shown).unwrap_or_default();
        return Err(UsersError::Overlap(first, shown(&container)));
    }
    groups.push(Group { requests, containers: vec![container] });
    Ok(())
}

fn shown((pod, container): &(String, String)) -> String {
    format!("{pod}/{container}")
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

    /// The users of a claim with the requests `a` and `b`, and `nic` of another driver.
    fn users_of_claim(pod: Pod) -> Result<Users, UsersError> {
        let [ours, all] = [&["a", "b"][..], &["a", "b", "nic"]]
            .map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        find_users(&[pod], "p-gpu", Requests { all: &all, ours: &ours })
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
        assert_eq!(overlap, UsersError::Overlap("p/c".to_owned(), "p/d".to_owned()));
    }

    #[test]
    fn a_request_that_the_claim_lacks_is_refused() {
        let error = users_of_claim(pod(&[("c", &[("gpu", "a"), ("gpu", "gpu9")])])).unwrap_err().to_string();
        assert_eq!(
            error,
            "container p/c names request \"gpu9\", which the claim does not have; it has a, b, nic"
        );
        let beside = pod(&[("c", &[("gpu", "a")]), ("d", &[("gpu", "gpu9")])]);
        assert_eq!(
            sets(&users_of_claim(beside).unwrap()),
            [("a".to_owned(), 1)],
            "another one has its share"
        );
        let others = pod(&[("c", &[("gpu", "a/large")]), ("d", &[("gpu", "nic")]), ("e", &[("other", "x")])]);
        assert_eq!(sets(&users_of_claim(others).unwrap()), [("a".to_owned(), 1)]);
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
        let requests = ["r".to_owned()].into();
        let users = find_users(&[pod], "p-extended", Requests { all: &requests, ours: &requests }).unwrap();
        assert_eq!(sets(&users), [("r".to_owned(), 1)]);
    }
}
