//! Pods that the scheduler has sent to nodes, followed at the API server. A node publishes what its GPUs have left only after it
//! has granted a pod's shares. Until then the pod's place is taken all the same.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::{PoisonError, RwLock};

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::time::Instant;
use vcuda_daemon::api_server::read_watch;
use vcuda_quota::pods::node_gpus::{NodeGpus, container_key};

use super::fit::{containers, left_beside};
use super::offers::{Offers, PodKey};
use crate::admit::{Rules, Share};

/// Pods that have a node and have not ended.
const BOUND: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// A pod's containers with shares.
#[derive(Debug, Default, PartialEq, Eq)]
struct BoundPod {
    /// Those that run at the same time, by their keys.
    together: Vec<(u32, Share)>,
    /// Init containers, by their keys. The grant of one ends when a container starts after it.
    alone: Vec<(u32, Share)>,
}

impl BoundPod {
    fn of(pod: &Pod, rules: &Rules) -> Self {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let (namespace, own) = (name(&pod.metadata.namespace), name(&pod.metadata.name));
        let mut bound = Self::default();
        let value = serde_json::to_value(pod).unwrap_or_default();
        for container in containers(&value, rules) {
            let key = container_key(&namespace, &own, &container.name);
            match container.is_alone {
                true => bound.alone.push((key, container.share)),
                false => bound.together.push((key, container.share)),
            }
        }
        bound
    }

    /// Shares that the node has not granted yet.
    fn not_held(&self, held: &[u32]) -> impl Iterator<Item = Share> {
        let is_held = |key: &u32| held.contains(key);
        let mut waiting: Vec<Share> = Vec::new();
        waiting.extend(self.together.iter().filter(|(key, _)| !is_held(key)).map(|(_, share)| *share));
        let none_started = waiting.len() == self.together.len();
        waiting.sort_by_key(|share| (share.each.chunks, share.each.percents));
        // What an init container holds is the largest's afterwards, if it is enough.
        let is_enough = |(key, own): &(u32, Share)| {
            let largest = waiting.last().filter(|_| is_held(key));
            largest.is_some_and(|share| {
                own.each.chunks >= share.each.chunks && own.each.percents >= share.each.percents
            })
        };
        if none_started && self.alone.iter().any(is_enough) {
            waiting.pop();
        }
        waiting.into_iter()
    }
}

type ByNode = HashMap<String, HashMap<PodKey, BoundPod>>;

#[derive(Debug, Default)]
struct Known {
    /// Whether the API server shows where pods were bound. If not, nothing is known of any pod.
    is_followed: bool,
    /// Pods of which it does not show that yet.
    offers: Offers,
    by_node: ByNode,
    /// A list that is being read, and takes the place of the other at its end.
    listed: ByNode,
}

impl Known {
    fn apply(&mut self, event: &Event<Pod>, rules: &Rules) {
        if let Event::InitApply(pod) | Event::Apply(pod) = event
            && let Some((_, key)) = place(pod)
        {
            self.offers.close(&key);
        }
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => insert(&mut self.listed, pod, rules),
            Event::InitDone => self.by_node = std::mem::take(&mut self.listed),
            Event::Apply(pod) => insert(&mut self.by_node, pod, rules),
            Event::Delete(pod) => remove(&mut self.by_node, pod),
        }
    }
}

fn place(pod: &Pod) -> Option<(String, PodKey)> {
    let node = pod.spec.as_ref()?.node_name.clone()?;
    let metadata = &pod.metadata;
    Some((node, (metadata.namespace.clone()?, metadata.name.clone()?)))
}

fn insert(pods: &mut ByNode, pod: &Pod, rules: &Rules) {
    let bound = BoundPod::of(pod, rules);
    if let Some((node, key)) = place(pod).filter(|_| !bound.together.is_empty()) {
        pods.entry(node).or_default().insert(key, bound);
    }
}

fn remove(pods: &mut ByNode, pod: &Pod) {
    let Some((node, key)) = place(pod) else { return };
    if let Some(of_node) = pods.get_mut(&node) {
        of_node.remove(&key);
        if of_node.is_empty() {
            pods.remove(&node);
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct BoundPods(Arc<RwLock<Known>>);

impl BoundPods {
    /// Follows the bound pods of all nodes, until the runtime ends. While the API server is away, what it said last holds.
    pub(crate) fn follow(client: Client, rules: Rules) -> Self {
        let api: Api<Pod> = Api::all(client);
        let pods = Self::default();
        let known = Arc::clone(&pods.0);
        known.write().unwrap_or_else(PoisonError::into_inner).is_followed = true;
        tokio::spawn(async move {
            let events = watcher(api, watcher::Config::default().fields(BOUND)).default_backoff().inspect_ok(
                |event| {
                    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
                    known.apply(event, &rules);
                },
            );
            read_watch(events, "bound pods are taken as they were seen last", || ()).await;
        });
        pods
    }

    /// Notes that the scheduler may send a pod with these shares to any of these nodes.
    pub(super) fn offer(&self, pod: PodKey, nodes: HashSet<String>, shares: Vec<Share>, now: Instant) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.is_followed && !shares.is_empty() {
            known.offers.note(pod, nodes, shares, now);
        }
    }

    /// What a node's GPUs have left: what the node publishes, less what it was sent and has not granted.
    pub(super) fn left(&self, node: &str, gpus: NodeGpus) -> NodeGpus {
        self.left_beside_open(node, gpus, |_| Vec::new())
    }

    /// What a node's GPUs have left for sure for `pod`: [`Self::left`], less what other pods may still be sent there.
    pub(super) fn left_for(&self, pod: &PodKey, node: &str, gpus: NodeGpus, now: Instant) -> NodeGpus {
        self.left_beside_open(node, gpus, |offers| offers.others(pod, node, now).collect())
    }

    fn left_beside_open(
        &self,
        node: &str,
        gpus: NodeGpus,
        open: impl FnOnce(&Offers) -> Vec<Share>,
    ) -> NodeGpus {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut sent = open(&known.offers);
        let pods = known.by_node.get(node).into_iter().flatten();
        sent.extend(pods.flat_map(|(_, pod)| pod.not_held(&gpus.held)));
        left_beside(sent, gpus)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use vcuda_quota::pods::node_gpus::FreeGpu;

    use super::*;

    fn container(name: &str, chunks: u32) -> Value {
        json!({"name": name, "resources": {"limits": {"vcuda.io/gpu": "1", "vcuda.io/memory": chunks.to_string(), "vcuda.io/cores": "10"}}})
    }

    fn pod(name: &str, node: &str, containers: &[Value], init: &[Value]) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": containers, "initContainers": init},
        }))
        .unwrap()
    }

    fn known(events: &[Event<Pod>]) -> BoundPods {
        let pods = BoundPods::default();
        for event in events {
            pods.0.write().unwrap().apply(event, &Rules::default());
        }
        pods
    }

    /// Chunks and shares that the one GPU of a node has left, if the node has granted the shares of these containers.
    fn left(pods: &BoundPods, node: &str, held: &[(&str, &str)]) -> (u32, u32) {
        let gpu = FreeGpu { mem: 300, of: 320, cores: 100, shares: 16, ..FreeGpu::default() };
        let key = |(pod, container): &(&str, &str)| container_key("default", pod, container);
        let gpus = NodeGpus { gpus: vec![gpu], held: held.iter().map(key).collect() };
        let left = pods.left(node, gpus);
        (left.gpus[0].mem, left.gpus[0].shares)
    }

    /// As [`left`] of a node that has granted nothing, for sure for a pod.
    fn left_for(pods: &BoundPods, pod: &str, node: &str, now: Instant) -> u32 {
        let gpu = FreeGpu { mem: 300, cores: 100, shares: 16, ..FreeGpu::default() };
        let gpus = NodeGpus { gpus: vec![gpu], held: Vec::new() };
        let key = ("default".to_owned(), pod.to_owned());
        pods.left_for(&key, node, gpus, now).gpus[0].mem
    }

    fn offer(pods: &BoundPods, pod: &Pod, nodes: &[&str], now: Instant) {
        let key = ("default".to_owned(), pod.metadata.name.clone().unwrap());
        let shares = BoundPod::of(pod, &Rules::default()).together;
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        pods.offer(key, nodes, shares.into_iter().map(|(_, share)| share).collect(), now);
    }

    #[test]
    fn a_pod_counts_on_every_node_that_it_was_offered_until_its_own_is_known() {
        let now = Instant::now();
        let mut first = pod("a", "n", &[container("x", 100)], &[]);
        let pods = known(&[]);
        offer(&pods, &first, &["n", "m"], now);
        assert_eq!(left_for(&pods, "b", "n", now), 300, "no API server shows bindings");
        pods.0.write().unwrap().is_followed = true;
        offer(&pods, &first, &["n", "m"], now);
        let for_next = |now| ["n", "m", "o"].map(|node| left_for(&pods, "b", node, now));
        assert_eq!(for_next(now), [200, 200, 300]);
        // Its own question again, and what is certain.
        assert_eq!(left_for(&pods, "a", "n", now), 300);
        assert_eq!(left(&pods, "n", &[]), (300, 16));
        // A later answer takes the place of the former.
        offer(&pods, &first, &["m"], now);
        assert_eq!(for_next(now), [300, 200, 300]);
        offer(&pods, &first, &["n", "m"], now);
        pods.0.write().unwrap().apply(&Event::Apply(first.clone()), &Rules::default());
        assert_eq!(for_next(now), [200, 300, 300]);
        // Refused everywhere; never bound.
        first.metadata.name = Some("c".to_owned());
        offer(&pods, &first, &["m"], now);
        offer(&pods, &first, &[], now);
        assert_eq!(for_next(now), [200, 300, 300]);
        offer(&pods, &first, &["m"], now);
        assert_eq!(for_next(now + std::time::Duration::from_secs(6)), [200, 300, 300]);
    }

    #[test]
    fn a_pod_counts_from_its_binding_to_its_end_and_never_twice() {
        let both = pod("a", "n", &[container("x", 100), container("y", 50)], &[]);
        let pods = known(&[Event::Apply(both.clone())]);
        assert_eq!(left(&pods, "n", &[]), (150, 14));
        assert_eq!(left(&pods, "other", &[]), (300, 16));
        // The node has granted one of them, then the other.
        assert_eq!(left(&pods, "n", &[("a", "x")]), (250, 15));
        assert_eq!(left(&pods, "n", &[("a", "x"), ("a", "y")]), (300, 16));
        let pods = known(&[Event::Apply(both.clone()), Event::Delete(both)]);
        assert_eq!(left(&pods, "n", &[]), (300, 16));
        assert!(pods.0.read().unwrap().by_node.is_empty());
    }

    #[test]
    fn what_an_init_container_holds_is_counted_for_the_container_that_gets_it_next() {
        let heir = pod("a", "n", &[container("x", 100), container("y", 50)], &[container("i", 100)]);
        let pods = known(&[Event::Apply(heir)]);
        assert_eq!(left(&pods, "n", &[]), (150, 14));
        assert_eq!(left(&pods, "n", &[("a", "i")]), (250, 15));
        assert_eq!(left(&pods, "n", &[("a", "i"), ("a", "x")]), (250, 15));
        // Too small for either.
        let small = pod("a", "n", &[container("x", 100)], &[container("i", 99)]);
        let pods = known(&[Event::Apply(small)]);
        assert_eq!(left(&pods, "n", &[("a", "i")]), (200, 15));
    }

    #[test]
    fn a_new_list_takes_the_place_of_the_old_at_its_end() {
        let one = |name: &str| pod(name, "n", &[container("x", 100)], &[]);
        let begun =
            [Event::Apply(one("a")), Event::Init, Event::InitApply(one("b")), Event::InitApply(one("c"))];
        assert_eq!(left(&known(&begun), "n", &[]), (200, 15));
        let ended: Vec<Event<Pod>> = begun.into_iter().chain([Event::InitDone]).collect();
        assert_eq!(left(&known(&ended), "n", &[]), (100, 14));
        // Without a share, or without a node.
        let plain = pod("p", "n", &[json!({"name": "x"})], &[]);
        let mut unbound = one("u");
        unbound.spec.as_mut().unwrap().node_name = None;
        let pods = known(&[Event::Apply(plain), Event::Apply(unbound)]);
        assert!(pods.0.read().unwrap().by_node.is_empty());
    }
}
