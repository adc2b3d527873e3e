//! A channel over a unix socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Connects to whoever listens at `socket`, within `deadline`. The channel is of this one connection's making: it dials
/// the same path again if the connection breaks.
///
/// # Errors
/// The system's: no process listens there, or not in time.
pub async fn connect(socket: &Path, deadline: Duration) -> io::Result<Channel> {
    // Tried once by itself: a channel says of a socket that is not there only "transport error".
    tokio::time::timeout(deadline, UnixStream::connect(socket)).await??;
    let path = socket.to_owned();
    // The address is not used; gRPC wants one for its `:authority`.
    Endpoint::from_static("http://localhost")
        .connect_timeout(deadline)
        .connect_with_connector(service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .map_err(io::Error::other)
}
