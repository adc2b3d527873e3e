//! GPUs and shares of all nodes, from the managers' metrics.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Serialize;
use vcuda_daemon::life::RunError;

use super::claimed::{self, Claimed};
use super::metrics::{Sample, parse};
use super::refused;

const PORT: u16 = 9436;
/// Managers that are asked at the same time.
const AT_ONCE: usize = 16;

/// A share of a container on a GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Share {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
    pub(super) node: String,
    pub(super) gpu_uuid: String,
    pub(super) memory_limit_bytes: u64,
    pub(super) memory_used_bytes: u64,
    /// Part of the used memory that is in host memory.
    pub(super) memory_suspended_bytes: u64,
    /// `running`, `suspending`, `suspended`, `resuming` or `failed`; empty: a manager of an older release.
    pub(super) state: String,
    pub(super) cores_limit_percent: f64,
    pub(super) cores_used_percent: f64,
    /// Whether the driver itself limits the memory of all its processes, too.
    pub(super) held_by_driver: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Gpu {
    pub(super) node: String,
    pub(super) uuid: String,
    pub(super) name: String,
    pub(super) is_healthy: bool,
    /// Whether an administrator keeps new shares from it.
    pub(super) is_cordoned: bool,
    pub(super) memory_total_bytes: u64,
    pub(super) memory_used_bytes: u64,
    pub(super) memory_granted_bytes: u64,
    pub(super) memory_free_bytes: u64,
    pub(super) cores_granted_percent: f64,
    pub(super) cores_free_percent: f64,
    pub(super) shares: Vec<Share>,
}

impl Gpu {
    /// Counts what is free, beside what the manager has granted and what claims hold, which it grants as their pods start.
    fn count_free(&mut self, claimed: Claimed) {
        let held_bytes = self.memory_granted_bytes.max(claimed.memory_bytes);
        self.memory_free_bytes = self.memory_total_bytes.saturating_sub(held_bytes);
        let claimed_percent = f64::from(u32::try_from(claimed.cores_percent).unwrap_or(u32::MAX));
        let held_percent = self.cores_granted_percent.max(claimed_percent);
        self.cores_free_percent = percent((100.0 - held_percent).max(0.0) / 100.0);
    }
}

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) gpus: Vec<Gpu>,
    /// Nodes whose manager did not answer, and why.
    pub(super) silent: BTreeMap<String, String>,
}

/// Asks all managers.
pub(super) async fn snapshot(client: &Client, namespace: &str, selector: &str) -> Result<Snapshot, RunError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let listed = pods.list(&ListParams::default().labels(selector)).await;
    let listed = listed.map_err(|error| refused(&format!("pods of namespace {namespace}"), &error))?;
    if listed.items.is_empty() {
        return Err(RunError::Failed(format!(
            "no pod of vcuda's chart in namespace {namespace} ({selector}); see --system-namespace and --selector"
        )));
    }
    let asked = listed.items.into_iter().map(|pod| async move {
        let name = pod.metadata.name.unwrap_or_default();
        let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_else(|| name.clone());
        (node, metrics(client, namespace, &name).await)
    });
    let answers: Vec<_> = stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
    let mut snapshot = Snapshot::default();
    for (node, answer) in answers {
        match answer {
            Ok(text) => snapshot.gpus.extend(gpus(&parse(&text))),
            Err(why) => {
                snapshot.silent.insert(node, why);
            }
        }
    }
    let claimed = claimed::by_gpu(client).await;
    for gpu in &mut snapshot.gpus {
        gpu.count_free(claimed.get(&gpu.uuid).copied().unwrap_or_default());
    }
    match snapshot.silent.values().next().filter(|_| snapshot.gpus.is_empty()) {
        Some(why) => Err(RunError::Unavailable(format!("no manager answers: {why}"))),
        None => {
            snapshot.gpus.sort_by(|one, other| (&one.node, &one.uuid).cmp(&(&other.node, &other.uuid)));
            Ok(snapshot)
        }
    }
}

async fn metrics(client: &Client, namespace: &str, pod: &str) -> Result<String, String> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{PORT}/proxy/metrics");
    let request = axum::http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    client.request_text(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a GPU are far below 2^53; a cast saturates"
)]
fn bytes(value: f64) -> u64 {
    value as u64
}

/// GPUs that samples tell of, with their shares.
fn gpus(samples: &[Sample]) -> Vec<Gpu> {
    let mut gpus: BTreeMap<String, Gpu> = BTreeMap::new();
    let mut shares: BTreeMap<[String; 4], Share> = BTreeMap::new();
    let mut states: BTreeMap<[String; 3], String> = BTreeMap::new();
    let mut held: BTreeSet<[String; 3]> = BTreeSet::new();
    for sample in samples {
        let uuid = sample.label("gpu_uuid");
        if let Some(word) = sample.name.strip_prefix("vcuda_gpu_") {
            let gpu = gpus.entry(uuid.clone()).or_default();
            (gpu.node, gpu.uuid) = (sample.label("node"), uuid);
            match word {
                "info" => gpu.name = sample.label("name"),
                "healthy" => gpu.is_healthy = sample.value > 0.0,
                "cordoned" => gpu.is_cordoned = sample.value > 0.0,
                "memory_total_bytes" => gpu.memory_total_bytes = bytes(sample.value),
                "memory_used_bytes" => gpu.memory_used_bytes = bytes(sample.value),
                "memory_granted_bytes" => gpu.memory_granted_bytes = bytes(sample.value),
                "cores_granted_ratio" => gpu.cores_granted_percent = percent(sample.value),
                _ => {}
            }
        } else if sample.name == "vcuda_container_state" {
            states.insert(container(sample), sample.label("state"));
        } else if sample.name == "vcuda_driver_limit" && sample.value > 0.0 {
            held.insert(container(sample));
        } else if let Some(word) = sample.name.strip_prefix("vcuda_container_").filter(|_| !uuid.is_empty()) {
            let key = container(sample);
            let [namespace, pod, container] = key.clone();
            let [first, second, third] = key;
            let share = shares.entry([uuid.clone(), first, second, third]).or_default();
            (share.namespace, share.pod, share.container) = (namespace, pod, container);
            (share.node, share.gpu_uuid) = (sample.label("node"), uuid);
            match word {
                "memory_limit_bytes" => share.memory_limit_bytes = bytes(sample.value),
                "memory_used_bytes" => share.memory_used_bytes = bytes(sample.value),
                "memory_suspended_bytes" => share.memory_suspended_bytes = bytes(sample.value),
                "cores_limit_ratio" => share.cores_limit_percent = percent(sample.value),
                "cores_used_ratio" => share.cores_used_percent = percent(sample.value),
                _ => {}
            }
        }
    }
    for ([_, namespace, pod, container], mut share) in shares {
        let key = [namespace, pod, container];
        share.held_by_driver = held.contains(&key);
        share.state = states.get(&key).cloned().unwrap_or_default();
        if let Some(gpu) = gpus.get_mut(&share.gpu_uuid) {
            gpu.shares.push(share);
        }
    }
    gpus.into_values().collect()
}

/// Namespace, pod and container of a sample.
fn container(sample: &Sample) -> [String; 3] {
    ["namespace", "pod", "container"].map(|name| sample.label(name))
}

/// A ratio in percent, to a tenth.
fn percent(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 10.0
}
