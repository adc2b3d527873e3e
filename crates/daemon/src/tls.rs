//! HTTP over TLS, for callers that the API server sends: HTTP/1.1 and HTTP/2, with bounded connections, headers and time. The
//! certificate may change meanwhile ([`Certificates`]).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

mod certificates;

pub use certificates::{CertificateError, Certificates};

/// Maximum number of connections. Further ones wait for the end of another.
const CONNECTIONS: usize = 1024;
/// Time limit for a handshake, and for a request's header.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// Time after which a connection takes no further request, so that callers spread over the replicas again.
const LIFE: Duration = Duration::from_secs(600);
/// Time that requests in flight have to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of a request's header (bytes).
const HEADER_BYTES: usize = 16 << 10;
/// Pause after a failed accept, such as "too many open files".
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// Serves until `stop` completes; then requests in flight are answered, and connections end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    config: Arc<ServerConfig>,
    stop: impl Future<Output = ()>,
) {
    let acceptor = TlsAcceptor::from(config);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let (ends, ending) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            Some(_) = tasks.join_next() => continue,
            () = &mut stop => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(AFTER_ERROR).await;
            continue;
        };
        let served = connection(acceptor.clone(), stream, router.clone(), ending.clone());
        tasks.spawn(async move {
            served.await;
            drop(place);
        });
    }
    drop(listener);
    ends.send_replace(true);
    let _ = tokio::time::timeout(ENDS_WITHIN, async { while tasks.join_next().await.is_some() {} }).await;
}

async fn connection(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    router: Router,
    mut ending: watch::Receiver<bool>,
) {
    // An error of a client's connection is ignored.
    let Ok(Ok(stream)) = tokio::time::timeout(HEADER_WITHIN, acceptor.accept(stream)).await else {
        return;
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_WITHIN).max_buf_size(HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEADER_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(HEADER_WITHIN)
        .keep_alive_timeout(HEADER_WITHIN);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(served);
    tokio::select! {
        _ = served.as_mut() => return,
        () = tokio::time::sleep(LIFE) => {}
        _ = ending.wait_for(|is_ending| *is_ending) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(ENDS_WITHIN, served).await;
}
