//! Unix sockets that other processes may remove or replace. The inode tells whether a socket is still ours.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;
use tracing::warn;

use super::authority::KubeletStream;

/// A served socket. Dropping it removes the socket and closes its connections.
#[derive(Debug)]
pub(crate) struct Listening {
    path: PathBuf,
    inode: (u64, u64),
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Listening {
    /// Whether the socket is still there, and ours.
    pub(crate) fn is_intact(&self) -> bool {
        !self.serving.is_finished() && inode(&self.path).is_ok_and(|inode| inode == self.inode)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            // If it fails, kubelet has removed the socket already.
            let _ = fs::remove_file(&self.path);
        }
        let _ = self.stop.send(true);
        self.serving.abort();
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Serves `routes` at `path`. An old socket there is replaced: the node has only one plugin at a time.
pub(crate) fn listen(path: &Path, routes: Routes) -> io::Result<Listening> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{} is no socket: remove it", path.display()),
            ));
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    let inode = inode(path)?;
    let (stop, mut stopped) = watch::channel(false);
    let incoming = UnixListenerStream::new(listener).map(|stream| stream.map(KubeletStream::new));
    let shown = path.display().to_string();
    let serving = tokio::spawn(async move {
        let until = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let served = Server::builder().add_routes(routes).serve_with_incoming_shutdown(incoming, until);
        if let Err(error) = served.await {
            warn!("{shown}: {error}");
        }
    });
    Ok(Listening { path: path.to_owned(), inode, stop, serving })
}
