//! Simulated API server: pods' metadata, listed and watched by the Kubernetes API conventions. It accepts one client, with
//! the rights given by the chart.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, patch, post};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;

const TOKEN: &str = "of-the-plugin";

/// The server, which listens until it is dropped.
#[derive(Debug)]
pub struct ApiServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    directory: tempfile::TempDir,
    running: Option<Runtime>,
}

#[derive(Debug)]
struct Shared {
    node: String,
    pods: Mutex<Pods>,
    /// The newest version, for watches.
    version: watch::Sender<u64>,
    wrongs: Mutex<Vec<String>>,
    /// Whether the plugin may write events.
    takes_events: AtomicBool,
    events: Mutex<Events>,
    /// Annotations that were written on nodes: each write with the node's name.
    nodes: Mutex<Vec<(String, Value)>>,
}

#[derive(Debug, Default)]
struct Events {
    written: Vec<Value>,
    tried: usize,
}

#[derive(Debug, Default)]
struct Pods {
    metadata: BTreeMap<(String, String), Value>,
    /// Events, each with its version.
    history: Vec<(u64, &'static str, Value)>,
    /// Version before which history is forgotten.
    compacted: u64,
}

impl ApiServer {
    /// Starts a server with the pods of `node`.
    ///
    /// # Panics
    /// Panics if no port is left.
    pub fn start(node: &str) -> Self {
        let shared = Arc::new(Shared {
            node: node.to_owned(),
            pods: Mutex::default(),
            version: watch::Sender::new(1),
            wrongs: Mutex::default(),
            takes_events: AtomicBool::new(false),
            events: Mutex::default(),
            nodes: Mutex::default(),
        });
        let mut server = Self {
            shared,
            address: ([127, 0, 0, 1], 0).into(),
            directory: tempfile::tempdir().unwrap(),
            running: None,
        };
        server.resume();
        server
    }

    /// Listens again at its former address.
    ///
    /// # Panics
    /// Panics if another process uses the address.
    pub fn resume(&mut self) {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind(self.address)).unwrap();
        self.address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/api/v1/pods", get(pods))
            .route("/apis/events.k8s.io/v1/namespaces/{namespace}/events", post(create_event))
            .route("/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}", patch(patch_event))
            .route("/api/v1/nodes/{name}", patch(patch_node))
            .fallback(forbidden)
            .with_state(Arc::clone(&self.shared));
        runtime.spawn(async move { axum::serve(listener, router).await });
        self.running = Some(runtime);
    }

    /// Closes the socket and all connections.
    pub fn pause(&mut self) {
        if let Some(runtime) = self.running.take() {
            // Until its socket is closed.
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }

    /// Path of a configuration with which the server is reached.
    ///
    /// # Panics
    /// Panics if the disk is full.
    pub fn kubeconfig(&self) -> PathBuf {
        let path = self.directory.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Adds a pod with these annotations, or changes it.
    pub fn put(&self, namespace: &str, name: &str, uid: &str, annotations: &[(&str, &str)]) {
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        self.shared.change(|pods, version| {
            let metadata = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {
                    "namespace": namespace, "name": name, "uid": uid, "annotations": annotations,
                    "resourceVersion": version.to_string(),
                },
            });
            let key = (namespace.to_owned(), name.to_owned());
            let before = pods.metadata.insert(key, metadata.clone());
            (before.map_or("ADDED", |_| "MODIFIED"), metadata)
        });
    }

    /// Permits writing events.
    pub fn take_events(&self) {
        self.shared.takes_events.store(true, Ordering::Relaxed);
    }

    /// The events that were written.
    pub fn events(&self) -> Vec<Value> {
        self.shared.events.lock().written.clone()
    }

    /// Writes of nodes' annotations, each with the node's name.
    pub fn node_writes(&self) -> Vec<(String, Value)> {
        self.shared.nodes.lock().clone()
    }

    /// Number of attempts to write an event.
    pub fn events_tried(&self) -> usize {
        self.shared.events.lock().tried
    }

    /// Forgets history before now, so that older watches must list again.
    ///
    /// # Panics
    /// A test has panicked before.
    pub fn compact(&self) {
        let mut pods = self.shared.pods.lock();
        pods.history.clear();
        pods.compacted = *self.shared.version.borrow();
    }
}

/// Panics if a request lacked the right for it.
impl Drop for ApiServer {
    fn drop(&mut self) {
        let wrongs = self.shared.wrongs.lock();
        assert!(wrongs.is_empty() || std::thread::panicking(), "{wrongs:?}");
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut Pods, u64) -> (&'static str, Value)) {
        let mut pods = self.pods.lock();
        let version = *self.version.borrow() + 1;
        let (kind, object) = change(&mut pods, version);
        pods.history.push((version, kind, object));
        self.version.send_replace(version);
    }

    /// Refusal of an event, if there is one; an attempt is not counted as wrong.
    fn refuses_event(&self, headers: &HeaderMap) -> Option<Response> {
        self.events.lock().tried += 1;
        let token = headers.get("authorization").and_then(|value| value.to_str().ok());
        let is_known = token == Some(&format!("Bearer {TOKEN}"));
        if is_known && self.takes_events.load(Ordering::Relaxed) {
            return None;
        }
        let why = "events.events.k8s.io is forbidden: User \"vcuda\" cannot create resource \"events\"";
        Some(Self::status(StatusCode::FORBIDDEN, why))
    }

    /// Checks that the client requests the metadata of its own node's pods. Returns a status and the reason otherwise.
    fn permit_pods(
        &self,
        query: &BTreeMap<String, String>,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, String)> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if header("authorization") != format!("Bearer {TOKEN}") {
            return Err((StatusCode::UNAUTHORIZED, "no token".to_owned()));
        }
        // The pods' specifications, which name secrets, are withheld from the client.
        if !header("accept").contains("as=PartialObjectMetadata") {
            let why = format!("asks for whole pods: {headers:?}");
            return Err((StatusCode::NOT_ACCEPTABLE, why));
        }
        let selector = query.get("fieldSelector").map_or("", String::as_str);
        if selector != format!("spec.nodeName={}", self.node) {
            let why = format!("pods of other nodes: {selector:?}");
            return Err((StatusCode::FORBIDDEN, why));
        }
        Ok(())
    }

    fn refuse(&self, status: StatusCode, why: String) -> Response {
        let answer = Self::status(status, &why);
        self.wrongs.lock().push(why);
        answer
    }

    fn status(status: StatusCode, why: &str) -> Response {
        let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": why,
            "reason": reason, "code": status.as_u16(),
        });
        (status, axum::Json(body)).into_response()
    }
}

async fn forbidden(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    shared.refuse(StatusCode::FORBIDDEN, format!("{uri}: the plugin may list and watch pods, nothing else"))
}

/// The field for which the API server refuses a new event (events.k8s.io/v1, `pkg/apis/core/validation/events.go`).
pub(crate) fn event_problem(namespace: &str, event: &Value) -> Option<&'static str> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (regarding, reason) = (&event["regarding"], text(&event["reason"]));
    let problems = [
        (text(&event["metadata"]["namespace"]) != namespace, "metadata.namespace"),
        (text(&regarding["namespace"]) != namespace, "regarding.namespace"),
        (text(&event["metadata"]["name"]).is_empty(), "metadata.name"),
        (text(&event["eventTime"]).is_empty(), "eventTime"),
        (!text(&event["reportingController"]).contains('/'), "reportingController"),
        (text(&event["reportingInstance"]).is_empty(), "reportingInstance"),
        (!(1..=128).contains(&text(&event["action"]).len()), "action"),
        (!(1..=128).contains(&reason.len()), "reason"),
        (text(&event["note"]).len() > 1024, "note"),
        (!["Normal", "Warning"].contains(&text(&event["type"]).as_str()), "type"),
    ];
    let wrong = problems.into_iter().find(|(is_wrong, _)| *is_wrong);
    wrong.map(|(_, field)| field)
}

/// Creates an event; refuses what the API server refuses of a new one.
async fn create_event(
    State(shared): State<Arc<Shared>>,
    Path(namespace): Path<String>,
    headers: HeaderMap,
    axum::Json(event): axum::Json<Value>,
) -> Response {
    if let Some(refusal) = shared.refuses_event(&headers) {
        return refusal;
    }
    if let Some(field) = event_problem(&namespace, &event) {
        return shared.refuse(StatusCode::UNPROCESSABLE_ENTITY, format!("event: {field}: {event}"));
    }
    shared.events.lock().written.push(event.clone());
    (StatusCode::CREATED, axum::Json(event)).into_response()
}

async fn patch_event(
    State(shared): State<Arc<Shared>>,
    Path((_, name)): Path<(String, String)>,
    headers: HeaderMap,
    axum::Json(change): axum::Json<Value>,
) -> Response {
    if let Some(refusal) = shared.refuses_event(&headers) {
        return refusal;
    }
    let mut events = shared.events.lock();
    let Some(event) = events.written.iter_mut().find(|event| event["metadata"]["name"] == name.as_str())
    else {
        drop(events);
        return shared.refuse(StatusCode::NOT_FOUND, format!("no event {name}"));
    };
    event["series"] = change["series"].clone();
    axum::Json(event.clone()).into_response()
}

/// Takes annotations of the plugin's own node, and nothing else of a node.
async fn patch_node(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    axum::Json(change): axum::Json<Value>,
) -> Response {
    let annotations = change["metadata"]["annotations"].clone();
    let is_all = change == json!({"metadata": {"annotations": annotations}});
    if name != shared.node || !is_all || !annotations.is_object() {
        return shared.refuse(StatusCode::FORBIDDEN, format!("node {name}: {change}"));
    }
    shared.nodes.lock().push((name.clone(), annotations.clone()));
    axum::Json(json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": name, "annotations": annotations},
    }))
    .into_response()
}

async fn pods(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if let Err((status, why)) = shared.permit_pods(&query, &headers) {
        return shared.refuse(status, why);
    }
    if query.get("watch").is_none_or(|watch| watch != "true") {
        let pods = shared.pods.lock();
        let version = shared.version.borrow().to_string();
        let items: Vec<&Value> = pods.metadata.values().collect();
        return axum::Json(json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": version}, "items": items,
        }))
        .into_response();
    }
    let after = query.get("resourceVersion").and_then(|version| version.parse().ok());
    let mut after: u64 = after.unwrap_or(0);
    let following = Arc::clone(&shared);
    let changes = WatchStream::new(shared.version.subscribe()).map(move |newest| {
        let pods = following.pods.lock();
        let mut lines = String::new();
        if after < pods.compacted {
            let gone = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
                "reason": "Expired", "message": format!("too old resource version: {after}"),
            });
            lines = format!("{}\n", json!({"type": "ERROR", "object": gone}));
        } else {
            for (_, kind, object) in pods.history.iter().filter(|(version, ..)| *version > after) {
                lines += &format!("{}\n", json!({"type": kind, "object": object}));
            }
        }
        after = after.max(newest);
        Ok::<_, std::convert::Infallible>(lines)
    });
    Body::from_stream(changes).into_response()
}
