//! HTTP pages of a daemon: `/metrics`, `/healthz` (the process answers) and `/readyz` (it can do its work).

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Media type of metrics (OpenMetrics 1.0, section "Text format").
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Source of the metrics as OpenMetrics text. It may block for milliseconds; calls do not overlap.
pub type Metrics = Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>;

/// Source of the reasons why the daemon cannot work now, a line each. It must not block.
pub type Problems = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

#[derive(Clone)]
struct Pages {
    metrics: Metrics,
    problems: Problems,
    /// Ensures that one text is made at a time, as that uses a processor.
    turn: Arc<Semaphore>,
}

/// The pages of a daemon, for [`crate::http::serve`]. `/readyz` answers 503 with the problems, if there are any.
pub fn pages(metrics: Metrics, problems: Problems) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Pages {
            metrics,
            problems,
            turn: Arc::new(Semaphore::new(1)),
        })
}

async fn scrape(State(pages): State<Pages>) -> Response {
    let Ok(turn) = pages.turn.acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let made = spawn_blocking(move || {
        let text = (pages.metrics)();
        drop(turn);
        text
    });
    match made.await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn ready(State(pages): State<Pages>) -> Response {
    match (pages.problems)().as_slice() {
        [] => "ok\n".into_response(),
        problems => {
            let text = format!("{}\n", problems.join("\n"));
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}
