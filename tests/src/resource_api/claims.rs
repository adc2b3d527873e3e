//! Claims' statuses: written by server-side apply, checked as Kubernetes 1.36 checks them (`pkg/registry/resource/utils.go`,
//! `pkg/apis/resource/validation`): a node's driver writes its own entries of claims that were allocated to that node.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::{ResourceApi, Shared, status};
use crate::dra::claims::claim_path;

/// Driver whose entries the client may write.
const DRIVER: &str = "vcuda.io";

/// What becomes of statuses.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    are_refused: AtomicBool,
    tried: AtomicUsize,
    written: AtomicUsize,
}

impl ResourceApi {
    /// Refuses statuses of claims, or takes them again.
    pub fn refuse_statuses(&self, are_refused: bool) {
        self.shared.statuses.are_refused.store(are_refused, Ordering::SeqCst);
    }

    /// Number of times that the driver tried to write a status, and that it was written.
    pub fn statuses(&self) -> (usize, usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (of(&self.shared.statuses.tried), of(&self.shared.statuses.written))
    }

    /// The status of each device of a claim of the namespace `default`.
    pub fn device_statuses(&self, name: &str) -> Vec<Value> {
        let claim = self.object(&claim_path(name)).unwrap_or_default();
        claim["status"]["devices"].as_array().cloned().unwrap_or_default()
    }
}

/// Path of the claim whose status this path is.
pub(super) fn of_status(path: &str) -> Option<&str> {
    let claim = path.strip_suffix("/status")?;
    claim.contains("/resourceclaims/").then_some(claim)
}

/// Applies the client's entries; those of others stay.
pub(super) fn patch_status(
    shared: &Shared,
    path: &str,
    query: &BTreeMap<String, String>,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response {
    shared.statuses.tried.fetch_add(1, Ordering::SeqCst);
    let kind = headers.get("content-type").and_then(|value| value.to_str().ok());
    if kind != Some("application/apply-patch+yaml") || query.get("fieldManager").is_none_or(String::is_empty)
    {
        return shared.refuse(format!("{path}: no server-side apply: {kind:?}, {query:?}"));
    }
    if shared.statuses.are_refused.load(Ordering::SeqCst) {
        return status(StatusCode::FORBIDDEN, "changing status.devices is refused");
    }
    let claim_path = of_status(path).unwrap_or_default();
    let Some(mut claim) = shared.objects.lock().by_path.get(claim_path).cloned() else {
        return status(StatusCode::NOT_FOUND, "not found");
    };
    let applied: Value = serde_json::from_slice(body).unwrap();
    if applied["metadata"]["uid"] != claim["metadata"]["uid"] {
        return status(StatusCode::CONFLICT, "uid mismatch");
    }
    let entries = applied["status"]["devices"].as_array().cloned();
    let entries = entries.unwrap_or_default();
    if let Some(problem) = problem(&shared.node, &claim, &entries) {
        return shared.refuse(format!("{path}: {problem}: {applied}"));
    }
    let shown = claim["status"]["devices"].as_array().cloned();
    let others = shown.unwrap_or_default().into_iter();
    let others = others.filter(|entry| entry["driver"] != DRIVER);
    claim["status"]["devices"] = others.chain(entries).collect();
    shared.statuses.written.fetch_add(1, Ordering::SeqCst);
    axum::Json(shared.store(claim_path, claim)).into_response()
}

fn problem(node: &str, claim: &Value, entries: &[Value]) -> Option<&'static str> {
    let allocation = &claim["status"]["allocation"];
    let of_node = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    if allocation["nodeSelector"]["nodeSelectorTerms"] != of_node {
        return Some("verb associated-node:patch is for claims of the driver's own node");
    }
    let results = allocation["devices"]["results"].as_array();
    let is_allocated = |entry: &Value| {
        let mut results = results.into_iter().flatten();
        let keys = ["driver", "pool", "device", "shareID"];
        results.any(|result| keys.iter().all(|key| result[key] == entry[key]))
    };
    let is_whole = |condition: &Value| {
        let has =
            |key: &&str| condition[key].as_str().is_some_and(|text| !text.is_empty() || *key == "message");
        ["type", "status", "reason", "message", "lastTransitionTime"].iter().all(has)
    };
    for entry in entries {
        let mut conditions = entry["conditions"].as_array().into_iter().flatten();
        if entry["driver"] != DRIVER {
            return Some("another driver's entry");
        } else if !is_allocated(entry) {
            return Some("an entry of what was not allocated");
        } else if !conditions.all(is_whole) {
            return Some("a condition without a field");
        } else if entry["data"].to_string().len() > 10 << 10 {
            return Some("data of more than 10 KiB");
        }
    }
    None
}
