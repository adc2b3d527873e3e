//! The container that starts, by kubelet's calls. Before a start kubelet calls once for each resource of the container, in any
//! order, with the IDs of that resource alone (pkg/kubelet/cm/devicemanager/manager.go, GetDeviceRunContainerOptions). It starts the
//! containers of a pod one by one (pkg/kubelet/kuberuntime/kuberuntime_manager.go, SyncPod).
//!
//! Later containers of the pod get devices of a plain init container again (manager.go, Allocate: devicesToReuse), so that one call
//! may fit several. The last calls of all kinds together fit the one that starts: at its last call at the latest.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::ids::{Ids, Kind};
use crate::pods::{Devices, Holder, PodsSnapshot};

/// IDs of kubelet's last call for each [`Kind`], by the pod's UID.
#[derive(Debug, Default)]
pub(super) struct Starts(Mutex<HashMap<String, [Ids; 4]>>);

impl Starts {
    /// Notes a call with `ids`, which `holder` has. Returns the container that starts, with its name and devices; `None` if a later
    /// call tells it. Of containers with the same devices it is the one that lasts, as these have equal amounts.
    pub(super) fn starting<'a>(
        &self,
        kind: Kind,
        ids: &Ids,
        holder: &'a Holder,
        snapshot: &PodsSnapshot,
    ) -> Option<(&'a str, &'a Devices)> {
        let called = self.note(kind, ids, holder, snapshot);
        let is_called = |devices: &Devices| {
            Kind::ALL.into_iter().all(|kind| {
                let (called, own) = (kind.select(&called), devices.ids_of(kind));
                called.is_empty() || own.is_empty() || called == own
            })
        };
        let fitting = || holder.containers.iter();
        the_one(holder, fitting())
            .or_else(|| the_one(holder, fitting().filter(|(_, devices)| is_called(devices))))
    }

    /// Notes a call. Returns the last calls of the pod; only this one if kubelet does not tell the pod's UID, as it then tells of no
    /// plain init containers either.
    fn note(&self, kind: Kind, ids: &Ids, holder: &Holder, snapshot: &PodsSnapshot) -> [Ids; 4] {
        let mut calls = self.0.lock();
        calls.retain(|uid, _| snapshot.checkpoint.contains_key(uid));
        let mut called = calls.remove(&holder.pod_uid).unwrap_or_default();
        kind.select_mut(&mut called).clone_from(ids);
        if !holder.pod_uid.is_empty() {
            calls.insert(holder.pod_uid.clone(), called.clone());
        }
        called
    }
}

/// The only one of `fitting`, or of those with the same devices the one that PodResources lists; `None` if they differ.
fn the_one<'a>(
    holder: &Holder,
    mut fitting: impl Iterator<Item = (&'a String, &'a Devices)>,
) -> Option<(&'a str, &'a Devices)> {
    let first = fitting.next()?;
    let (name, devices) = fitting.try_fold(first, |before, one| {
        let is_listed = Some(before.0) == holder.listed.as_ref();
        (before.1 == one.1).then_some(if is_listed { before } else { one })
    })?;
    Some((name, devices))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::{Containers, find_holder};

    /// Numbers from 0: shares, chunks and percents.
    type Counts = [u32; 3];

    fn devices([shares, chunks, percents]: Counts) -> Devices {
        let ids = [shares, chunks, percents, 0].map(|count| (0..count).collect());
        Devices { ids, ..Devices::default() }
    }

    /// A pod in kubelet's answers. Only `c` is no plain init container.
    fn snapshot(containers: &[(&str, Counts)]) -> PodsSnapshot {
        let all: Containers =
            containers.iter().map(|(name, counts)| ((*name).to_owned(), devices(*counts))).collect();
        let mut listed = all.clone();
        listed.retain(|name, _| name == "c");
        PodsSnapshot {
            listed: vec![("ns".to_owned(), "pod".to_owned(), listed)],
            checkpoint: [("uid".to_owned(), all)].into(),
            checkpoint_problem: None,
        }
    }

    /// Kubelet's calls before a start, in this order. Returns what each tells.
    fn start(starts: &Starts, snapshot: &PodsSnapshot, name: &str, order: &[Kind]) -> Vec<Option<String>> {
        let own = &snapshot.checkpoint["uid"][name];
        let call = |kind: &Kind| {
            let ids = own.ids_of(*kind);
            let holder = find_holder(snapshot, *kind, ids).unwrap();
            let starting = starts.starting(*kind, ids, &holder, snapshot);
            starting.map(|(name, _)| name.to_owned())
        };
        order.iter().map(call).collect()
    }

    const ORDERS: [[Kind; 3]; 6] = {
        use Kind::{Cores, Gpu, Memory};
        [
            [Gpu, Memory, Cores],
            [Gpu, Cores, Memory],
            [Memory, Gpu, Cores],
            [Memory, Cores, Gpu],
            [Cores, Gpu, Memory],
            [Cores, Memory, Gpu],
        ]
    };

    #[test]
    fn the_last_call_tells_the_container_in_every_order_of_calls_and_starts() {
        // No single call tells `second` from both others.
        let pod = snapshot(&[("first", [1, 8, 10]), ("second", [1, 8, 20]), ("c", [1, 4, 20])]);
        let starts = Starts::default();
        for before in ["first", "second", "c"] {
            for name in ["first", "second", "c"] {
                for order in ORDERS {
                    start(&starts, &pod, before, &order);
                    let told = start(&starts, &pod, name, &order);
                    assert_eq!(told[2].as_deref(), Some(name), "after {before}, {order:?}: {told:?}");
                    // As after the plugin's restart.
                    let told = start(&Starts::default(), &pod, name, &order);
                    assert_eq!(told[2].as_deref(), Some(name), "{order:?}: {told:?}");
                }
            }
        }
    }

    /// A start that failed in its middle is followed by one with another order, or of another container.
    #[test]
    fn calls_of_a_start_that_failed_mislead_no_later_one() {
        let pod = snapshot(&[("first", [1, 8, 10]), ("second", [1, 8, 20]), ("c", [1, 4, 20])]);
        for failed in ["first", "second", "c"] {
            for calls in ORDERS.iter().flat_map(|order| [&order[..1], &order[..2]]) {
                for (name, order) in ["first", "second", "c"].iter().zip(ORDERS.iter().cycle()) {
                    let starts = Starts::default();
                    start(&starts, &pod, "second", &ORDERS[0]);
                    start(&starts, &pod, failed, calls);
                    let told = start(&starts, &pod, name, order);
                    assert_eq!(told[2].as_deref(), Some(*name), "{failed} {calls:?}, then {order:?}");
                }
            }
        }
    }

    /// Also after calls for another one.
    #[test]
    fn a_container_with_devices_of_its_own_is_told_by_its_first_call() {
        let pod = snapshot(&[("c", [2, 4, 20]), ("init", [1, 8, 30])]);
        let starts = Starts::default();
        for order in ORDERS {
            for name in ["c", "init"] {
                let told = start(&starts, &pod, name, &order);
                assert_eq!(told, vec![Some(name.to_owned()); 3], "{order:?}");
            }
        }
    }

    #[test]
    fn of_containers_with_the_same_devices_it_is_the_one_that_lasts() {
        let pod = snapshot(&[("a", [1, 4, 20]), ("c", [1, 4, 20]), ("z", [1, 4, 20])]);
        for name in ["a", "c", "z"] {
            let told = start(&Starts::default(), &pod, name, &ORDERS[0]);
            assert_eq!(told, vec![Some("c".to_owned()); 3]);
        }
    }

    #[test]
    fn pods_that_are_gone_are_forgotten() {
        let pod = snapshot(&[("c", [1, 4, 20])]);
        let starts = Starts::default();
        start(&starts, &pod, "c", &ORDERS[0]);
        assert_eq!(starts.0.lock().len(), 1);
        let holder = Holder::default();
        starts.starting(Kind::Gpu, &Ids::from([1]), &holder, &PodsSnapshot::default());
        assert!(starts.0.lock().is_empty());
    }
}
