//! An API server that shows objects by path to a user with a token, and proxies pods' pages; it takes nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const TOKEN: &str = "of-a-user";

/// The server.
#[derive(Debug)]
pub struct ShownObjects {
    shared: Arc<Shared>,
    address: SocketAddr,
    folder: tempfile::TempDir,
    _running: Runtime,
}

#[derive(Debug, Default)]
struct Shared {
    pages: Mutex<BTreeMap<String, String>>,
    /// Requests, as method, path and query.
    asked: Mutex<Vec<String>>,
}

impl ShownObjects {
    /// Starts it without an object.
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let running = Runtime::new().unwrap();
        let listener = running.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(show).with_state(Arc::clone(&shared));
        running.spawn(async move { axum::serve(listener, router).await });
        Self { shared, address, folder: tempfile::tempdir().unwrap(), _running: running }
    }

    /// Shows a text at `path`.
    pub fn put(&self, path: &str, text: &str) {
        self.shared.pages.lock().insert(path.to_owned(), text.to_owned());
    }

    /// Shows a list of this kind at `path`.
    pub fn put_list(&self, path: &str, version: &str, kind: &str, items: &Value) {
        let list =
            json!({"apiVersion": version, "kind": format!("{kind}List"), "metadata": {}, "items": items});
        self.put(path, &list.to_string());
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().clone()
    }

    /// Path of a user's configuration, whose context has the namespace `team`.
    pub fn kubeconfig(&self) -> PathBuf {
        let path = self.folder.path().join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }
}

async fn show(State(shared): State<Arc<Shared>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    shared.asked.lock().push(format!("{method} {uri}"));
    let status = |status: StatusCode, why: String| {
        let reason = status.canonical_reason().unwrap_or_default().replace(' ', "");
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": why, "reason": reason,
            "code": status.as_u16(),
        });
        (status, axum::Json(body)).into_response()
    };
    let token = headers.get("authorization").and_then(|value| value.to_str().ok());
    if token != Some(&format!("Bearer {TOKEN}")) || method != Method::GET {
        return status(StatusCode::FORBIDDEN, format!("{method} {uri} is forbidden"));
    }
    match shared.pages.lock().get(uri.path()) {
        Some(text) => text.clone().into_response(),
        // What a user without the right is told.
        None if uri.path().ends_with("/events") => {
            status(StatusCode::FORBIDDEN, "events is forbidden".to_owned())
        }
        None => status(StatusCode::NOT_FOUND, format!("{} not found", uri.path())),
    }
}
