//! The scheduler extender's pages (kube-scheduler, `extender/v1`): `POST /filter` keeps nodes where the GPUs of a pod's containers
//! have what is asked for, each by itself; `POST /prioritize` scores them. It binds nothing and holds no lock: the node's
//! manager decides when a container starts.
//!
//! What a node's GPUs have left is what the node publishes, less the shares of pods that it was sent since ([`pods`]). A pod
//! whose question was answered a moment ago may be sent to any node of the answer, so until the API server shows its node it
//! counts on each of them ([`offers`]). Therefore no two pods at once are sent to a place for one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use tracing::warn;
use vcuda_quota::pods::node_gpus::{ANNOTATION, NodeGpus};

use crate::admit::Rules;
use crate::counters::Counters;
use crate::webhook::json;

pub(crate) mod fit;
mod nodes;
mod offers;
mod pods;

pub(crate) use fit::Score;
use fit::{Asked, fits, score};
pub(crate) use nodes::Nodes;
use offers::PodKey;
pub(crate) use pods::BoundPods;

/// Largest question (bytes): whole nodes of a large cluster.
const BODY_MAX: usize = 256 << 20;
/// Score of a node that says nothing of its GPUs, and of every node for a pod without a share.
const NEUTRAL: i64 = 0;

#[derive(Debug, Clone)]
pub(crate) struct Extender {
    rules: Arc<Rules>,
    score: Score,
    nodes: Nodes,
    pods: BoundPods,
    counters: Arc<Counters>,
}

/// The scheduler's question. It names nodes, or sends them whole, as its configuration says (`nodeCacheCapable`).
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Args {
    pod: Value,
    nodes: Option<NodeList>,
    node_names: Option<Vec<String>>,
}

#[derive(Deserialize, Serialize)]
struct NodeList {
    #[serde(default)]
    items: Option<Vec<Value>>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Filtered {
    nodes: Option<NodeList>,
    node_names: Option<Vec<String>>,
    failed_nodes: BTreeMap<String, String>,
    failed_and_unresolvable_nodes: BTreeMap<String, String>,
    error: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostPriority {
    host: String,
    score: i64,
}

impl Extender {
    pub(crate) fn new(
        rules: Rules,
        score: Score,
        (nodes, pods): (Nodes, BoundPods),
        counters: Arc<Counters>,
    ) -> Self {
        Self { rules: Arc::new(rules), score, nodes, pods, counters }
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/filter", post(filter))
            .route("/prioritize", post(prioritize))
            .layer(DefaultBodyLimit::max(BODY_MAX))
            .with_state(self)
    }

    fn read(&self, page: &'static str, body: &[u8]) -> Result<Args, Box<Response>> {
        let args: Result<Args, _> = serde_json::from_slice(body);
        let result = if args.is_ok() { "answered" } else { "wrong" };
        self.counters.count(page, result);
        args.map_err(|error| {
            warn!(page, %error, "a request that is no question of a scheduler");
            let why = format!("not ExtenderArgs of kube-scheduler: {error}\n");
            Box::new((StatusCode::BAD_REQUEST, why).into_response())
        })
    }

    /// Why a pod with these shares does not fit on a node, beside all pods that were or may be sent there.
    fn problem(
        &self,
        (pod, asked, now): (&PodKey, &Asked, Instant),
        name: &str,
        node: Option<&Value>,
    ) -> Option<String> {
        // A node that says nothing of its GPUs is left to kubelet.
        let gpus = self.pods.left_for(pod, name, self.published(name, node)?, now);
        fits(asked, &gpus, &self.rules).err()
    }

    /// GPUs of a node: of its annotation, in the question or as it was seen last.
    fn published(&self, name: &str, node: Option<&Value>) -> Option<NodeGpus> {
        let Some(node) = node else {
            return self.nodes.gpus(name);
        };
        let annotations = node.get("metadata")?.get("annotations")?;
        serde_json::from_str(annotations.get(ANNOTATION)?.as_str()?).ok()
    }
}

fn name(node: &Value) -> String {
    let name = node.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn key(pod: &Value) -> PodKey {
    let text = |field: &str| pod.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

async fn filter(State(extender): State<Extender>, body: Bytes) -> Response {
    let args = match extender.read("filter", &body) {
        Ok(args) => args,
        Err(response) => return *response,
    };
    let asked = Asked::of(&args.pod, &extender.rules);
    let (pod, now) = (key(&args.pod), Instant::now());
    let (mut failed, mut offered) = (BTreeMap::new(), HashSet::new());
    let mut keeps = |name: &str, node: Option<&Value>| match extender.problem((&pod, &asked, now), name, node)
    {
        Some(why) => {
            failed.insert(name.to_owned(), why);
            false
        }
        None => {
            offered.insert(name.to_owned());
            true
        }
    };
    let node_names = args.node_names.map(|mut names| {
        names.retain(|name| keeps(name, None));
        names
    });
    let nodes = args.nodes.map(|list| {
        let mut items = list.items.unwrap_or_default();
        items.retain(|node| keeps(&name(node), Some(node)));
        NodeList { items: Some(items) }
    });
    extender.pods.offer(pod, offered, asked.together().to_vec(), now);
    json(&Filtered {
        nodes,
        node_names,
        failed_nodes: failed,
        failed_and_unresolvable_nodes: BTreeMap::new(),
        error: String::new(),
    })
}

async fn prioritize(State(extender): State<Extender>, body: Bytes) -> Response {
    let args = match extender.read("prioritize", &body) {
        Ok(args) => args,
        Err(response) => return *response,
    };
    let asked = Asked::of(&args.pod, &extender.rules);
    let scored = |name: String, node: Option<&Value>| {
        let gpus = extender.published(&name, node).map(|gpus| extender.pods.left(&name, gpus));
        let score = gpus.map_or(NEUTRAL, |gpus| score(&asked, &gpus, extender.score));
        HostPriority { host: name, score }
    };
    let named = args.node_names.into_iter().flatten().map(|name| scored(name, None));
    let whole = args.nodes.and_then(|list| list.items).unwrap_or_default();
    let whole = whole.iter().map(|node| scored(name(node), Some(node)));
    json(&named.chain(whole).collect::<Vec<_>>())
}
