//! Holder of given devices: proven by equal sets, refused in doubt.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::{CheckpointError, Containers, Devices, Told};
use crate::ids::{Ids, Kind};

/// The container, or the containers of one pod, that hold a set of devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// Empty where only the checkpoint knows of the pod.
    pub namespace: String,
    /// Likewise.
    pub pod: String,
    /// Empty where the checkpoint tells nothing.
    pub pod_uid: String,
    /// The containers that hold exactly the set: one, or an init container and the containers to which kubelet passed
    /// its devices.
    pub containers: Containers,
    /// Names of all containers of the pod that hold devices of ours. Empty where the checkpoint tells nothing: plain init
    /// containers would be missing.
    pub names: BTreeSet<String>,
}

/// The container that holds these devices is not known. A later look may tell.
#[derive(Debug, Error)]
pub enum HolderError {
    /// No container holds them.
    #[error("kubelet names no container that holds exactly these {0} devices")]
    Unheld(usize),
    /// No container in PodResources holds them, and the checkpoint cannot be asked.
    #[error("kubelet's PodResources name no container that holds exactly these {0} devices, and {1}")]
    NotListed(usize, CheckpointError),
    /// More than one pod.
    #[error("kubelet says that {0} hold these devices: it is not known whose limits are meant")]
    Several(String),
    /// PodResources and checkpoint do not agree.
    #[error("kubelet's PodResources give these devices to {0}, its checkpoint to others")]
    Disagree(String),
}

/// A pod and its containers with the set, as PodResources have it: namespace, name.
type Listed<'a> = (&'a str, &'a str, Containers);
/// The same as the checkpoint has it: UID.
type Recorded<'a> = (&'a str, Containers);

/// Holder of exactly `ids` of one kind.
///
/// # Errors
/// In any doubt: see [`HolderError`].
pub fn holder(told: &Told, kind: Kind, ids: &Ids) -> Result<Holder, HolderError> {
    match (listed(told, kind, ids)?, recorded(told, kind, ids)?) {
        (Some(listed), Some(recorded)) => agreed(told, listed, recorded),
        // A checkpoint that can be read has all containers that PodResources has.
        (Some((namespace, pod, _)), None) if told.checkpoint_problem.is_none() => {
            Err(HolderError::Disagree(format!("{namespace}/{pod}")))
        }
        (Some((namespace, pod, containers)), None) => Ok(Holder {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            pod_uid: String::new(),
            containers,
            names: BTreeSet::new(),
        }),
        (None, Some((uid, containers))) => {
            let (namespace, pod) = name_of(told, uid).unwrap_or_default();
            Ok(Holder {
                namespace,
                pod,
                pod_uid: uid.to_owned(),
                containers,
                names: names_of(told, uid),
            })
        }
        (None, None) => match told.checkpoint_problem.clone() {
            None => Err(HolderError::Unheld(ids.len())),
            Some(problem) => Err(HolderError::NotListed(ids.len(), problem)),
        },
    }
}

/// The one pod in PodResources with containers that hold exactly the set.
fn listed<'a>(told: &'a Told, kind: Kind, ids: &Ids) -> Result<Option<Listed<'a>>, HolderError> {
    let pods = told.listed.iter();
    let pods: Vec<Listed<'_>> = pods
        .map(|(namespace, pod, containers)| (&**namespace, &**pod, matching(containers, kind, ids)))
        .filter(|(.., containers)| !containers.is_empty())
        .collect();
    only(pods, |(namespace, pod, _)| format!("{namespace}/{pod}"))
}

/// The one pod in the checkpoint with containers that hold exactly the set.
fn recorded<'a>(told: &'a Told, kind: Kind, ids: &Ids) -> Result<Option<Recorded<'a>>, HolderError> {
    let pods = told.checkpoint.iter();
    let pods: Vec<Recorded<'_>> = pods
        .map(|(uid, containers)| (&**uid, matching(containers, kind, ids)))
        .filter(|(_, containers)| !containers.is_empty())
        .collect();
    only(pods, |(uid, _)| format!("the pod with UID {uid}"))
}

/// The containers that hold exactly `ids` of this kind.
fn matching(containers: &Containers, kind: Kind, ids: &Ids) -> Containers {
    let exact = containers.iter().filter(|(_, devices)| devices.of(kind) == ids);
    exact
        .map(|(name, devices)| (name.clone(), devices.clone()))
        .collect()
}

/// The only pod, if there is one.
///
/// # Errors
/// There are several; `name` says which.
fn only<P>(pods: Vec<P>, name: impl Fn(&P) -> String) -> Result<Option<P>, HolderError> {
    if pods.len() > 1 {
        let names: Vec<String> = pods.iter().map(name).collect();
        return Err(HolderError::Several(names.join(" and ")));
    }
    Ok(pods.into_iter().next())
}

/// The holder that both know.
///
/// # Errors
/// They differ, also in what else the containers hold: the same set under the same name in two pods is not one pod.
fn agreed(
    told: &Told,
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
        names: names_of(told, uid),
    })
}

/// The containers of a pod that hold devices of ours.
fn names_of(told: &Told, uid: &str) -> BTreeSet<String> {
    let containers = told.checkpoint.get(uid);
    containers
        .into_iter()
        .flat_map(Containers::keys)
        .cloned()
        .collect()
}

/// The name of a pod of which only the checkpoint knows a container: that of the listed pod with one of its others.
fn name_of(told: &Told, uid: &str) -> Option<(String, String)> {
    let others = told.checkpoint.get(uid)?;
    let is_same = |name: &String, devices: &Devices| others.get(name) == Some(devices);
    let has_other = |containers: &BTreeMap<String, Devices>| {
        containers.iter().any(|(name, devices)| is_same(name, devices))
    };
    let mut pods = told
        .listed
        .iter()
        .filter(|(.., containers)| has_other(containers));
    let (namespace, pod, _) = pods.next()?;
    // Devices are in one pod only, so there is one; if not, it has no name.
    pods.next().is_none().then(|| (namespace.clone(), pod.clone()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn devices(shares: &[u32], chunks: u32) -> Devices {
        Devices {
            ids: [
                shares.iter().copied().collect(),
                (0..chunks).collect(),
                Ids::new(),
            ],
            ..Devices::default()
        }
    }

    /// A container's name, shares and number of chunks.
    type AContainer<'a> = (&'a str, &'a [u32], u32);
    /// A pod's name, what is listed of it, and what is recorded.
    type APod<'a> = (&'a str, &'a [AContainer<'a>], &'a [AContainer<'a>]);

    fn containers(of: &[AContainer<'_>]) -> Containers {
        of.iter()
            .map(|(name, shares, chunks)| ((*name).to_owned(), devices(shares, *chunks)))
            .collect()
    }

    /// A pod that PodResources know by `listed` and the checkpoint by `recorded`.
    fn told(pods: &[APod<'_>]) -> Told {
        let mut told = Told::default();
        for (name, listed, recorded) in pods {
            told.listed
                .push(("ns".to_owned(), (*name).to_owned(), containers(listed)));
            told.checkpoint
                .insert(format!("uid-{name}"), containers(recorded));
        }
        told
    }

    fn who(told: Told, shares: &[u32]) -> Result<(String, String, Vec<String>), String> {
        let found = holder(&told, Kind::Gpu, &shares.iter().copied().collect());
        found
            .map(|holder| {
                (
                    holder.pod,
                    holder.pod_uid,
                    holder.containers.into_keys().collect(),
                )
            })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_set_has_to_be_equal() {
        let pods: &[APod<'_>] = &[
            ("a", &[("c", &[1], 2)], &[("c", &[1], 2)]),
            ("b", &[("c", &[1, 2], 2)], &[("c", &[1, 2], 2)]),
        ];
        assert_eq!(who(told(pods), &[1]).unwrap().0, "a");
        assert_eq!(who(told(pods), &[1, 2]).unwrap().0, "b");
        assert!(who(told(pods), &[2]).unwrap_err().contains("no container"));
    }

    #[test]
    fn an_init_container_and_its_heir_are_one_holder() {
        let pods: &[APod<'_>] = &[("a", &[("c", &[1], 8)], &[("c", &[1], 8), ("init", &[1], 2)])];
        let found = who(told(pods), &[1]).unwrap();
        assert_eq!(
            found,
            ("a".into(), "uid-a".into(), vec!["c".into(), "init".into()])
        );
    }

    #[test]
    fn an_init_container_with_devices_of_its_own_is_found_in_the_checkpoint() {
        let pods: &[APod<'_>] = &[("a", &[("c", &[1], 8)], &[("c", &[1], 8), ("init", &[1, 2], 2)])];
        let found = who(told(pods), &[1, 2]).unwrap();
        assert_eq!(found, ("a".into(), "uid-a".into(), vec!["init".into()]));
        // Nothing of its pod is listed: then it has no name, and is known by its UID.
        let alone: &[APod<'_>] = &[("a", &[], &[("init", &[1, 2], 2)])];
        assert_eq!(who(told(alone), &[1, 2]).unwrap().0, "");
    }

    #[test]
    fn doubt_is_refused() {
        let twice: &[APod<'_>] = &[
            ("a", &[("c", &[1], 2)], &[("c", &[1], 2)]),
            ("b", &[("c", &[1], 2)], &[]),
        ];
        let said = who(told(twice), &[1]).unwrap_err();
        assert!(said.contains("ns/a and ns/b"), "{said}");
        let recorded_twice: &[APod<'_>] = &[
            ("a", &[("c", &[1], 2)], &[("c", &[1], 2)]),
            ("b", &[], &[("c", &[1], 2)]),
        ];
        assert!(who(told(recorded_twice), &[1]).unwrap_err().contains("uid-b"));
        // PodResources say c, the checkpoint d; or nothing.
        for recorded in [&[("d", &[1_u32][..], 2)][..], &[]] {
            let said = who(told(&[("a", &[("c", &[1], 2)], recorded)]), &[1]).unwrap_err();
            assert!(said.contains("its checkpoint to others"), "{said}");
        }
    }

    #[test]
    fn without_a_checkpoint_only_what_is_listed_is_known() {
        let unread = || CheckpointError::NotRead(PathBuf::from("/c"));
        let mut listed = told(&[("a", &[("c", &[1], 2)], &[])]);
        listed.checkpoint_problem = Some(unread());
        assert_eq!(
            who(listed, &[1]).unwrap(),
            ("a".into(), String::new(), vec!["c".into()])
        );
        let mut silent = told(&[]);
        silent.checkpoint_problem = Some(unread());
        assert!(who(silent, &[1]).unwrap_err().contains("was not read"));
    }
}
