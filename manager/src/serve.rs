//! The API's socket: its permissions, its limits, and its end.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tonic::codegen::http::Response;
use tonic::codegen::http::header::{DATE, HeaderValue};
use tonic::transport::Server;
use tower::util::MapResponseLayer;
use vcuda_manager_api::SOCKET_NAME;
use vcuda_manager_api::v1::grants_server::GrantsServer;
use vcuda_manager_api::v1::node_server::NodeServer;

use crate::access::Access;
use crate::background::stopped;
use crate::metrics::Instruments;
use crate::service::{GrantsService, NodeService};
use crate::settings::Api;
use crate::state::Grants;

mod guard;
mod peer;
mod timed;

use guard::Guarded;
use timed::Timed;

/// Maximum size of a request's headers (bytes).
const HEADER_BYTES: u32 = 16 << 10;

/// Failure to serve the API.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Another process answers at the socket.
    #[error("{}: another manager answers there; stop it, or give this one a root of its own", .0.display())]
    Taken(PathBuf),
    /// The file at the socket's path is no socket.
    #[error("{}: it is no socket; remove it", .0.display())]
    Foreign(PathBuf),
    /// The socket cannot be made.
    #[error("{}: {}; the root has to be the manager's, with a path of at most 80 bytes", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// The server failed.
    #[error("the API's server: {0}")]
    Server(#[from] tonic::transport::Error),
}

/// Makes the socket in `root`; no client can connect before it has its permissions. A dead manager's socket is replaced.
pub fn listen(root: &Path, api: &Api) -> Result<UnixListener, ServeError> {
    let path = root.join(SOCKET_NAME);
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(ServeError::Io(path, error)),
        Ok(found) if !found.file_type().is_socket() => return Err(ServeError::Foreign(path)),
        Ok(_) if UnixStream::connect(&path).is_ok() => return Err(ServeError::Taken(path)),
        Ok(_) => {}
    }
    // Made under a name that only this user can reach, until it has its permissions.
    let private = root.join(format!(".api-{}", std::process::id()));
    let made = make(&private, api).and_then(|listener| {
        fs::rename(private.join(SOCKET_NAME), &path)?;
        Ok(listener)
    });
    let _ = fs::remove_dir_all(&private);
    made.map_err(|error| ServeError::Io(path, error))
}

fn make(private: &Path, api: &Api) -> io::Result<UnixListener> {
    match fs::remove_dir_all(private) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(private)?;
    let socket = private.join(SOCKET_NAME);
    let listener = UnixListener::bind(&socket)?;
    if let Some(group) = api.group {
        chown(&socket, None, Some(group))?;
    }
    fs::set_permissions(&socket, Permissions::from_mode(Access::new(api).socket_mode(api)))?;
    Ok(listener)
}

/// Serves the API and records durations in `instruments` until `stop` is true. Then open requests may end, and streams are
/// ended.
pub async fn serve(
    listener: UnixListener,
    api: &Api,
    grants: GrantsService,
    node: NodeService,
    instruments: Arc<Instruments>,
    stop: watch::Receiver<bool>,
) -> Result<(), ServeError> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<GrantsServer<GrantsService>>().await;
    health.set_serving::<NodeServer<NodeService>>().await;
    let updating = tokio::spawn(update_health(health, grants.grants().clone(), stop.clone()));
    let access = Arc::new(Access::new(api));
    let incoming = peer::accept(listener, api, Arc::clone(&access), node.events(), stop.clone());
    let router = Server::builder()
        .layer(MapResponseLayer::new(dated))
        // A safety net: the service's own deadline comes earlier with a better error. It also ends requests that are never
        // completed.
        .timeout(api.deadline + Duration::from_secs(1))
        .max_concurrent_streams(api.requests_per_connection)
        .http2_max_header_list_size(HEADER_BYTES)
        .http2_keepalive_interval(Some(api.peer_timeout))
        .http2_keepalive_timeout(Some(api.peer_timeout))
        .add_service(health_service)
        .add_service(Timed::new(
            Guarded::new(GrantsServer::new(grants).max_decoding_message_size(api.request_bytes), &access),
            &instruments,
        ))
        .add_service(Timed::new(
            Guarded::new(NodeServer::new(node).max_decoding_message_size(api.request_bytes), &access),
            &instruments,
        ));
    let server = router.serve_with_incoming_shutdown(incoming, stopped(stop.clone()));
    let late = async {
        stopped(stop).await;
        tokio::time::sleep(api.drain).await;
    };
    let ended = tokio::select! {
        ended = server => ended.map_err(ServeError::from),
        () = late => Ok(()),
    };
    updating.abort();
    ended
}

/// Sets the date of an answer if the clock is before 1970, where the HTTP library would panic.
fn dated<B>(mut answer: Response<B>) -> Response<B> {
    if SystemTime::now() < UNIX_EPOCH {
        let first = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");
        answer.headers_mut().insert(DATE, first);
    }
    answer
}

/// Marks the grants service as not serving while the ledger cannot be written; the node service stays.
async fn update_health(
    health: tonic_health::server::HealthReporter,
    grants: Grants,
    stop: watch::Receiver<bool>,
) {
    let mut problem = grants.problem();
    drop(grants);
    let updates = async {
        loop {
            let has_problem = problem.borrow_and_update().is_some();
            if has_problem {
                health.set_not_serving::<GrantsServer<GrantsService>>().await;
            } else {
                health.set_serving::<GrantsServer<GrantsService>>().await;
            }
            if problem.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = updates => {}
        () = stopped(stop) => {}
    }
}
