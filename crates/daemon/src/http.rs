//! HTTP server for metrics and health, with bounded connections, headers and time, so that no client blocks others.

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

/// Maximum number of connections. One more closes the oldest, which is slow, as a scrape takes milliseconds.
const CONNECTIONS: usize = 64;
/// Time limit for a request's header, from the connection or the last answer on.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// Maximum lifetime of a connection.
const LIFE: Duration = Duration::from_secs(300);
/// Maximum size of a request's header (bytes).
const HEADER_BYTES: usize = 16 << 10;
/// Maximum number of header fields.
const HEADER_FIELDS: usize = 64;
/// Pause after a failed accept, such as "too many open files".
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// Opens the listening socket at `address`; `None` without an address.
pub async fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let unavailable = |error: io::Error| {
        RunError::Unavailable(format!("metrics.listen {address}: {error}; give another address, or off"))
    };
    let listener = TcpListener::bind(address).await.map_err(unavailable)?;
    info!("metrics at http://{}/metrics", listener.local_addr().map_err(unavailable)?);
    Ok(Some(listener))
}

/// Serves until `stop` completes or this is dropped, which also ends connections.
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
    // An error of a client's connection is ignored.
    let _ = tokio::time::timeout(LIFE, served).await;
}
