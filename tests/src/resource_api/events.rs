//! Events that the driver writes.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::{ResourceApi, Shared};
use crate::api_server::event_problem;

const PREFIX: &str = "/apis/events.k8s.io/v1/namespaces/";

impl ResourceApi {
    /// The events that were written.
    pub fn events(&self) -> Vec<Value> {
        self.shared.events.lock().clone()
    }
}

/// Whether events are created at this path.
pub(super) fn is_of(path: &str) -> bool {
    path.starts_with(PREFIX) && path.ends_with("/events")
}

/// Creates an event.
pub(super) fn create(shared: &Shared, path: &str, body: &Bytes) -> Response {
    let namespace = path.trim_start_matches(PREFIX).trim_end_matches("/events");
    let event: Value = serde_json::from_slice(body).unwrap();
    if let Some(field) = event_problem(namespace, &event) {
        return shared.refuse(format!("event: {field}: {event}"));
    }
    shared.events.lock().push(event.clone());
    (StatusCode::CREATED, axum::Json(event)).into_response()
}
