//! Fixture: a manager's grants and API on a scratch directory, with given GPUs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tonic::transport::Channel;
use vcuda_manager::admission::Rules;
use vcuda_manager::events::Events;
use vcuda_manager::gpu::{Gpu, Inventory};
use vcuda_manager::ledger::{Disk, RealDisk};
use vcuda_manager::metrics::{Instruments, Metrics, Sources};
use vcuda_manager::observe::SnapshotCache;
use vcuda_manager::problems::Refusal;
use vcuda_manager::serve;
use vcuda_manager::service::{About, GrantsService, NodeService};
use vcuda_manager::settings::{Api, Settings};
use vcuda_manager::state::Grants;
use vcuda_manager::state::start::{StartError, WriterThread, start};
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::grants_client::GrantsClient;
use vcuda_manager_api::v1::node_client::NodeClient;
use vcuda_quota::pods::bounds::Bounds;
use vcuda_region::GpuUuid;
use vcuda_region::suspension::SuspendState;

pub(crate) const GIB: u64 = 1 << 30;
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn uuid(number: u8) -> GpuUuid {
    GpuUuid::from_bytes([number; 16])
}

pub(crate) fn gpu(number: u8) -> Gpu {
    Gpu::new(uuid(number), "simulated", 24 * GIB)
}

pub(crate) fn inventory(count: u8) -> Inventory {
    Inventory { gpus: (1..=count).map(gpu).collect(), ..Inventory::default() }
}

pub(crate) fn settings(scratch: &Path) -> Settings {
    Settings {
        root: scratch.join("run"),
        state: scratch.join("lib"),
        rules: Rules::default(),
        bounds: Bounds::default(),
        api: Api::default(),
        devices: Default::default(),
        shim: Default::default(),
    }
}

/// Grants without an API.
pub(crate) struct Kept {
    pub(crate) grants: Grants,
    pub(crate) events: Arc<Events>,
    pub(crate) inventory: watch::Sender<Arc<Inventory>>,
    pub(crate) snapshots: Arc<SnapshotCache>,
    keeping: WriterThread,
}

impl Kept {
    pub(crate) async fn start(settings: Settings, disk: Box<dyn Disk>) -> Result<Self, StartError> {
        let events = Arc::new(Events::default());
        let told = Arc::clone(&events);
        let (inventory, gpus) = watch::channel(Arc::new(inventory(2)));
        let snapshots = Arc::<SnapshotCache>::default();
        let tenants = Arc::clone(&snapshots);
        let started = spawn_blocking(move || start(&settings, disk, &told, gpus, tenants));
        let (grants, keeping) = started.await.unwrap()?;
        Ok(Self { grants, events, inventory, snapshots, keeping })
    }

    pub(crate) async fn stop(self) {
        let grants = self.grants.clone();
        spawn_blocking(move || self.keeping.finish(&grants)).await.unwrap();
    }

    pub(crate) fn has_told(&self, reason: &str) -> bool {
        let (known, _) = self.events.listen(0);
        known.iter().any(|event| event.report.reason == reason)
    }
}

/// Grants and their API.
pub(crate) struct Node {
    pub(crate) kept: Kept,
    pub(crate) settings: Settings,
    pub(crate) instruments: Arc<Instruments>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start(scratch: &Path) -> Self {
        Self::with(settings(scratch), Box::new(RealDisk)).await
    }

    pub(crate) async fn with(settings: Settings, disk: Box<dyn Disk>) -> Self {
        let kept = Kept::start(settings.clone(), disk).await.unwrap();
        let (stop, stopped) = watch::channel(false);
        let api = settings.api.clone();
        let grants = GrantsService::new(kept.grants.clone(), api.deadline, stopped.clone());
        let about = About {
            version: "1.2.3".to_owned(),
            build: "test".to_owned(),
            node: "node-a".to_owned(),
            root: settings.root.display().to_string(),
            started_unix_ms: 1,
            simulated_machine: String::new(),
            shim: std::sync::Arc::default(),
        };
        let node = NodeService::new(
            kept.grants.clone(),
            Arc::clone(&kept.events),
            Arc::new(Refusal::default()),
            about,
            api.deadline,
            stopped.clone(),
        );
        let listener = serve::listen(&settings.root, &api).unwrap();
        let instruments = Arc::new(Instruments::default());
        let told = Arc::clone(&instruments);
        let serving = tokio::spawn(async move {
            serve::serve(listener, &api, grants, node, told, stopped).await.unwrap();
        });
        Self { kept, settings, instruments, stop, serving }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.settings.root.join(vcuda_manager_api::SOCKET_NAME)
    }

    /// Text of a scrape.
    pub(crate) fn scrape(&self) -> String {
        let grants = self.kept.grants.clone();
        let sources = Sources {
            node: "node-a".to_owned(),
            inventory: self.kept.inventory.subscribe(),
            tenants: Arc::clone(&self.kept.snapshots),
            grants: Arc::new(move || grants.grant_table().grants().cloned().collect()),
            cordoned: Arc::new(std::collections::BTreeSet::new),
            has_problem: Arc::new(|| false),
            states: Arc::new(|_| SuspendState::Running),
        };
        Metrics::new(sources, Arc::clone(&self.instruments)).scrape().unwrap()
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.settings.state.join(vcuda_manager::ledger::NAME)
    }

    pub(crate) async fn channel(&self) -> Channel {
        vcuda_manager_api::connect(&self.socket(), DEADLINE).await.unwrap()
    }

    pub(crate) async fn grants(&self) -> GrantsClient<Channel> {
        GrantsClient::new(self.channel().await)
    }

    pub(crate) async fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel().await)
    }

    /// Stops it as SIGTERM does.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.serving.await.unwrap();
        self.kept.stop().await;
    }
}

/// A request for these amounts of one GPU.
pub(crate) fn ask(key: &str, memory_bytes: u64, cores_permille: u32) -> v1::CreateGrantRequest {
    v1::CreateGrantRequest {
        request_id: format!("r-{key}"),
        key: key.to_owned(),
        amounts: Some(amounts(memory_bytes, cores_permille)),
        gpu_count: 1,
        ..v1::CreateGrantRequest::default()
    }
}

pub(crate) fn amounts(memory_bytes: u64, cores_permille: u32) -> v1::Amounts {
    v1::Amounts { memory_bytes, cores_permille, ..v1::Amounts::default() }
}

/// Waits until `is` returns true. The test runner ends a test that waits for ever.
pub(crate) async fn eventually(mut is: impl FnMut() -> bool) {
    while !is() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The next message of a stream. Fails the test, naming what was awaited, after half a minute without one.
pub(crate) async fn next<T>(
    stream: &mut tonic::Streaming<T>,
    what: &str,
) -> Result<Option<T>, tonic::Status> {
    let told = tokio::time::timeout(Duration::from_secs(30), stream.message()).await;
    assert!(told.is_ok(), "the stream says nothing for 30 s: {what}");
    told.unwrap()
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(crate) fn release(id: &str) -> v1::ReleaseGrantRequest {
    v1::ReleaseGrantRequest { id: id.to_owned(), even_if_used: false }
}

pub(crate) fn by_id(id: &str) -> v1::GetGrantRequest {
    v1::GetGrantRequest { grant: Some(v1::get_grant_request::Grant::Id(id.to_owned())) }
}
