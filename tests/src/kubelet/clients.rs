//! Plugins connected to kubelet: found in the watched directory, dialled, with their lists read until the stream ends.
//!
//! pkg/kubelet/cm/devicemanager/plugin/v1beta1 (server, handler, client) and pkg/kubelet/pluginmanager.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::transport::Channel;
use vcuda_kubelet_api::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use vcuda_kubelet_api::v1beta1::device_plugin_client::DevicePluginClient;
use vcuda_kubelet_api::v1beta1::{DevicePluginOptions, Empty};
use vcuda_kubelet_api::{DEVICE_PLUGIN, DRA_PLUGIN, MESSAGE_MAX, VERSION, connect};

use super::{Authority, Node, raw};

/// Time limit for dialling a plugin.
const DIALS_WITHIN: Duration = Duration::from_secs(10);
/// Time limit for GetInfo and NotifyRegistrationStatus.
const ASKS_WITHIN: Duration = Duration::from_secs(1);
/// Interval between two listings of the directory.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// First and longest pause before a path is tried again: it doubles with each failure, whatever is at the path meanwhile
/// (pkg/util/goroutinemap/exponentialbackoff).
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(122);

/// A connected plugin.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) channel: Channel,
    pub(super) options: DevicePluginOptions,
    /// Task that reads its list.
    reading: Option<AbortHandle>,
}

impl Client {
    pub(super) fn plugin(&self) -> DevicePluginClient<Channel> {
        DevicePluginClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_MAX)
    }
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Listens as kubelet does for plugins that register by a call, which vcuda's does not.
pub(super) fn listen(socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
}

/// Dials a plugin, reads its options, and then its list.
async fn connect_plugin(node: &Arc<Node>, resource: &str, socket: &Path) -> Result<(), String> {
    if !resource.contains('/') || resource.contains("kubernetes.io/") {
        return Err(format!("the name {resource:?} is no extended resource's"));
    }
    let channel = connect(socket, DIALS_WITHIN).await;
    let channel = channel.map_err(|error| format!("failed to dial {}: {error}", socket.display()))?;
    let mut client = Client {
        number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        channel,
        options: DevicePluginOptions::default(),
        reading: None,
    };
    let options = client.plugin().get_device_plugin_options(Empty {}).await;
    client.options = options.map_err(|status| status.message().to_owned())?.into_inner();
    let number = client.number;
    node.devices.lock().connected(resource, client.clone());
    let (reader, name) = (Arc::clone(node), resource.to_owned());
    let mut plugin = client.plugin();
    let reading = tokio::spawn(async move {
        read(&reader, &name, &mut plugin).await;
        // By name, as runClient looks the client up again when its stream has ended.
        reader.disconnect(&name);
    });
    let mut devices = node.devices.lock();
    if let Some(held) = devices.clients.get_mut(resource).filter(|held| held.number == number) {
        held.reading = Some(reading.abort_handle());
    }
    Ok(())
}

async fn read(node: &Node, resource: &str, plugin: &mut DevicePluginClient<Channel>) {
    let Ok(lists) = plugin.list_and_watch(Empty {}).await else {
        return;
    };
    let mut lists = lists.into_inner();
    loop {
        match lists.message().await {
            Ok(Some(list)) => {
                let mut devices = node.devices.lock();
                if let Err(wrong) = devices.listed(resource, &list.devices) {
                    node.wrong(format!("{resource}: {wrong}"));
                }
                devices.write(&node.checkpoint());
            }
            Ok(None) => return,
            Err(status) => {
                if status.code() == tonic::Code::OutOfRange {
                    node.wrong(format!("{resource}: a list of more than {MESSAGE_MAX} bytes"));
                }
                return;
            }
        }
    }
}

impl Node {
    /// Disconnects a plugin: its devices become unhealthy, and stay known.
    pub(super) fn disconnect(&self, resource: &str) {
        let client = self.devices.lock().disconnected(resource);
        if let Some(reading) = client.and_then(|client| client.reading) {
            reading.abort();
        }
    }
}

/// A socket's inode and its creation time.
type Identity = (u64, i64, i64);

/// Registers new sockets of the directory, and forgets removed ones.
pub(super) async fn watch(node: Arc<Node>) {
    // By socket: its identity, and the registered resource.
    let mut known: HashMap<PathBuf, (Identity, Option<String>)> = HashMap::new();
    // By path: the pause after its last failure, and that pause's end.
    let mut pauses: HashMap<PathBuf, (Duration, Instant)> = HashMap::new();
    let mut ticks = tokio::time::interval(LOOKS_EVERY);
    loop {
        ticks.tick().await;
        let mut there = HashSet::new();
        for entry in std::fs::read_dir(node.registry()).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(metadata) = std::fs::symlink_metadata(&path) else {
                continue;
            };
            if !metadata.file_type().is_socket() {
                continue;
            }
            there.insert(path.clone());
            let identity = (metadata.ino(), metadata.ctime(), metadata.ctime_nsec());
            let is_registered =
                known.get(&path).is_some_and(|(before, name)| *before == identity && name.is_some());
            if is_registered {
                continue;
            }
            if let Some((_, Some(name))) = known.remove(&path) {
                node.disconnect(&name);
            }
            if pauses.get(&path).is_some_and(|(_, end)| Instant::now() < *end) {
                continue;
            }
            let registered = register(&node, &path).await;
            match (&registered, pauses.get(&path)) {
                (Ok(_), _) => drop(pauses.remove(&path)),
                (Err(_), before) => {
                    let pause =
                        before.map_or(*node.first_pause.lock(), |(pause, _)| LONGEST_PAUSE.min(*pause * 2));
                    pauses.insert(path.clone(), (pause, Instant::now() + pause));
                }
            }
            known.insert(path, (identity, registered.ok()));
        }
        known.retain(|path, (_, name)| {
            let is_there = there.contains(path);
            if let (false, Some(name)) = (is_there, name) {
                node.disconnect(name);
            }
            is_there
        });
    }
}

/// Asks for the plugin's identity, connects it, and informs it. Returns the resource.
async fn register(node: &Arc<Node>, socket: &Path) -> Result<String, String> {
    let path = socket.display().to_string();
    let authority = match node.authority {
        Authority::Localhost => "localhost".to_owned(),
        Authority::Path => path,
        Authority::Escaped => path.replace('/', "%2F"),
    };
    let service = "/pluginregistration.Registration";
    let info: PluginInfo =
        raw::call(socket, &authority, &format!("{service}/GetInfo"), &InfoRequest {}, ASKS_WITHIN).await?;
    // kubelet has another part for these, which a test plays by itself: two answers to one driver would contradict each other.
    if info.r#type == DRA_PLUGIN {
        return Ok(info.name);
    }
    let taken = if info.r#type != DEVICE_PLUGIN {
        Err(format!("no handler registered for plugin type: {}", info.r#type))
    } else if !info.supported_versions.iter().any(|version| version == VERSION) {
        Err(format!("versions {:?} are not supported", info.supported_versions))
    } else {
        connect_plugin(node, &info.name, Path::new(&info.endpoint)).await
    };
    let status = RegistrationStatus {
        plugin_registered: taken.is_ok(),
        error: taken.clone().err().unwrap_or_default(),
    };
    let notify = format!("{service}/NotifyRegistrationStatus");
    let told: Result<RegistrationStatusResponse, String> =
        raw::call(socket, &authority, &notify, &status, 5 * ASKS_WITHIN).await;
    taken.and(told)?;
    Ok(info.name)
}
