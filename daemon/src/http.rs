//! HTTP for figures and health: bounded in connections, headers and time, so that no client keeps others away.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tracing::info;

use crate::life::RunError;

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

/// Listens for whoever reads metrics at `address`; not at all if that is none.
///
/// # Errors
/// The address is taken, or not this machine's.
pub async fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let unavailable = |error: io::Error| {
        RunError::Unavailable(format!(
            "metrics.listen {address}: {error}; give another address, or off"
        ))
    };
    let listener = TcpListener::bind(address).await.map_err(unavailable)?;
    info!(
        "metrics at http://{}/metrics",
        listener.local_addr().map_err(unavailable)?
    );
    Ok(Some(listener))
}

/// Serves until `stop` is done, or this is dropped; connections end with it.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
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
