//! HTTP for `/metrics` and `/healthz`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use vcuda_daemon::http;

use super::{CONTENT_TYPE, Metrics};

#[derive(Debug, Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    /// One text at a time is made: it takes a processor.
    turn: Arc<Semaphore>,
}

/// Serves until `stop` is done; connections end with it.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, stop: impl Future<Output = ()>) {
    let shared = Shared {
        metrics,
        turn: Arc::new(Semaphore::new(1)),
    };
    let router = Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(shared);
    http::serve(listener, router, stop).await;
}

async fn scrape(State(shared): State<Shared>) -> Response {
    let Ok(turn) = shared.turn.acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let made = tokio::task::spawn_blocking(move || {
        let text = shared.metrics.scrape();
        drop(turn);
        text
    });
    match made.await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        _ => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
