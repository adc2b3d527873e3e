//! A channel over a unix socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Connects to the server at `socket`, within `deadline`. The channel dials the same path again if the connection breaks.
///
/// # Errors
/// No process listens there, or it does not answer in time.
pub async fn connect(socket: &Path, deadline: Duration) -> io::Result<Channel> {
    // Tried without the channel first, whose error for a missing socket would be only "transport error".
    tokio::time::timeout(deadline, UnixStream::connect(socket)).await??;
    let path = socket.to_owned();
    // The connector ignores the address; gRPC needs it for `:authority`.
    Endpoint::from_static("http://localhost")
        .connect_timeout(deadline)
        .connect_with_connector(service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .map_err(io::Error::other)
}
