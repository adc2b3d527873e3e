//! The container that holds given devices. Equal sets prove it; any doubt is an error.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::{CheckpointError, Containers, Devices, PodsSnapshot};
use crate::ids::{Ids, Kind};

/// The container, or the containers of one pod, that hold a set of devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Namespace of the pod; empty if only the checkpoint has the pod.
    pub(crate) namespace: String,
    /// Name of the pod; empty if only the checkpoint has the pod.
    pub(crate) pod: String,
    /// UID of the pod; empty if the checkpoint cannot be used.
    pub(crate) pod_uid: String,
    /// The containers that hold exactly the set: a single one, or plain init containers and the one that got their devices next.
    pub(crate) containers: Containers,
    /// That of them that PodResources lists: it is no plain init container.
    pub(crate) listed: Option<String>,
    /// All containers of the pod that hold our devices. Empty if the checkpoint cannot be used, as plain init containers would be
    /// missing.
    pub(crate) all: Containers,
}

impl Holder {
    /// Names of all containers of the pod that hold our devices; empty as [`Holder::all`].
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.all.keys().cloned().collect()
    }

    /// Whether other containers of the pod hold exactly the shares of `devices`, too: before or after it.
    pub(crate) fn are_shares_reused(&self, devices: &Devices) -> bool {
        let shares = devices.ids_of(Kind::Gpu);
        let with_shares = self.all.values().filter(|one| one.ids_of(Kind::Gpu) == shares);
        with_shares.count() > 1
    }
}

/// The container that holds the devices is not known. It may be known later.
#[derive(Debug, Error)]
pub(crate) enum HolderError {
    #[error("kubelet names no container that holds exactly these {0} devices")]
    Unheld(usize),
    #[error("kubelet's PodResources name no container that holds exactly these {0} devices, and {1}")]
    NotListed(usize, CheckpointError),
    #[error("kubelet says that {0} hold these devices: it is not known whose limits are meant")]
    Several(String),
    #[error("kubelet's PodResources give these devices to {0}, its checkpoint to others")]
    Disagree(String),
}

/// A pod in PodResources (namespace, name) and its containers that hold the set.
type Listed<'a> = (&'a str, &'a str, Containers);
/// A pod in the checkpoint (UID) and its containers that hold the set.
type Recorded<'a> = (&'a str, Containers);

/// Finds the holder of exactly `ids` of one kind.
pub(crate) fn find_holder(snapshot: &PodsSnapshot, kind: Kind, ids: &Ids) -> Result<Holder, HolderError> {
    match (listed_pod(snapshot, kind, ids)?, recorded_pod(snapshot, kind, ids)?) {
        (Some(listed), Some(recorded)) => agreed_holder(snapshot, listed, recorded),
        // A readable checkpoint has all containers that PodResources has.
        (Some((namespace, pod, _)), None) if snapshot.checkpoint_problem.is_none() => {
            Err(HolderError::Disagree(format!("{namespace}/{pod}")))
        }
        (Some((namespace, pod, containers)), None) => Ok(Holder {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            pod_uid: String::new(),
            listed: containers.keys().next_back().cloned(),
            containers,
            all: Containers::new(),
        }),
        (None, Some((uid, containers))) => {
            let (namespace, pod) = pod_name(snapshot, uid).unwrap_or_default();
            Ok(Holder {
                namespace,
                pod,
                pod_uid: uid.to_owned(),
                containers,
                listed: None,
                all: all_containers(snapshot, uid),
            })
        }
        (None, None) => match snapshot.checkpoint_problem.clone() {
            None => Err(HolderError::Unheld(ids.len())),
            Some(problem) => Err(HolderError::NotListed(ids.len(), problem)),
        },
    }
}

/// The pod in PodResources with containers that hold exactly the set.
fn listed_pod<'a>(
    snapshot: &'a PodsSnapshot,
    kind: Kind,
    ids: &Ids,
) -> Result<Option<Listed<'a>>, HolderError> {
    let pods = snapshot.listed.iter();
    let pods: Vec<Listed<'_>> = pods
        .map(|(namespace, pod, containers)| (&**namespace, &**pod, containers_with(containers, kind, ids)))
        .filter(|(.., containers)| !containers.is_empty())
        .collect();
    at_most_one(pods, |(namespace, pod, _)| format!("{namespace}/{pod}"))
}

/// The pod in the checkpoint with containers that hold exactly the set.
fn recorded_pod<'a>(
    snapshot: &'a PodsSnapshot,
    kind: Kind,
    ids: &Ids,
) -> Result<Option<Recorded<'a>>, HolderError> {
    let pods = snapshot.checkpoint.iter();
    let pods: Vec<Recorded<'_>> = pods
        .map(|(uid, containers)| (&**uid, containers_with(containers, kind, ids)))
        .filter(|(_, containers)| !containers.is_empty())
        .collect();
    at_most_one(pods, |(uid, _)| format!("the pod with UID {uid}"))
}

/// The containers that hold exactly `ids` of this kind.
fn containers_with(containers: &Containers, kind: Kind, ids: &Ids) -> Containers {
    let exact = containers.iter().filter(|(_, devices)| devices.ids_of(kind) == ids);
    exact.map(|(name, devices)| (name.clone(), devices.clone())).collect()
}

/// The only element of `pods`; `None` if `pods` is empty.
///
/// # Errors
/// There are several; the error has the `name` of each.
fn at_most_one<P>(pods: Vec<P>, name: impl Fn(&P) -> String) -> Result<Option<P>, HolderError> {
    if pods.len() > 1 {
        let names: Vec<String> = pods.iter().map(name).collect();
        return Err(HolderError::Several(names.join(" and ")));
    }
    Ok(pods.into_iter().next())
}

/// The holder in both sources.
///
/// # Errors
/// The sources differ, be it in another device of the containers: then they may be containers of different pods.
fn agreed_holder(
    snapshot: &PodsSnapshot,
    (namespace, pod, listed): Listed<'_>,
    (uid, recorded): Recorded<'_>,
) -> Result<Holder, HolderError> {
    let is_recorded = |(name, devices): (&String, &Devices)| recorded.get(name) == Some(devices);
    if !listed.iter().all(is_recorded) {
        return Err(HolderError::Disagree(format!("{namespace}/{pod}")));
    }
    Ok(Holder {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        pod_uid: uid.to_owned(),
        containers: recorded,
        listed: listed.into_keys().next_back(),
        all: all_containers(snapshot, uid),
    })
}

/// The containers of a pod that hold our devices.
fn all_containers(snapshot: &PodsSnapshot, uid: &str) -> Containers {
    snapshot.checkpoint.get(uid).cloned().unwrap_or_default()
}

/// Namespace and name of a pod by its UID: those of the listed pod with one of the same containers. `None` if there is no such
/// pod.
fn pod_name(snapshot: &PodsSnapshot, uid: &str) -> Option<(String, String)> {
    let others = snapshot.checkpoint.get(uid)?;
    let is_same = |name: &String, devices: &Devices| others.get(name) == Some(devices);
    let has_other = |containers: &BTreeMap<String, Devices>| {
        containers.iter().any(|(name, devices)| is_same(name, devices))
    };
    let mut pods = snapshot.listed.iter().filter(|(.., containers)| has_other(containers));
    let (namespace, pod, _) = pods.next()?;
    // A device belongs to one pod, so several matches mean that the sources differ.
    pods.next().is_none().then(|| (namespace.clone(), pod.clone()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn devices(shares: &[u32], chunks: u32) -> Devices {
        Devices {
            ids: [shares.iter().copied().collect(), (0..chunks).collect(), Ids::new(), Ids::new()],
            ..Devices::default()
        }
    }

    /// A container's name, shares and number of chunks.
    type AContainer<'a> = (&'a str, &'a [u32], u32);
    /// A pod's name, its containers in PodResources, and those in the checkpoint.
    type APod<'a> = (&'a str, &'a [AContainer<'a>], &'a [AContainer<'a>]);

    fn containers(of: &[AContainer<'_>]) -> Containers {
        of.iter().map(|(name, shares, chunks)| ((*name).to_owned(), devices(shares, *chunks))).collect()
    }

    /// A snapshot of these pods.
    fn snapshot(pods: &[APod<'_>]) -> PodsSnapshot {
        let mut snapshot = PodsSnapshot::default();
        for (name, listed, recorded) in pods {
            snapshot.listed.push(("ns".to_owned(), (*name).to_owned(), containers(listed)));
            snapshot.checkpoint.insert(format!("uid-{name}"), containers(recorded));
        }
        snapshot
    }

    fn find(snapshot: PodsSnapshot, shares: &[u32]) -> Result<(String, String, Vec<String>), String> {
        let found = find_holder(&snapshot, Kind::Gpu, &shares.iter().copied().collect());
        found
            .map(|holder| (holder.pod, holder.pod_uid, holder.containers.into_keys().collect()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_set_has_to_be_equal() {
        let pods: &[APod<'_>] =
            &[("a", &[("c", &[1], 2)], &[("c", &[1], 2)]), ("b", &[("c", &[1, 2], 2)], &[("c", &[1, 2], 2)])];
        assert_eq!(find(snapshot(pods), &[1]).unwrap().0, "a");
        assert_eq!(find(snapshot(pods), &[1, 2]).unwrap().0, "b");
        assert!(find(snapshot(pods), &[2]).unwrap_err().contains("no container"));
    }

    #[test]
    fn an_init_container_and_its_successor_are_one_holder() {
        let pods: &[APod<'_>] = &[("a", &[("c", &[1], 8)], &[("c", &[1], 8), ("init", &[1], 2)])];
        let found = find(snapshot(pods), &[1]).unwrap();
        assert_eq!(found, ("a".into(), "uid-a".into(), vec!["c".into(), "init".into()]));
    }

    #[test]
    fn an_init_container_with_devices_of_its_own_is_found_in_the_checkpoint() {
        let pods: &[APod<'_>] = &[("a", &[("c", &[1], 8)], &[("c", &[1], 8), ("init", &[1, 2], 2)])];
        let found = find(snapshot(pods), &[1, 2]).unwrap();
        assert_eq!(found, ("a".into(), "uid-a".into(), vec!["init".into()]));
        // Nothing of its pod is listed: then it has no name, and is known by its UID.
        let alone: &[APod<'_>] = &[("a", &[], &[("init", &[1, 2], 2)])];
        assert_eq!(find(snapshot(alone), &[1, 2]).unwrap().0, "");
    }

    #[test]
    fn doubt_is_refused() {
        let twice: &[APod<'_>] =
            &[("a", &[("c", &[1], 2)], &[("c", &[1], 2)]), ("b", &[("c", &[1], 2)], &[])];
        let said = find(snapshot(twice), &[1]).unwrap_err();
        assert!(said.contains("ns/a and ns/b"), "{said}");
        let recorded_twice: &[APod<'_>] =
            &[("a", &[("c", &[1], 2)], &[("c", &[1], 2)]), ("b", &[], &[("c", &[1], 2)])];
        assert!(find(snapshot(recorded_twice), &[1]).unwrap_err().contains("uid-b"));
        // PodResources say c, the checkpoint d; or nothing.
        for recorded in [&[("d", &[1_u32][..], 2)][..], &[]] {
            let said = find(snapshot(&[("a", &[("c", &[1], 2)], recorded)]), &[1]).unwrap_err();
            assert!(said.contains("its checkpoint to others"), "{said}");
        }
    }

    /// Containers of different pods may have the same names and shares: another device tells them apart.
    #[test]
    fn sources_that_differ_in_another_device_are_refused() {
        let other: &[APod<'_>] = &[("a", &[("c", &[1], 2)], &[("c", &[1], 3)])];
        let second: &[APod<'_>] =
            &[("a", &[("c", &[1], 2), ("d", &[1], 2)], &[("c", &[1], 2), ("d", &[1], 3)])];
        for pods in [other, second] {
            let said = find(snapshot(pods), &[1]).unwrap_err();
            assert!(said.contains("give these devices to ns/a, its checkpoint"), "{said}");
        }
    }

    #[test]
    fn a_recorded_pod_has_a_name_only_if_one_listed_pod_is_like_it() {
        let recorded: &[AContainer<'_>] = &[("c", &[1], 8), ("init", &[1, 2], 2)];
        let named = |pods: &[APod<'_>]| find(snapshot(pods), &[1, 2]).unwrap();
        let known = ("a".to_owned(), "uid-a".to_owned(), vec!["init".to_owned()]);
        let unknown = (String::new(), known.1.clone(), known.2.clone());
        let like: &[AContainer<'_>] = &[("c", &[1], 8)];
        assert_eq!(named(&[("a", like, recorded), ("b", &[("c", &[3], 8)], &[])]), known);
        assert_eq!(named(&[("a", like, recorded), ("b", like, &[])]), unknown);
        // A container of the same name with other devices is another pod's.
        assert_eq!(named(&[("a", &[("c", &[1], 7)], recorded)]), unknown);
    }

    #[test]
    fn without_a_checkpoint_only_what_is_listed_is_known() {
        let unread = || CheckpointError::NotRead(PathBuf::from("/c"));
        let mut listed = snapshot(&[("a", &[("c", &[1], 2)], &[])]);
        listed.checkpoint_problem = Some(unread());
        assert_eq!(find(listed, &[1]).unwrap(), ("a".into(), String::new(), vec!["c".into()]));
        let mut silent = snapshot(&[]);
        silent.checkpoint_problem = Some(unread());
        assert!(find(silent, &[1]).unwrap_err().contains("was not read"));
    }
}
