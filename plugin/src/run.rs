//! Start of the device plugin's parts, and its end by a signal.

use std::sync::{Arc, OnceLock};

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};
use vcuda_daemon::api_server;
use vcuda_daemon::http;
use vcuda_daemon::life::{self, Ends, RunError};
use vcuda_daemon::pages::{Daemon, Problems, pages};

use crate::annotation_reconciler;
use crate::bind::{BindSettings, Binder};
use crate::cdi::{SlotRecord, Store};
use crate::cluster::Cluster;
use crate::config::{Api, Config};
use crate::event_writer::{EventWriter, Interval};
use crate::ids::Kind;
use crate::manager::Manager;
use crate::metrics::Instruments;
use crate::mode::{Mode, starting};
use crate::node::{Chunks, NodeReceiver, NodeWatcher};
use crate::pod_events;
use crate::pods::Pods;
use crate::publish::Publisher;
use crate::reclaim::reclaim_channel;
use crate::register::Registrar;
use crate::register::changes::DirectoryChanges;
use crate::release::Releaser;
use crate::serve::{Readers, Resource, Shared};
use crate::share_lru::ShareLru;
use vcuda_kubelet_api::CHECKPOINT;

/// Reporter of the plugin's events (`reportingController`: a qualified name).
const CONTROLLER: &str = "vcuda.io/device-plugin";

/// Runs the device plugin until a signal ends it.
pub fn run(config: Config) -> Result<(), RunError> {
    run_until_signal(run_parts(config))
}

/// Runs a daemon's `life` until it ends or a signal ends it.
pub(crate) fn run_until_signal(life: impl Future<Output = Result<(), RunError>>) -> Result<(), RunError> {
    life::block_on(async {
        let mut ends = Ends::listen()?;
        tokio::select! {
            ended = life => ended,
            name = ends.next() => {
                info!(signal = name, "ending; pods run on");
                Ok(())
            }
        }
    })
}

/// Logs the start of a daemon, with the sockets and directories that it uses.
pub(crate) fn log_start(config: &Config) {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        kubelet = %config.directories.kubelet.display(),
        manager = %config.manager.display(),
        "starting"
    );
}

async fn run_parts(config: Config) -> Result<(), RunError> {
    let listener = http::listen(config.metrics).await?;
    log_start(&config);
    let mut tasks = JoinSet::new();
    // Before the locks are taken, so that the plugin can register as soon as it has them.
    let base = Base::start(&config, &mut tasks);
    let problems: Arc<OnceLock<Problems>> = Arc::default();
    let (lock_state, is_locked) = watch::channel(starting());
    if let Some(listener) = listener {
        let (instruments, known) = (Arc::clone(&base.instruments), Arc::clone(&problems));
        let node = base.node.clone();
        // Another daemon is no problem once the GPUs are known: so a rollout ends the other daemon as soon as this one can register
        // at once.
        let problems: Problems = Arc::new(move || match (known.get(), &*is_locked.borrow()) {
            (Some(problems), _) => Problems::as_ref(problems)(),
            (None, Err(why)) => why.clone().or_else(|| missing_gpus(&node)).into_iter().collect(),
            (None, Ok(())) => vec!["it is starting".to_owned()],
        });
        let daemon = Daemon { name: "vcuda-device-plugin", version: env!("CARGO_PKG_VERSION") };
        let pages = pages(daemon, Arc::new(move || instruments.text()), problems);
        tasks.spawn(http::serve(listener, pages, std::future::pending()));
    }
    let refusal = || Mode::Plugin.refusal(&base.store, &base.manager);
    let _locks = Mode::Plugin.wait_for_node(&config.directories, refusal, &lock_state).await;
    let cluster = cluster(&config).await?;
    // The cell is set here alone.
    let _ = problems.set(start(&config, cluster, &base, &mut tasks));
    info!("ready");
    // A part that ends has failed.
    match tasks.join_next().await {
        Some(Err(error)) => Err(RunError::Failed(error.to_string())),
        _ => Err(RunError::Failed("a part has ended".to_owned())),
    }
}

/// Client and pod watch of the API server; `None` if it is off or not configured.
async fn cluster(config: &Config) -> Result<Option<(Client, Cluster)>, RunError> {
    if config.cluster.api == Api::Off {
        return Ok(None);
    }
    let client = api_server::client(config.cluster.kubeconfig.as_deref()).await;
    let unavailable = |error| RunError::Unavailable(format!("{error}; or set [cluster] api = \"off\""));
    let client = client.map_err(unavailable)?;
    if client.is_none() {
        info!("no API server is known: annotations are not read, every pod is fixed and of normal priority");
    }
    let start = |client: Client| (client.clone(), Cluster::start(client, &config.cluster.node));
    Ok(client.map(start))
}

/// The problem text until the manager has listed the node's GPUs.
fn missing_gpus(node: &NodeReceiver) -> Option<String> {
    let is_unknown = node.borrow().is_none();
    is_unknown.then(|| "the manager has not said yet which GPUs there are".to_owned())
}

/// Parts that only read, so that they may run beside another plugin.
struct Base {
    instruments: Arc<Instruments>,
    manager: Arc<Manager>,
    store: Store,
    node: NodeReceiver,
}

impl Base {
    fn start(config: &Config, tasks: &mut JoinSet<()>) -> Self {
        let instruments = Arc::new(Instruments::default());
        let manager = Arc::new(Manager::new(&config.manager));
        let store = Store::new(&config.cdi);
        let watcher =
            NodeWatcher::new(Arc::clone(&manager), store.clone(), chunks(config), Arc::clone(&instruments));
        let node = watcher.subscribe();
        tasks.spawn(watcher.run());
        Self { instruments, manager, store, node }
    }
}

/// Starts the other parts. Registration comes first, as kubelet refuses pods for good until it reads the lists. Returns the
/// source of the readiness problems.
fn start(
    config: &Config,
    cluster: Option<(Client, Cluster)>,
    base: &Base,
    tasks: &mut JoinSet<()>,
) -> Problems {
    let Base { instruments, manager, store, node } = base;
    let pods = Arc::new(Pods::new(
        &config.directories.pod_resources(),
        &config.directories.device_plugins().join(CHECKPOINT),
        config.names.clone(),
    ));
    let (reclaim, reclaim_requests) = reclaim_channel();
    let binder = Arc::new(Binder::new(
        bind_settings(config),
        Arc::clone(&pods),
        Arc::clone(manager),
        store.clone(),
        node.clone(),
        cluster.as_ref().map(|(_, cluster)| cluster.clone()),
        reclaim,
    ));
    let shared = Arc::new(Shared {
        node: node.clone(),
        binder: Arc::clone(&binder),
        share_lru: Arc::new(lru_of_records(store)),
        instruments: Arc::clone(instruments),
    });
    if let Err(error) = store.tidy::<SlotRecord>() {
        warn!("{error}");
    }
    let readers = Readers::default();
    let (share_connection, connected) = register_all(config, &shared, &readers, tasks);
    if let Some(cluster) = cluster {
        start_api_server_tasks(config, cluster, (manager, store), binder, tasks);
    }
    let releaser = Releaser {
        times: config.release,
        pods,
        manager: Arc::clone(manager),
        store: store.clone(),
        share_lru: Arc::clone(&shared.share_lru),
        is_connected: share_connection,
        readers,
        reclaim_requests,
    };
    tasks.spawn(releaser.run());
    problems(node.clone(), connected)
}

/// Starts the tasks that read or write at the API server: annotations, events, and the node's free amounts.
fn start_api_server_tasks(
    config: &Config,
    (client, cluster): (Client, Cluster),
    (manager, store): (&Arc<Manager>, &Store),
    binder: Arc<Binder>,
    tasks: &mut JoinSet<()>,
) {
    let events = |interval| event_writer(config, &client, CONTROLLER, interval);
    tasks.spawn(annotation_reconciler::run(cluster, binder, events(Interval::PerNote)));
    if let Some(events) = events(Interval::PerReason) {
        tasks.spawn(pod_events::run(events, Arc::clone(manager), None));
    }
    if config.cluster.publish {
        let publisher = Publisher::new(client, &config.cluster.node, chunks(config), store.clone());
        tasks.spawn(publisher.run(Arc::clone(manager)));
    }
}

fn chunks(config: &Config) -> Chunks {
    Chunks { bytes: config.chunk_bytes, has_suspendable: config.names.has_suspendable_memory() }
}

/// Writer of Kubernetes events as `controller`; `None` if events are off.
pub(crate) fn event_writer(
    config: &Config,
    client: &Client,
    controller: &str,
    interval: Interval,
) -> Option<EventWriter> {
    let new = || EventWriter::new(client.clone(), controller, &config.cluster.node, interval);
    config.cluster.events.then(new)
}

/// Least recently used order that counts the shares of the records on disk as just used.
fn lru_of_records(store: &Store) -> ShareLru {
    let share_lru = ShareLru::default();
    for record in store.records::<SlotRecord>().unwrap_or_default() {
        share_lru.record_use(record.held.ids_of(Kind::Gpu));
    }
    share_lru
}

pub(crate) fn bind_settings(config: &Config) -> BindSettings {
    BindSettings {
        chunk_bytes: config.chunk_bytes,
        shim_for_whole_gpus: config.shim_for_whole_gpus,
        strict: config.strict,
        devices: config.devices.clone(),
        inject: config.inject,
        driver: config.driver.clone(),
    }
}

/// Whether the resource of this name is registered.
type Connection = (String, watch::Receiver<bool>);

/// Starts a task for each resource that keeps it registered with kubelet. `share_readers` counts kubelet's streams of the
/// list of shares. Returns whether the shares are registered, and the same of each resource.
fn register_all(
    config: &Config,
    shared: &Arc<Shared>,
    share_readers: &Readers,
    tasks: &mut JoinSet<()>,
) -> (watch::Receiver<bool>, Vec<Connection>) {
    let directories = &config.directories;
    let changes = DirectoryChanges::watch(vec![
        directories.device_plugins(),
        directories.registry(),
        directories.own(),
    ]);
    let mut register = |kind, readers: Readers| {
        let name = config.names.name(kind).to_owned();
        let resource = Resource { kind, name: name.clone(), shared: Arc::clone(shared), readers };
        let registrar = Registrar::new(directories.clone(), resource, changes.clone());
        let connected = registrar.is_connected();
        tasks.spawn(registrar.run());
        (name, connected)
    };
    let shares = register(Kind::Gpu, share_readers.clone());
    let share_connection = shares.1.clone();
    let others = config.names.kinds().filter(|kind| *kind != Kind::Gpu);
    let others = others.map(|kind| register(kind, Readers::default()));
    (share_connection, [shares].into_iter().chain(others).collect())
}

fn problems(node: NodeReceiver, connected: Vec<Connection>) -> Problems {
    Arc::new(move || {
        let mut problems: Vec<String> = missing_gpus(&node).into_iter().collect();
        if let Some(state) = node.borrow().as_deref() {
            problems.extend(state.problem.clone());
        }
        for (name, connected) in &connected {
            if !*connected.borrow() {
                problems.push(format!("{name}: kubelet does not read the list"));
            }
        }
        problems
    })
}
