//! Pages that a daemon serves over HTTP: `/metrics`, `/healthz` (the process answers) and `/readyz` (it can do its
//! work).

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// The media type of metrics (OpenMetrics 1.0, section "Text format").
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics as OpenMetrics text. It may take milliseconds: it is called where it may block, one call at a time.
pub type Metrics = Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>;

/// Why the daemon cannot do its work now, a line each; nothing where it can. It must not block.
pub type Problems = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

#[derive(Clone)]
struct Pages {
    metrics: Metrics,
    problems: Problems,
    /// One text at a time is made: it takes a processor.
    turn: Arc<Semaphore>,
}

/// The pages of a daemon, for [`crate::http::serve`]. `/readyz` is 503 with the problems as long as there are some.
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
