//! HTTP: `/metrics`, `/healthz` (the process answers) and `/readyz` (kubelet reads all lists, the manager answers).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::{Instruments, Problems};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Connections at once; one more waits.
const CONNECTIONS: usize = 32;
/// Time for a request's header.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// Longest life of a connection.
const LIFE: Duration = Duration::from_secs(60);

/// Listens.
///
/// # Errors
/// The system's: the address is taken, or not this machine's.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, instruments: Arc<Instruments>, problems: Problems) {
    let router = Router::new()
        .route("/metrics", get(move || async move { metrics(&instruments) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { ready(&problems()) }));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_WITHIN)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
            // How a client ends is its own matter.
            let _ = tokio::time::timeout(LIFE, served).await;
            drop(place);
        });
    }
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
