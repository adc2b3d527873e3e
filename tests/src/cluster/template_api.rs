//! A simulated API server for `vcuda-cluster`: it takes ResourceClaimTemplates, and shows nodes and pods.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;

/// An API server that takes ResourceClaimTemplates and shows nodes and pods, and nothing else.
#[derive(Debug)]
pub struct TemplateApi {
    shared: Arc<Made>,
    address: SocketAddr,
    folder: tempfile::TempDir,
    _running: Runtime,
}

#[derive(Debug, Default)]
struct Made {
    templates: Mutex<BTreeMap<String, Value>>,
    posts: Mutex<u32>,
    /// Why it takes none, if it does not.
    refuses: Mutex<Option<String>>,
    nodes: Followed,
    pods: Followed,
    waiting: Followed,
}

/// Objects of a kind that are listed and watched.
#[derive(Debug, Default)]
struct Followed {
    /// Changes and their objects, the newest last. The place of each is its version.
    changes: Mutex<Vec<(&'static str, Value)>>,
    version: watch::Sender<usize>,
}

impl Followed {
    fn change(&self, how: &'static str, objects: &[Value], api_version: &str, kind: &str) {
        let mut all = self.changes.lock();
        for object in objects {
            let mut object = object.clone();
            object["kind"] = json!(kind);
            object["apiVersion"] = json!(api_version);
            object["metadata"]["resourceVersion"] = json!((all.len() + 1).to_string());
            all.push((how, object));
        }
        self.version.send_replace(all.len());
    }
}

impl TemplateApi {
    /// Starts it.
    pub fn start() -> Self {
        let shared = Arc::new(Made::default());
        let running = Runtime::new().unwrap();
        let listener = running.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates", post(make))
            .route("/api/v1/nodes", get(nodes))
            .route("/api/v1/pods", get(pods))
            .with_state(Arc::clone(&shared));
        running.spawn(async move { axum::serve(listener, router).await });
        Self { shared, address, folder: tempfile::tempdir().unwrap(), _running: running }
    }

    /// Path of a configuration with which the server is reached.
    pub fn kubeconfig(&self) -> PathBuf {
        let path = self.folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Templates by `NAMESPACE/NAME`.
    pub fn templates(&self) -> BTreeMap<String, Value> {
        self.shared.templates.lock().clone()
    }

    /// Number of attempts to make one.
    pub fn posts(&self) -> u32 {
        *self.shared.posts.lock()
    }

    /// Adds nodes, or changes those of their names.
    pub fn set_nodes(&self, nodes: &[Value]) {
        let followed = &self.shared.nodes;
        followed.change("MODIFIED", nodes, "meta.k8s.io/v1", "PartialObjectMetadata");
    }

    /// Adds pods without a node, or changes those of their names.
    pub fn set_waiting_pods(&self, pods: &[Value]) {
        self.shared.waiting.change("MODIFIED", pods, "v1", "Pod");
    }

    /// Adds pods, or changes those of their names.
    pub fn set_pods(&self, pods: &[Value]) {
        self.shared.pods.change("MODIFIED", pods, "v1", "Pod");
    }

    /// Deletes pods.
    pub fn delete_pods(&self, pods: &[Value]) {
        self.shared.pods.change("DELETED", pods, "v1", "Pod");
    }

    /// Refuses further ones, with this message; or takes them again.
    pub fn refuse(&self, why: Option<&str>) {
        *self.shared.refuses.lock() = why.map(str::to_owned);
    }
}

async fn make(State(made): State<Arc<Made>>, Path(namespace): Path<String>, body: Bytes) -> Response {
    let status = |status: StatusCode, reason: &str, why: &str| {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": why, "reason": reason,
            "code": status.as_u16(),
        });
        (status, axum::Json(body)).into_response()
    };
    *made.posts.lock() += 1;
    if let Some(why) = &*made.refuses.lock() {
        return status(StatusCode::FORBIDDEN, "Forbidden", why);
    }
    let template: Value = serde_json::from_slice(&body).unwrap();
    let key = format!("{namespace}/{}", template["metadata"]["name"].as_str().unwrap());
    let mut templates = made.templates.lock();
    if templates.contains_key(&key) {
        return status(StatusCode::CONFLICT, "AlreadyExists", "already exists");
    }
    templates.insert(key, template.clone());
    (StatusCode::CREATED, axum::Json(template)).into_response()
}

async fn nodes(State(made): State<Arc<Made>>, Query(query): Query<BTreeMap<String, String>>) -> Response {
    listed(made, |made| &made.nodes, &query, ("meta.k8s.io/v1", "PartialObjectMetadataList"))
}

/// As the API server, for the field selectors by which pods are asked for: those without a node, and those with one that have
/// not ended.
async fn pods(State(made): State<Arc<Made>>, Query(query): Query<BTreeMap<String, String>>) -> Response {
    let of: fn(&Made) -> &Followed = match query.get("fieldSelector").map(String::as_str) {
        Some("spec.nodeName=") => |made| &made.waiting,
        Some("spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed") => |made| &made.pods,
        other => panic!("{other:?}"),
    };
    listed(made, of, &query, ("v1", "PodList"))
}

/// Lists or watches objects: each change is one of them, in the order in which they were set.
fn listed(
    made: Arc<Made>,
    of: fn(&Made) -> &Followed,
    query: &BTreeMap<String, String>,
    (api_version, kind): (&str, &str),
) -> Response {
    if query.get("watch").is_none_or(|watch| watch != "true") {
        let all = of(&made).changes.lock();
        let mut newest: BTreeMap<String, &Value> = BTreeMap::new();
        for (how, object) in all.iter() {
            let name = object["metadata"]["name"].to_string();
            match *how {
                "DELETED" => newest.remove(&name),
                _ => newest.insert(name, object),
            };
        }
        return axum::Json(json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"resourceVersion": all.len().to_string()}, "items": newest.values().collect::<Vec<_>>(),
        }))
        .into_response();
    }
    let from = query.get("resourceVersion").and_then(|version| version.parse().ok());
    let mut from: usize = from.unwrap_or(0);
    let following = Arc::clone(&made);
    let changes = WatchStream::new(of(&made).version.subscribe()).map(move |_| {
        let all = of(&following).changes.lock();
        let mut lines = String::new();
        for (how, object) in all.iter().skip(from) {
            lines += &format!("{}\n", json!({"type": how, "object": object}));
        }
        from = all.len();
        Ok::<_, std::convert::Infallible>(lines)
    });
    Body::from_stream(changes).into_response()
}
