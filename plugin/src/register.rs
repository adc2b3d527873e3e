//! Registration with kubelet, for each resource. The first method is a socket in the directory that kubelet watches: kubelet
//! queries it by itself, also after its own restart. If it does not, the plugin calls kubelet's registration service. It never
//! uses both at a time.
//!
//! Kubelet must see the end of a stream of lists before the next one begins: when a stream ends, kubelet looks the plugin up by
//! name, and would end the new stream. So the plugin closes its streams first, and registers again whenever a stream ends.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::service::Routes;
use tracing::{info, warn};
use vcuda_kubelet_api::KUBELET_SOCKET;
use vcuda_kubelet_api::v1beta1::device_plugin_server::DevicePluginServer;

use crate::ids::Kind;
use crate::metrics::{Instruments, Registered};
use crate::node::NodeReceiver;
use crate::serve::{Listening, Readers, Resource, listen};

pub mod changes;
mod classic;
pub mod watched;

use changes::DirectoryChanges;
use watched::RegistrationState;

/// Time without a query at the watched socket after which kubelet counts as one that does not watch.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for kubelet to notice the end of a stream.
const STREAM_END_DELAY: Duration = Duration::from_millis(150);
/// First pause between tries.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause between tries.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Method of registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationMethod {
    /// The watched directory, and kubelet's service if kubelet does not watch it.
    Auto,
    /// The watched directory only.
    Watched,
    /// Kubelet's registration service only.
    Classic,
}

/// Kubelet's directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// Kubelet's root directory, such as `/var/lib/kubelet`.
    pub kubelet: PathBuf,
}

impl Directories {
    /// Directory of kubelet's own socket, its checkpoint, and classic plugins' sockets.
    pub fn device_plugins(&self) -> PathBuf {
        self.kubelet.join("device-plugins")
    }

    /// Directory that kubelet watches for plugins' sockets.
    pub fn registry(&self) -> PathBuf {
        self.kubelet.join("plugins_registry")
    }

    /// Directory of the plugin's own sockets and locks.
    pub fn own(&self) -> PathBuf {
        self.kubelet.join("plugins/vcuda.io")
    }

    /// PodResources' socket.
    pub fn pod_resources(&self) -> PathBuf {
        self.kubelet.join("pod-resources").join(KUBELET_SOCKET)
    }

    fn kubelet_socket(&self) -> PathBuf {
        self.device_plugins().join(KUBELET_SOCKET)
    }

    fn watched_socket(&self, kind: Kind) -> PathBuf {
        self.registry().join(format!("vcuda.io-{}-reg.sock", kind.word()))
    }

    fn service_socket(&self, kind: Kind) -> PathBuf {
        self.own().join(format!("dp-{}.sock", kind.word()))
    }

    fn classic_socket(&self, kind: Kind) -> PathBuf {
        self.device_plugins().join(classic_name(kind))
    }
}

fn classic_name(kind: Kind) -> String {
    format!("vcuda.io-{}.sock", kind.word())
}

/// Keeps one resource registered.
#[derive(Debug)]
pub struct Registrar {
    directories: Directories,
    method: RegistrationMethod,
    resource: Resource,
    readers: Readers,
    node: NodeReceiver,
    changes: DirectoryChanges,
    instruments: Arc<Instruments>,
    /// Whether kubelet reads the list.
    is_connected: watch::Sender<bool>,
}

impl Registrar {
    /// Creates a registrar for `resource`.
    pub fn new(
        directories: Directories,
        method: RegistrationMethod,
        resource: Resource,
        changes: DirectoryChanges,
    ) -> Self {
        Self {
            directories,
            method,
            readers: resource.readers.clone(),
            node: resource.shared.node.clone(),
            instruments: Arc::clone(&resource.shared.instruments),
            resource,
            changes,
            is_connected: watch::Sender::new(false),
        }
    }

    /// Receiver of whether kubelet reads the list.
    pub fn is_connected(&self) -> watch::Receiver<bool> {
        self.is_connected.subscribe()
    }

    /// Registers, and again whenever kubelet stops reading, until the task is dropped.
    pub async fn run(mut self) {
        // It does not register before the GPUs are known: kubelet fails pods whose devices are missing from the first list.
        if self.node.wait_for(Option::is_some).await.is_err() {
            return;
        }
        if self.method != RegistrationMethod::Classic {
            self.run_watched().await;
            info!(
                resource = self.resource.name,
                "kubelet does not ask at the sockets that it should watch: it is asked to register us"
            );
        }
        self.run_classic().await;
    }

    fn routes(&self) -> Routes {
        Routes::new(DevicePluginServer::new(self.resource.clone()))
    }

    fn serve(&self, path: &Path) -> std::io::Result<Listening> {
        listen(path, self.routes())
    }

    /// Registers by the watched directory. Returns only if kubelet does not watch it, or refuses.
    async fn run_watched(&mut self) {
        let mut backoff = Backoff::default();
        let mut uptime = KubeletUptime::default();
        let mut is_warned = false;
        loop {
            // The old connections end before there is another socket.
            self.close().await;
            let (state, answers) = watch::channel(RegistrationState::default());
            match self.serve_watched(state) {
                Ok((_service, registration)) => {
                    is_warned = false;
                    let outcome =
                        self.serve_until_replaced(&registration, answers, &mut backoff, &mut uptime);
                    if outcome.await.is_break() {
                        return;
                    }
                }
                Err(error) => {
                    if !is_warned {
                        warn!(resource = self.resource.name, "cannot be offered to kubelet yet: {error}");
                        is_warned = true;
                    }
                    backoff.wait(&mut self.changes).await;
                }
            }
        }
    }

    /// Serves the registration socket until a new one must replace it. Breaks if kubelet does not watch the directory, or refuses.
    async fn serve_until_replaced(
        &mut self,
        registration: &Listening,
        mut answers: watch::Receiver<RegistrationState>,
        backoff: &mut Backoff,
        uptime: &mut KubeletUptime,
    ) -> ControlFlow<()> {
        // Kubelet queries by itself, also after its own restart. A new socket is for a kubelet that missed the last one.
        let mut renew = Instant::now() + QUERY_TIMEOUT;
        loop {
            if self.is_read() {
                self.note_connected("watched");
                (*backoff, *uptime) = (Backoff::default(), KubeletUptime::default());
                self.wait_while_read(registration).await;
                renew = Instant::now() + RETURN_TIMEOUT;
            }
            if !registration.is_intact() {
                return ControlFlow::Continue(());
            }
            let answer = answers.borrow_and_update().clone();
            if let Some(why) = answer.refused {
                warn!(resource = self.resource.name, "kubelet refuses: {why}");
                self.instruments.registered(self.resource.kind, Registered::Refused);
                if self.method == RegistrationMethod::Auto {
                    return ControlFlow::Break(());
                }
                backoff.wait(&mut self.changes).await;
                return ControlFlow::Continue(());
            }
            match uptime.since(&self.directories.kubelet_socket()).await {
                Some(since)
                    if self.method == RegistrationMethod::Auto
                        && since.elapsed() >= QUERY_TIMEOUT
                        && !answer.was_queried =>
                {
                    return ControlFlow::Break(());
                }
                Some(_) if Instant::now() >= renew => return ControlFlow::Continue(()),
                Some(_) => {}
                // The time counts only while kubelet runs.
                None => renew = Instant::now() + QUERY_TIMEOUT,
            }
            self.changes.wait(Duration::from_millis(100)).await;
        }
    }

    /// Registers by kubelet's registration service, again and again.
    async fn run_classic(&mut self) {
        let mut backoff = Backoff::default();
        loop {
            self.close().await;
            match self.register_classic().await {
                Ok(listening) => {
                    self.note_connected("classic");
                    backoff = Backoff::default();
                    self.wait_while_read(&listening).await;
                }
                Err(error) => {
                    if backoff.is_first() {
                        warn!(resource = self.resource.name, "not registered: {error}; it is tried again");
                    }
                    if !error.is_absence() {
                        self.instruments.registered(self.resource.kind, Registered::Failed);
                    }
                    backoff.wait(&mut self.changes).await;
                }
            }
        }
    }

    fn is_read(&self) -> bool {
        *self.readers.count().borrow() > 0
    }

    fn note_connected(&self, way: &str) {
        self.instruments.registered(self.resource.kind, Registered::Done);
        self.is_connected.send_replace(true);
        self.instruments.connected(self.resource.kind, true);
        info!(resource = self.resource.name, way, "registered with kubelet");
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

/// Wait for kubelet's query after the end of a stream, before the socket is replaced.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);

/// Time at which kubelet was first seen to run; `None` while it does not.
#[derive(Debug, Default)]
struct KubeletUptime(Option<Instant>);

impl KubeletUptime {
    /// Time since which kubelet has listened at `socket`; `None` if it does not.
    async fn since(&mut self, socket: &Path) -> Option<Instant> {
        match tokio::net::UnixStream::connect(socket).await {
            Ok(_) => Some(*self.0.get_or_insert_with(Instant::now)),
            Err(_) => {
                self.0 = None;
                None
            }
        }
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
    fn is_first(&self) -> bool {
        self.0 == BACKOFF_MIN
    }

    fn next_pause(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(BACKOFF_MAX);
        now
    }

    /// Waits for the pause, or until a change in kubelet's directories.
    async fn wait(&mut self, changes: &mut DirectoryChanges) {
        let time = self.next_pause();
        changes.wait(time).await;
        // Changes at the same time count once.
        sleep(BACKOFF_MIN).await;
    }
}
