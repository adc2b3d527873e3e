//! Pods that the scheduler has sent to nodes, followed at the API server. A node publishes what its GPUs have left only after it
//! has granted a pod's shares. Until then the pod's place is taken all the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::{PoisonError, RwLock};

use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use vcuda_daemon::api_server::read_watch;
use vcuda_quota::pods::node_gpus::{NodeGpus, container_key};

use super::fit::{containers, left_beside};
use crate::admit::{Rules, Share};

/// Pods that have a node and have not ended.
const BOUND: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// A pod's containers with shares.
#[derive(Debug, Default, PartialEq, Eq)]
struct BoundPod {
    /// Those that run at the same time, by their keys.
    together: Vec<(u32, Share)>,
    /// Keys of init containers. The grant of one passes to a container that starts after it.
    alone: Vec<u32>,
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
                true => bound.alone.push(key),
                false => bound.together.push((key, container.share)),
            }
        }
        bound
    }

    /// Shares that the node has not granted yet.
    fn not_held(&self, held: &[u32]) -> impl Iterator<Item = Share> {
        let is_held = |key: &u32| held.contains(key);
        let mut waiting: Vec<Share> = Vec::new();
        waiting.extend(
            self.together
                .iter()
                .filter(|(key, _)| !is_held(key))
                .map(|(_, share)| *share),
        );
        let none_started = waiting.len() == self.together.len();
        waiting.sort_by_key(|share| (share.each.chunks, share.each.percents));
        if none_started && self.alone.iter().any(is_held) {
            waiting.pop();
        }
        waiting.into_iter()
    }
}

/// Pods by node, and there by namespace and name.
type ByNode = HashMap<String, HashMap<(String, String), BoundPod>>;

#[derive(Debug, Default)]
struct Known {
    by_node: ByNode,
    /// A list that is being read, and takes the place of the other at its end.
    listed: ByNode,
}

impl Known {
    fn apply(&mut self, event: &Event<Pod>, rules: &Rules) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => insert(&mut self.listed, pod, rules),
            Event::InitDone => self.by_node = std::mem::take(&mut self.listed),
            Event::Apply(pod) => insert(&mut self.by_node, pod, rules),
            Event::Delete(pod) => remove(&mut self.by_node, pod),
        }
    }
}

fn place(pod: &Pod) -> Option<(String, (String, String))> {
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

/// What is known of bound pods.
#[derive(Debug, Clone, Default)]
pub struct BoundPods(Arc<RwLock<Known>>);

impl BoundPods {
    /// Follows the bound pods of all nodes, until the runtime ends. While the API server is away, what it said last holds.
    #[must_use]
    pub fn follow(client: Client, rules: Rules) -> Self {
        let api: Api<Pod> = Api::all(client);
        let pods = Self::default();
        let known = Arc::clone(&pods.0);
        tokio::spawn(async move {
            let events = watcher(api, watcher::Config::default().fields(BOUND))
                .default_backoff()
                .inspect_ok(|event| {
                    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
                    known.apply(event, &rules);
                });
            read_watch(events, "bound pods are taken as they were seen last", || ()).await;
        });
        pods
    }

    /// What a node's GPUs have left for one more pod: what the node publishes, less what it was sent and has not granted.
    #[must_use]
    pub fn left(&self, node: &str, gpus: NodeGpus) -> NodeGpus {
        let Some(held) = &gpus.held else {
            return gpus;
        };
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(pods) = known.by_node.get(node) else {
            return gpus;
        };
        let sent: Vec<Share> = pods.values().flat_map(|pod| pod.not_held(held)).collect();
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
    fn left(pods: &BoundPods, node: &str, held: Option<&[(&str, &str)]>) -> (u32, u32) {
        let gpu = FreeGpu {
            mem: 300,
            of: 320,
            cores: 100,
            shares: 16,
            ..FreeGpu::default()
        };
        let keys = |held: &[(&str, &str)]| {
            held.iter()
                .map(|(pod, container)| container_key("default", pod, container))
                .collect()
        };
        let gpus = NodeGpus {
            gpus: vec![gpu],
            held: held.map(keys),
        };
        let left = pods.left(node, gpus);
        (left.gpus[0].mem, left.gpus[0].shares)
    }

    #[test]
    fn a_pod_counts_from_its_binding_to_its_end_and_never_twice() {
        let both = pod("a", "n", &[container("x", 100), container("y", 50)], &[]);
        let pods = known(&[Event::Apply(both.clone())]);
        assert_eq!(left(&pods, "n", Some(&[])), (150, 14));
        assert_eq!(left(&pods, "other", Some(&[])), (300, 16));
        // The node has granted one of them, then the other.
        assert_eq!(left(&pods, "n", Some(&[("a", "x")])), (250, 15));
        assert_eq!(left(&pods, "n", Some(&[("a", "x"), ("a", "y")])), (300, 16));
        // A plugin that does not say what it has granted.
        assert_eq!(left(&pods, "n", None), (300, 16));
        let pods = known(&[Event::Apply(both.clone()), Event::Delete(both)]);
        assert_eq!(left(&pods, "n", Some(&[])), (300, 16));
        assert!(pods.0.read().unwrap().by_node.is_empty());
    }

    #[test]
    fn the_grant_of_an_init_container_passes_on() {
        let heir = pod(
            "a",
            "n",
            &[container("x", 100), container("y", 50)],
            &[container("i", 100)],
        );
        let pods = known(&[Event::Apply(heir)]);
        assert_eq!(left(&pods, "n", Some(&[])), (150, 14));
        assert_eq!(left(&pods, "n", Some(&[("a", "i")])), (250, 15));
        assert_eq!(left(&pods, "n", Some(&[("a", "i"), ("a", "x")])), (250, 15));
    }

    #[test]
    fn a_new_list_takes_the_place_of_the_old_at_its_end() {
        let one = |name: &str| pod(name, "n", &[container("x", 100)], &[]);
        let begun = [
            Event::Apply(one("a")),
            Event::Init,
            Event::InitApply(one("b")),
            Event::InitApply(one("c")),
        ];
        assert_eq!(left(&known(&begun), "n", Some(&[])), (200, 15));
        let ended: Vec<Event<Pod>> = begun.into_iter().chain([Event::InitDone]).collect();
        assert_eq!(left(&known(&ended), "n", Some(&[])), (100, 14));
        // Without a share, or without a node.
        let plain = pod("p", "n", &[json!({"name": "x"})], &[]);
        let mut unbound = one("u");
        unbound.spec.as_mut().unwrap().node_name = None;
        let pods = known(&[Event::Apply(plain), Event::Apply(unbound)]);
        assert!(pods.0.read().unwrap().by_node.is_empty());
    }
}
