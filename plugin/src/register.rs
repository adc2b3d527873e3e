//! Registration with kubelet, for each resource: first by a socket in the directory that kubelet watches, which it asks again
//! by itself after its own restart; by kubelet's registration service if it does not ask. Never by both at a time.
//!
//! Kubelet has to have seen the end of one stream of lists before the next begins: it looks plugins up by name when a stream
//! ends, and would end the new one. So what is open is closed first, and whenever a stream ends we register anew.

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
use crate::node::Known;
use crate::serve::{Listening, Readers, Resource, listen};

pub mod changes;
mod classic;
pub mod watched;

use changes::Changes;
use watched::Asked;

/// Time that kubelet may take to ask at the watched socket before it is taken for one that does not watch.
const ASKS_WITHIN: Duration = Duration::from_secs(5);
/// Until kubelet has seen the end of a stream.
const SEEN_WITHIN: Duration = Duration::from_millis(150);
/// Between tries.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// At most.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Ways to register that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    /// The watched one first.
    Both,
    /// Only by the directory that kubelet watches.
    Watched,
    /// Only by kubelet's service.
    Classic,
}

/// Kubelet's directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// `/var/lib/kubelet`.
    pub kubelet: PathBuf,
}

impl Directories {
    /// Directory of kubelet's own socket, its checkpoint, and classic plugins' sockets.
    #[must_use]
    pub fn device_plugins(&self) -> PathBuf {
        self.kubelet.join("device-plugins")
    }

    /// Folder that kubelet watches.
    #[must_use]
    pub fn registry(&self) -> PathBuf {
        self.kubelet.join("plugins_registry")
    }

    /// Ours.
    #[must_use]
    pub fn own(&self) -> PathBuf {
        self.kubelet.join("plugins/vcuda.io")
    }

    /// PodResources' socket.
    #[must_use]
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
    ways: Ways,
    resource: Resource,
    readers: Readers,
    node: Known,
    changes: Changes,
    instruments: Arc<Instruments>,
    /// Whether kubelet reads the list.
    is_connected: watch::Sender<bool>,
}

impl Registrar {
    /// One for `resource`.
    #[must_use]
    pub fn new(directories: Directories, ways: Ways, resource: Resource, changes: Changes) -> Self {
        Self {
            directories,
            ways,
            readers: resource.readers.clone(),
            node: resource.shared.node.clone(),
            instruments: Arc::clone(&resource.shared.instruments),
            resource,
            changes,
            is_connected: watch::Sender::new(false),
        }
    }

    /// Whether kubelet reads the list.
    #[must_use]
    pub fn is_connected(&self) -> watch::Receiver<bool> {
        self.is_connected.subscribe()
    }

    /// Registers, and again, until it is dropped.
    pub async fn run(mut self) {
        // Nothing is announced before it is known: devices that are missing from the first list end pods.
        if self.node.wait_for(Option::is_some).await.is_err() {
            return;
        }
        if self.ways != Ways::Classic {
            self.watched().await;
            info!(
                resource = self.resource.name,
                "kubelet does not ask at the sockets that it should watch: it is asked to register us"
            );
        }
        self.classic().await;
    }

    fn routes(&self) -> Routes {
        Routes::new(DevicePluginServer::new(self.resource.clone()))
    }

    fn serve(&self, path: &Path) -> std::io::Result<Listening> {
        listen(path, self.routes())
    }

    /// Registers by the directory that kubelet watches. Returns only if kubelet does not watch it, or refuses.
    async fn watched(&mut self) {
        let mut backoff = Backoff::default();
        let mut up = Up::default();
        let mut is_warned = false;
        loop {
            // The old connections have ended, or were closed, before another socket is there.
            self.close().await;
            let (asked, answers) = watch::channel(Asked::default());
            match self.offer(asked) {
                Ok((_service, registration)) => {
                    is_warned = false;
                    let outcome = self.while_offered(&registration, answers, &mut backoff, &mut up);
                    if outcome.await.is_break() {
                        return;
                    }
                }
                Err(error) => {
                    if !is_warned {
                        warn!(
                            resource = self.resource.name,
                            "cannot be offered to kubelet yet: {error}"
                        );
                        is_warned = true;
                    }
                    backoff.wait(&mut self.changes).await;
                }
            }
        }
    }

    /// Serves one socket until another has to replace it. Breaks if kubelet does not watch the directory, or refuses.
    async fn while_offered(
        &mut self,
        registration: &Listening,
        mut answers: watch::Receiver<Asked>,
        backoff: &mut Backoff,
        up: &mut Up,
    ) -> ControlFlow<()> {
        // Kubelet comes by itself, also after its own restart; a new socket is for one that missed the last.
        let mut renew = Instant::now() + ASKS_WITHIN;
        loop {
            if self.is_read() {
                self.connected("watched");
                (*backoff, *up) = (Backoff::default(), Up::default());
                self.while_read(registration).await;
                renew = Instant::now() + RETURNS_WITHIN;
            }
            if !registration.is_intact() {
                return ControlFlow::Continue(());
            }
            let answer = answers.borrow_and_update().clone();
            if let Some(why) = answer.refused {
                warn!(resource = self.resource.name, "kubelet refuses: {why}");
                self.instruments
                    .registered(self.resource.kind, Registered::Refused);
                if self.ways == Ways::Both {
                    return ControlFlow::Break(());
                }
                backoff.wait(&mut self.changes).await;
                return ControlFlow::Continue(());
            }
            match up.since(&self.directories.kubelet_socket()).await {
                Some(since) if self.ways == Ways::Both && since.elapsed() >= ASKS_WITHIN && !answer.came => {
                    return ControlFlow::Break(());
                }
                Some(_) if Instant::now() >= renew => return ControlFlow::Continue(()),
                Some(_) => {}
                // The time runs while there is a kubelet.
                None => renew = Instant::now() + ASKS_WITHIN,
            }
            self.changes.next(Duration::from_millis(100)).await;
        }
    }

    /// Registers by kubelet's service.
    async fn classic(&mut self) {
        let mut backoff = Backoff::default();
        loop {
            self.close().await;
            match self.register_classic().await {
                Ok(listening) => {
                    self.connected("classic");
                    backoff = Backoff::default();
                    self.while_read(&listening).await;
                }
                Err(error) => {
                    if backoff.is_first() {
                        warn!(
                            resource = self.resource.name,
                            "not registered: {error}; it is tried again"
                        );
                    }
                    if !error.is_absence() {
                        self.instruments
                            .registered(self.resource.kind, Registered::Failed);
                    }
                    backoff.wait(&mut self.changes).await;
                }
            }
        }
    }

    fn is_read(&self) -> bool {
        *self.readers.count().borrow() > 0
    }

    fn connected(&self, way: &str) {
        self.instruments.registered(self.resource.kind, Registered::Done);
        self.is_connected.send_replace(true);
        self.instruments.connected(self.resource.kind, true);
        info!(resource = self.resource.name, way, "registered with kubelet");
    }

    /// Until kubelet reads no more, or the socket is gone.
    async fn while_read(&mut self, listening: &Listening) {
        let mut count = self.readers.count();
        while *count.borrow_and_update() > 0 && listening.is_intact() {
            tokio::select! {
                _ = count.changed() => {}
                () = self.changes.next(Duration::from_secs(1)) => {}
            }
        }
        self.is_connected.send_replace(false);
        self.instruments.connected(self.resource.kind, false);
        warn!(resource = self.resource.name, "kubelet reads the list no more");
        sleep(SEEN_WITHIN).await;
    }

    /// Ends what is open, and gives kubelet the time to notice.
    async fn close(&self) {
        if self.is_read() {
            self.readers.close();
            let mut count = self.readers.count();
            let _ = tokio::time::timeout(BACKOFF_MAX, count.wait_for(|open| *open == 0)).await;
            sleep(SEEN_WITHIN).await;
        }
        self.is_connected.send_replace(false);
    }
}

/// After the end of a stream, how long kubelet may take to come back by itself.
const RETURNS_WITHIN: Duration = Duration::from_secs(1);

/// Since when kubelet has been there.
#[derive(Debug, Default)]
struct Up(Option<Instant>);

impl Up {
    /// None: it is not.
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

/// Longer from try to try.
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

    fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(BACKOFF_MAX);
        now
    }

    /// Its time, or until something changes in kubelet's directories.
    async fn wait(&mut self, changes: &mut Changes) {
        let time = self.next();
        changes.next(time).await;
        // Many changes at once are one.
        sleep(BACKOFF_MIN).await;
    }
}
