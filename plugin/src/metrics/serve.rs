//! HTTP: `/metrics`, `/healthz` (the process answers) and `/readyz` (kubelet reads all lists, the manager answers).

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::{Instruments, Problems};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is served.
pub fn routes(instruments: Arc<Instruments>, problems: Problems) -> Router {
    Router::new()
        .route("/metrics", get(move || async move { metrics(&instruments) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { ready(&problems()) }))
}

fn metrics(instruments: &Instruments) -> Response {
    match instruments.text() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn ready(problems: &[String]) -> Response {
    match problems {
        [] => "ok\n".into_response(),
        problems => {
            let mut text = problems.join("\n");
            text.push('\n');
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}
