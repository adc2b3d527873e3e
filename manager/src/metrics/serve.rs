//! HTTP for `/metrics` and `/healthz`: bounded in connections, headers and time, so that no client keeps others away.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use super::{CONTENT_TYPE, Metrics};

/// Where the figures are served unless configured.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9436";

/// Connections at once. One more closes the oldest: a scrape takes milliseconds, so that is a slow one.
const CONNECTIONS: usize = 64;
/// Time for a request's header, from the connection or the last answer on.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// Longest life of a connection.
const LIFE: Duration = Duration::from_secs(300);
/// Bytes of a request's header.
const HEADER_BYTES: usize = 16 << 10;
/// Fields of a request's header.
const HEADER_FIELDS: usize = 64;
/// Pause after an error of accepting, such as "too many open files".
const AFTER_ERROR: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    /// One text at a time is made: it takes a processor.
    turn: Arc<Semaphore>,
}

/// Listens.
///
/// # Errors
/// The system's: the address is taken, or not this machine's.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
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
    let mut tasks = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
            () = &mut stop => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(AFTER_ERROR).await;
            continue;
        };
        oldest_first.retain(|task| !task.is_finished());
        if oldest_first.len() >= CONNECTIONS
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.abort();
        }
        oldest_first.push_back(tasks.spawn(connection(stream, router.clone())));
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WITHIN)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADER_FIELDS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // How a client ends is its own matter.
    let _ = tokio::time::timeout(LIFE, served).await;
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
