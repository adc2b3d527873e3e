//! Registration with kubelet, for each resource, by a socket in the directory that kubelet watches: kubelet queries it by itself, also
//! after its own restart. Every supported kubelet registers device plugins so (pkg/kubelet/kubelet.go,
//! initializeRuntimeDependentModules, without a feature gate; pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go).
//!
//! Kubelet must see the end of a stream of lists before the next one begins: when a stream ends, kubelet looks the plugin up by
//! name, and would end the new stream. So the plugin closes its streams first, and registers again whenever a stream ends.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use vcuda_kubelet_api::KUBELET_SOCKET;

use crate::ids::Kind;
use crate::metrics::{Instruments, Registered};
use crate::node::NodeReceiver;
use crate::serve::{Listening, Readers, Resource};

pub(crate) mod changes;
pub(crate) mod name;
pub(crate) mod watched;

use changes::DirectoryChanges;
use name::WatchedName;
use watched::RegistrationState;

/// Time without a query while kubelet runs after which the socket is made anew, under another name.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The same after the end of a stream.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);
/// Wait for kubelet to notice the end of a stream.
const STREAM_END_DELAY: Duration = Duration::from_millis(150);
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directories {
    /// Kubelet's root directory, such as `/var/lib/kubelet`.
    pub(crate) kubelet: PathBuf,
}

impl Directories {
    /// Directory of kubelet's own socket and its checkpoint.
    pub(crate) fn device_plugins(&self) -> PathBuf {
        self.kubelet.join("device-plugins")
    }

    /// Directory that kubelet watches for plugins' sockets.
    pub(crate) fn registry(&self) -> PathBuf {
        self.kubelet.join("plugins_registry")
    }

    /// Directory of the plugin's own sockets and locks.
    pub(crate) fn own(&self) -> PathBuf {
        self.kubelet.join("plugins/vcuda.io")
    }

    pub(crate) fn pod_resources(&self) -> PathBuf {
        self.kubelet.join("pod-resources").join(KUBELET_SOCKET)
    }

    fn kubelet_socket(&self) -> PathBuf {
        self.device_plugins().join(KUBELET_SOCKET)
    }

    fn service_socket(&self, kind: Kind) -> PathBuf {
        self.own().join(format!("dp-{}.sock", kind.word()))
    }
}

#[derive(Debug)]
pub(crate) struct Registrar {
    directories: Directories,
    watched: WatchedName,
    resource: Resource,
    readers: Readers,
    node: NodeReceiver,
    changes: DirectoryChanges,
    instruments: Arc<Instruments>,
    /// Whether kubelet reads the list.
    is_connected: watch::Sender<bool>,
}

impl Registrar {
    pub(crate) fn new(directories: Directories, resource: Resource, changes: DirectoryChanges) -> Self {
        Self {
            watched: WatchedName::find(directories.registry(), format!("vcuda.io-{}", resource.kind.word())),
            directories,
            readers: resource.readers.clone(),
            node: resource.shared.node.clone(),
            instruments: Arc::clone(&resource.shared.instruments),
            resource,
            changes,
            is_connected: watch::Sender::new(false),
        }
    }

    pub(crate) fn is_connected(&self) -> watch::Receiver<bool> {
        self.is_connected.subscribe()
    }

    /// Registers, and again whenever kubelet stops reading, until the task is dropped.
    pub(crate) async fn run(mut self) {
        // It does not register before the GPUs are known: kubelet fails pods whose devices are missing from the first list.
        if self.node.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut backoff = Backoff::default();
        let mut is_warned = false;
        loop {
            // The old connections end before there is another socket.
            self.close().await;
            let (state, answers) = watch::channel(RegistrationState::default());
            match self.serve_watched(state) {
                Ok((_service, registration)) => {
                    is_warned = false;
                    self.serve_until_replaced(&registration, answers.clone(), &mut backoff).await;
                    let is_queried = answers.borrow().is_queried;
                    if !is_queried && registration.is_intact() {
                        self.watched.renew();
                    }
                }
                Err(error) => {
                    if !is_warned {
                        warn!(resource = self.resource.name, "cannot be offered to kubelet yet: {error}");
                        is_warned = true;
                    }
                    self.instruments.registered(self.resource.kind, Registered::Failed);
                    backoff.wait(&mut self.changes).await;
                }
            }
        }
    }

    /// Serves the registration socket until a new one must replace it.
    async fn serve_until_replaced(
        &mut self,
        registration: &Listening,
        mut answers: watch::Receiver<RegistrationState>,
        backoff: &mut Backoff,
    ) {
        // Kubelet queries by itself, also after its own restart. A new socket is for a kubelet that missed the last one.
        let mut renew = Instant::now() + QUERY_TIMEOUT;
        loop {
            if self.is_read() {
                self.note_connected();
                *backoff = Backoff::default();
                self.wait_while_read(registration).await;
                renew = Instant::now() + RETURN_TIMEOUT;
            }
            if !registration.is_intact() {
                return;
            }
            let refused = answers.borrow_and_update().refused.clone();
            if let Some(why) = refused {
                warn!(resource = self.resource.name, "kubelet refuses: {why}");
                self.instruments.registered(self.resource.kind, Registered::Refused);
                backoff.wait(&mut self.changes).await;
                return;
            }
            match UnixStream::connect(self.directories.kubelet_socket()).await {
                Ok(_) if Instant::now() >= renew => return,
                Ok(_) => {}
                // The time counts only while kubelet runs.
                Err(_) => renew = Instant::now() + QUERY_TIMEOUT,
            }
            self.changes.wait(Duration::from_millis(100)).await;
        }
    }

    fn is_read(&self) -> bool {
        *self.readers.count().borrow() > 0
    }

    fn note_connected(&self) {
        self.instruments.registered(self.resource.kind, Registered::Done);
        self.is_connected.send_replace(true);
        self.instruments.connected(self.resource.kind, true);
        info!(resource = self.resource.name, "registered with kubelet");
    }

    /// Waits until kubelet reads the list no more, or the socket is gone.
    async fn wait_while_read(&mut self, listening: &Listening) {
        let mut count = self.readers.count();
        while *count.borrow_and_update() > 0 && listening.is_intact() {
            tokio::select! {
                _ = count.changed() => {}
                () = self.changes.wait(Duration::from_secs(1)) => {}
            }
        }
        self.is_connected.send_replace(false);
        self.instruments.connected(self.resource.kind, false);
        warn!(resource = self.resource.name, "kubelet reads the list no more");
        sleep(STREAM_END_DELAY).await;
    }

    /// Closes the open streams, and gives kubelet the time to notice.
    async fn close(&self) {
        if self.is_read() {
            self.readers.close();
            let mut count = self.readers.count();
            let _ = tokio::time::timeout(BACKOFF_MAX, count.wait_for(|open| *open == 0)).await;
            sleep(STREAM_END_DELAY).await;
        }
        self.is_connected.send_replace(false);
    }
}

/// The pause before the next try, which doubles with each.
#[derive(Debug)]
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF_MIN)
    }
}

impl Backoff {
    /// Waits for the pause, or until a change in kubelet's directories.
    async fn wait(&mut self, changes: &mut DirectoryChanges) {
        changes.wait(self.0).await;
        self.0 = (self.0 * 2).min(BACKOFF_MAX);
        // Changes at the same time count once.
        sleep(BACKOFF_MIN).await;
    }
}
