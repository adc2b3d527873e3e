//! A channel over the manager's unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Failure to connect to the manager's socket.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// There is no socket.
    #[error("no manager runs here ({}: no such socket)", .0.display())]
    Absent(PathBuf),
    /// The socket exists, but no process listens.
    #[error("the manager of {} is not running; its socket was left behind", .0.display())]
    Dead(PathBuf),
    /// The socket's permissions exclude this user.
    #[error("{}: not permitted; ask the node's operator to admit you to the socket's group", .0.display())]
    Denied(PathBuf),
    /// Any other failure.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A process accepts the connection and does not answer.
    #[error("{}: {}", .0.display(), .1)]
    Transport(PathBuf, tonic::transport::Error),
}

/// Connects to the manager at `socket`; every call on the channel ends within `deadline`.
pub async fn connect(socket: &Path, deadline: Duration) -> Result<Channel, ConnectError> {
    // For a missing socket, a channel only says "transport error".
    look(socket).await?;
    let path = socket.to_owned();
    // The address is not used, but gRPC needs one for its `:authority`.
    Endpoint::from_static("http://localhost")
        .connect_timeout(deadline)
        .timeout(deadline)
        .connect_with_connector(service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .map_err(|error| ConnectError::Transport(socket.to_owned(), error))
}

/// Whether a process listens at `socket`.
pub async fn look(socket: &Path) -> Result<(), ConnectError> {
    let found = UnixStream::connect(socket).await;
    found.map(drop).map_err(|error| connect_error(socket, error))
}

fn connect_error(socket: &Path, error: io::Error) -> ConnectError {
    let socket = socket.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ConnectError::Absent(socket),
        io::ErrorKind::ConnectionRefused => ConnectError::Dead(socket),
        io::ErrorKind::PermissionDenied => ConnectError::Denied(socket),
        _ => ConnectError::Io(socket, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn an_absent_manager_is_told_from_a_dead_one() {
        let scratch = tempfile::tempdir().unwrap();
        let socket = scratch.path().join("manager.sock");
        assert!(matches!(connect(&socket, DEADLINE).await, Err(ConnectError::Absent(_))));
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(matches!(connect(&socket, DEADLINE).await, Err(ConnectError::Dead(_))));
    }
}
