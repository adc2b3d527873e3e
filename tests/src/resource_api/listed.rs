//! Lists and watches: the slices of a node, and the metadata of its pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;

use super::{SLICES, Shared};

/// Path of all pods.
pub(super) const PODS: &str = "/api/v1/pods";

/// What is listed.
#[derive(Clone, Copy)]
struct Listed {
    /// Kind and version of the objects, and of a list of them.
    kind: [&'static str; 2],
    version: [&'static str; 2],
    is_one: fn(&str) -> bool,
}

/// The slices of the client's node.
pub(super) fn slices(shared: &Arc<Shared>, query: &BTreeMap<String, String>) -> Response {
    let selector = query.get("fieldSelector").cloned().unwrap_or_default();
    if !selector.contains(&format!("spec.nodeName={}", shared.node)) {
        return shared.refuse(format!("slices of other nodes: {selector:?}"));
    }
    let version = "resource.k8s.io/v1";
    let listed = Listed {
        kind: ["ResourceSlice", "ResourceSliceList"],
        version: [version; 2],
        is_one: |path| path.starts_with(SLICES),
    };
    list_or_watch(shared, query, listed)
}

/// The metadata of the pods of the client's node. Their specifications, with names of secrets, are withheld from it.
pub(super) fn pods(shared: &Arc<Shared>, query: &BTreeMap<String, String>, headers: &HeaderMap) -> Response {
    let selector = query.get("fieldSelector").cloned().unwrap_or_default();
    let accept = headers.get("accept").and_then(|value| value.to_str().ok());
    if selector != format!("spec.nodeName={}", shared.node)
        || !accept.is_some_and(|kind| kind.contains("as=PartialObjectMetadata"))
    {
        return shared.refuse(format!("pods of other nodes, or whole ones: {selector:?}, {accept:?}"));
    }
    let listed = Listed {
        kind: ["PartialObjectMetadata", "PartialObjectMetadataList"],
        version: ["meta.k8s.io/v1"; 2],
        is_one: |path| path.starts_with("/api/v1/namespaces/") && path.contains("/pods/"),
    };
    list_or_watch(shared, query, listed)
}

impl Listed {
    fn shown(self, object: &Value) -> Value {
        let mut shown = match self.kind[0] {
            "PartialObjectMetadata" => json!({"metadata": object["metadata"]}),
            _ => object.clone(),
        };
        shown["apiVersion"] = json!(self.version[0]);
        shown["kind"] = json!(self.kind[0]);
        shown
    }
}

fn list_or_watch(shared: &Arc<Shared>, query: &BTreeMap<String, String>, listed: Listed) -> Response {
    if query.get("watch").is_none_or(|watch| watch != "true") {
        let objects = shared.objects.lock();
        let items = objects.by_path.iter().filter(|(path, _)| (listed.is_one)(path));
        let items: Vec<Value> = items.map(|(_, object)| listed.shown(object)).collect();
        return axum::Json(json!({
            "apiVersion": listed.version[1], "kind": listed.kind[1],
            "metadata": {"resourceVersion": shared.version.borrow().to_string()}, "items": items,
        }))
        .into_response();
    }
    let after = query.get("resourceVersion").and_then(|version| version.parse().ok());
    let mut after: u64 = after.unwrap_or(0);
    let following = Arc::clone(shared);
    let changes = WatchStream::new(shared.version.subscribe()).map(move |newest| {
        let objects = following.objects.lock();
        let newest = newest.min(following.cached_version.load(Ordering::SeqCst));
        let mut lines = String::new();
        let news = objects
            .history
            .iter()
            .filter(|(version, path, ..)| (after + 1..=newest).contains(version) && (listed.is_one)(path));
        for (_, _, kind, object) in news {
            lines += &format!("{}\n", json!({"type": kind, "object": listed.shown(object)}));
        }
        after = after.max(newest);
        Ok::<_, std::convert::Infallible>(lines)
    });
    Body::from_stream(changes).into_response()
}
