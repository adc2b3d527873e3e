//! HTTP pages of a daemon: `/` (links to the others), `/metrics`, `/healthz` (the process answers) and `/readyz` (it can do its work).

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::text_format;

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

/// A daemon, as its first page names it.
#[derive(Debug, Clone, Copy)]
pub struct Daemon {
    /// Name of the program.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

impl Daemon {
    fn page(self) -> String {
        let Self { name, version } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>{name}</title></head>\n<body>\n\
             <h1>{name} {version}</h1>\n<ul>\n\
             <li><a href=\"metrics\">metrics</a>: for Prometheus</li>\n\
             <li><a href=\"healthz\">healthz</a>: ok while the process answers</li>\n\
             <li><a href=\"readyz\">readyz</a>: ok, or why it cannot work now</li>\n\
             </ul>\n</body>\n</html>\n"
        )
    }
}

/// The pages of a daemon, for [`crate::http::serve`]. `/readyz` answers 503 with the problems, if there are any.
pub fn pages(daemon: Daemon, metrics: Metrics, problems: Problems) -> Router {
    Router::new()
        .route("/", get(move || async move { Html(daemon.page()) }))
        .route("/metrics", get(scrape))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Pages { metrics, problems, turn: Arc::new(Semaphore::new(1)) })
}

async fn scrape(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    let Ok(turn) = pages.turn.acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let made = spawn_blocking(move || {
        let text = (pages.metrics)();
        drop(turn);
        text
    });
    match made.await {
        Ok(Ok(text)) if text_format::is_wanted(&headers) => {
            let text = text_format::of_openmetrics(&text);
            ([(header::CONTENT_TYPE, text_format::CONTENT_TYPE)], text).into_response()
        }
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
