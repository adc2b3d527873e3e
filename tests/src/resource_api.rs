//! Simulated API server for a driver of Dynamic Resource Allocation: objects by path, listed, watched and written with
//! versions, by the Kubernetes API conventions. The client has the rights given by the chart.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

mod caches;
mod claims;
mod events;
mod listed;

/// Path of all ResourceSlices.
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// The server, which listens until it is dropped.
#[derive(Debug)]
pub struct ResourceApi {
    shared: Arc<Shared>,
    address: SocketAddr,
    directory: tempfile::TempDir,
    _running: Runtime,
}

#[derive(Debug)]
struct Shared {
    node: String,
    /// Whether statuses of claims cannot be written, and how often one was written.
    statuses: claims::Statuses,
    events: Mutex<Vec<Value>>,
    objects: Mutex<Objects>,
    /// The newest version, for watches.
    version: watch::Sender<u64>,
    /// The newest version that watches and caches show.
    cached_version: AtomicU64,
    /// Whether the gate DRAConsumableCapacity is off.
    is_gate_off: AtomicBool,
    /// Whether the driver's rights are gone.
    is_forbidden: AtomicBool,
    wrongs: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Objects {
    by_path: BTreeMap<String, Value>,
    /// Changes of what is watched, each with its version and path.
    history: Vec<(u64, String, &'static str, Value)>,
}

impl ResourceApi {
    /// Starts a server with this node.
    ///
    /// # Panics
    /// Panics if no port is left.
    pub fn start(node: &str) -> Self {
        let shared = Arc::new(Shared {
            node: node.to_owned(),
            statuses: claims::Statuses::default(),
            events: Mutex::default(),
            objects: Mutex::default(),
            version: watch::Sender::new(1),
            cached_version: AtomicU64::new(u64::MAX),
            is_gate_off: AtomicBool::new(false),
            is_forbidden: AtomicBool::new(false),
            wrongs: Mutex::default(),
        });
        let running = Runtime::new().unwrap();
        let listener = running.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        running.spawn(async move { axum::serve(listener, router).await });
        let api = Self { shared, address, directory: tempfile::tempdir().unwrap(), _running: running };
        api.put(&format!("/api/v1/nodes/{node}"), &json!({"metadata": {"name": node, "uid": "node-uid"}}));
        api
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
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Sets whether the gate DRAConsumableCapacity is off.
    pub fn set_gate_off(&self, is_off: bool) {
        self.shared.is_gate_off.store(is_off, Ordering::SeqCst);
    }

    /// Sets whether the driver may ask for nothing more.
    pub fn forbid(&self, is_forbidden: bool) {
        self.shared.is_forbidden.store(is_forbidden, Ordering::SeqCst);
    }

    /// Adds or replaces the object at `path`.
    pub fn put(&self, path: &str, object: &Value) {
        self.shared.store(path, object.clone());
    }

    /// The object at `path`.
    pub fn object(&self, path: &str) -> Option<Value> {
        self.shared.objects.lock().by_path.get(path).cloned()
    }

    /// Removes the object at `path`.
    pub fn delete(&self, path: &str) {
        self.shared.delete(path);
    }

    /// All slices, by name.
    pub fn slices(&self) -> Vec<Value> {
        let objects = self.shared.objects.lock();
        let of_slices = objects.by_path.iter().filter(|(path, _)| path.starts_with(SLICES));
        of_slices.map(|(_, slice)| slice.clone()).collect()
    }

    /// Deletes all slices, as kubelet does when it starts.
    pub fn delete_slices(&self) {
        for slice in self.slices() {
            self.delete(&format!("{SLICES}/{}", slice["metadata"]["name"].as_str().unwrap()));
        }
    }
}

/// Panics if a request lacked the right for it.
impl Drop for ResourceApi {
    fn drop(&mut self) {
        let wrongs = self.shared.wrongs.lock();
        assert!(wrongs.is_empty() || std::thread::panicking(), "{wrongs:?}");
    }
}

impl Shared {
    fn store(&self, path: &str, mut object: Value) -> Value {
        let mut objects = self.objects.lock();
        let version = *self.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if path.starts_with(SLICES) {
            canonical(&mut object, self.is_gate_off.load(Ordering::SeqCst));
        }
        let before = objects.by_path.insert(path.to_owned(), object.clone());
        let kind = before.map_or("ADDED", |_| "MODIFIED");
        let change = (version, path.to_owned(), kind, object.clone());
        objects.history.push(change);
        self.version.send_replace(version);
        object
    }

    fn delete(&self, path: &str) -> Option<Value> {
        let mut objects = self.objects.lock();
        let gone = objects.by_path.remove(path)?;
        let version = *self.version.borrow() + 1;
        let change = (version, path.to_owned(), "DELETED", gone.clone());
        objects.history.push(change);
        self.version.send_replace(version);
        Some(gone)
    }

    fn refuse(&self, why: String) -> Response {
        let answer = status(StatusCode::FORBIDDEN, &why);
        self.wrongs.lock().push(why);
        answer
    }
}

/// Normalises a slice as the API server does: amounts in canonical form, and no fields whose gate is off.
fn canonical(slice: &mut Value, is_gate_off: bool) {
    let Some(devices) = slice["spec"]["devices"].as_array_mut() else {
        return;
    };
    for device in devices {
        if is_gate_off {
            device.as_object_mut().unwrap().remove("allowMultipleAllocations");
        }
        let memory = &mut device["capacity"]["memory"]["value"];
        let mebibytes = memory.as_str().and_then(|text| text.strip_suffix("Mi")?.parse::<u64>().ok());
        if let Some(whole) = mebibytes.filter(|mebibytes| mebibytes % 1024 == 0) {
            *memory = json!(format!("{}Gi", whole / 1024));
        }
    }
}

fn status(status: StatusCode, why: &str) -> Response {
    let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": why,
        "reason": reason, "code": status.as_u16(),
    });
    (status, axum::Json(body)).into_response()
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let of_slices = path.starts_with(SLICES);
    if shared.is_forbidden.load(Ordering::SeqCst) {
        return status(StatusCode::FORBIDDEN, &format!("{path} is forbidden"));
    }
    match (&method, of_slices) {
        (&Method::GET, true) if path == SLICES => listed::slices(&shared, &query),
        (&Method::GET, _) if path == listed::PODS => listed::pods(&shared, &query, &headers),
        (&Method::POST, _) if events::is_of(&path) => events::create(&shared, &path, &body),
        (&Method::GET, _) => {
            let found = caches::read(&shared, &path, &query);
            let missing = || status(StatusCode::NOT_FOUND, &format!("{path} not found"));
            found.map_or_else(missing, |found| axum::Json(found).into_response())
        }
        (&Method::POST | &Method::PUT, true) => write(&shared, &method, &path, &body),
        (&Method::PATCH, false) if claims::of_status(&path).is_some() => {
            claims::patch_status(&shared, &path, &query, &headers, &body)
        }
        (&Method::DELETE, true) if path != SLICES => match shared.delete(&path) {
            Some(gone) => axum::Json(gone).into_response(),
            None => status(StatusCode::NOT_FOUND, "not found"),
        },
        _ => shared.refuse(format!("{method} {uri}: not among the driver's rights")),
    }
}

fn write(shared: &Shared, method: &Method, path: &str, body: &Bytes) -> Response {
    let slice: Value = serde_json::from_slice(body).unwrap();
    let name = slice["metadata"]["name"].as_str().unwrap_or_default();
    let full = format!("{SLICES}/{name}");
    let known = shared.objects.lock().by_path.get(&full).cloned();
    let is_new = *method == Method::POST;
    match known {
        Some(_) if is_new => status(StatusCode::CONFLICT, "it is there already"),
        None if !is_new => status(StatusCode::NOT_FOUND, "not found"),
        Some(known) if known["metadata"]["resourceVersion"] != slice["metadata"]["resourceVersion"] => {
            status(StatusCode::CONFLICT, "the object has been modified")
        }
        _ if path != full && path != SLICES => status(StatusCode::BAD_REQUEST, "another name"),
        _ => axum::Json(shared.store(&full, slice)).into_response(),
    }
}
