//! The daemon's life: its parts, and the signals that end it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Client;
use nix::fcntl::{Flock, FlockArg};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};
use vcuda_daemon::http;
use vcuda_daemon::life::{self, Ends, RunError};
use vcuda_daemon::pages::{Problems, pages};

use crate::bind::{Binder, Rules};
use crate::cdi::Store;
use crate::cluster::{self, Cluster};
use crate::config::{Api, Config};
use crate::event_writer::EventWriter;
use crate::follow;
use crate::ids::Kind;
use crate::manager::Manager;
use crate::metrics::Instruments;
use crate::mode::Mode;
use crate::node::{Follower, Known};
use crate::pod_choices::{NoChoices, PodChoices};
use crate::pod_events;
use crate::pods::Pods;
use crate::publish::Publisher;
use crate::recency::Recency;
use crate::register::changes::Changes;
use crate::register::{Directories, Registrar};
use crate::release::Releaser;
use crate::room::room;
use crate::serve::{Readers, Resource, Shared};
use vcuda_kubelet_api::CHECKPOINT;

/// Reporter of the plugin's events (`reportingController`: a qualified name).
const CONTROLLER: &str = "vcuda.io/device-plugin";
/// Between looks whether another plugin has ended.
pub(crate) const TURN_LOOK: Duration = Duration::from_millis(20);

/// Runs until a signal ends it.
///
/// # Errors
/// It could not start: see [`RunError`].
pub fn run(config: Config) -> Result<(), RunError> {
    until_signal(live(config))
}

/// Lives a daemon's `life` until it ends or a signal ends it.
///
/// # Errors
/// As `life`'s.
pub(crate) fn until_signal(life: impl Future<Output = Result<(), RunError>>) -> Result<(), RunError> {
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

/// Tells the log that a daemon starts, and with which neighbours.
pub(crate) fn tell_start(config: &Config) {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        kubelet = %config.directories.kubelet.display(),
        manager = %config.manager.display(),
        "starting"
    );
}

async fn live(config: Config) -> Result<(), RunError> {
    let listener = http::listen(config.metrics).await?;
    tell_start(&config);
    let mut tasks = JoinSet::new();
    // Before its turn comes: who takes over registers at once, as far as it depends on itself.
    let base = Base::start(&config, &mut tasks);
    let problems: Arc<OnceLock<Problems>> = Arc::default();
    let (waiting, waits) = watch::channel(vec!["the plugin is starting".to_owned()]);
    if let Some(listener) = listener {
        let (instruments, known) = (Arc::clone(&base.instruments), Arc::clone(&problems));
        let problems: Problems = Arc::new(move || match known.get() {
            Some(problems) => Problems::as_ref(problems)(),
            None => waits.borrow().clone(),
        });
        let pages = pages(Arc::new(move || instruments.text()), problems);
        tasks.spawn(http::serve(listener, pages, std::future::pending()));
    }
    let _alone = alone(&config.directories, &base, &waiting).await;
    let cluster = cluster(&config).await?;
    // It is set only once.
    let _ = problems.set(start(&config, cluster, &base, &mut tasks));
    info!("ready");
    // No part ends by itself.
    match tasks.join_next().await {
        Some(Err(error)) => Err(RunError::Failed(error.to_string())),
        _ => Err(RunError::Failed("a part has ended".to_owned())),
    }
}

/// The API server, if it is asked.
async fn cluster(config: &Config) -> Result<Option<(Client, Cluster)>, RunError> {
    if config.cluster.api == Api::Off {
        return Ok(None);
    }
    let client = cluster::client(config.cluster.kubeconfig.as_deref()).await;
    let client = client.map_err(|error| RunError::Unavailable(error.to_string()))?;
    if client.is_none() {
        info!("no API server is known: annotations are not read, every pod is fixed and of normal priority");
    }
    let start = |client: Client| (client.clone(), Cluster::start(client, &config.cluster.node));
    Ok(client.map(start))
}

/// Waits for the plugin's turn. `problems` is told what is in the way; another daemon is none once the GPUs are known, so that a
/// rollout ends it as soon as this one can register at once.
async fn alone(
    directories: &Directories,
    base: &Base,
    problems: &watch::Sender<Vec<String>>,
) -> [Flock<File>; 2] {
    let mut told = None;
    let tell = |why: Option<String>| {
        let another = "another device plugin or driver is at work on this node; this one waits for its end";
        let shown = why.clone().unwrap_or_else(|| another.to_owned());
        if told.as_ref() != Some(&shown) {
            warn!("{shown}");
            told = Some(shown);
        }
        problems.send_replace(why.or_else(|| unknown(&base.node)).into_iter().collect());
    };
    let refusal = || Mode::Plugin.refusal(&base.store, &base.manager);
    Mode::Plugin.turn(directories, refusal, tell).await
}

/// The problem of a node whose GPUs the manager has not told.
fn unknown(node: &Known) -> Option<String> {
    let is_unknown = node.borrow().is_none();
    is_unknown.then(|| "the manager has not said yet which GPUs there are".to_owned())
}

/// Takes the lock at `path` for this process.
pub(crate) fn lock(path: &Path) -> io::Result<Flock<File>> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

/// Parts that change nothing on the node, so that they may run beside another plugin: they follow the manager's GPUs.
struct Base {
    instruments: Arc<Instruments>,
    manager: Arc<Manager>,
    store: Store,
    node: Known,
}

impl Base {
    fn start(config: &Config, tasks: &mut JoinSet<()>) -> Self {
        let instruments = Arc::new(Instruments::default());
        let manager = Arc::new(Manager::new(&config.manager));
        let store = Store::new(&config.cdi);
        let follower = Follower::new(
            Arc::clone(&manager),
            store.clone(),
            config.chunk_bytes,
            Arc::clone(&instruments),
        );
        let node = follower.known();
        tasks.spawn(follower.run());
        Self {
            instruments,
            manager,
            store,
            node,
        }
    }
}

/// Starts everything else: registration first, as kubelet refuses pods for good until it reads the lists. Returns what is
/// wrong, as it changes.
fn start(
    config: &Config,
    cluster: Option<(Client, Cluster)>,
    base: &Base,
    tasks: &mut JoinSet<()>,
) -> Problems {
    let Base {
        instruments,
        manager,
        store,
        node,
    } = base;
    let pods = Arc::new(Pods::new(
        &config.directories.pod_resources(),
        &config.directories.device_plugins().join(CHECKPOINT),
        config.names.clone(),
    ));
    let (asks, asked) = room();
    let binder = Arc::new(Binder::new(
        rules(config),
        Arc::clone(&pods),
        Arc::clone(manager),
        store.clone(),
        node.clone(),
        pod_choices(cluster.as_ref()),
        asks,
    ));
    let shared = Arc::new(Shared {
        node: node.clone(),
        binder: Arc::clone(&binder),
        recency: Arc::new(recency(store)),
        instruments: Arc::clone(instruments),
    });
    if let Err(error) = store.tidy() {
        warn!("{error}");
    }
    let readers = Readers::default();
    let connected = register_all(config, &shared, &readers, tasks);
    if let Some((client, _)) = cluster.as_ref().filter(|_| config.cluster.publish) {
        let publisher = Publisher::new(client.clone(), &config.cluster.node, config.chunk_bytes);
        tasks.spawn(publisher.run(Arc::clone(manager)));
    }
    if let Some((client, cluster)) = cluster {
        let events = || events(config, &client, CONTROLLER);
        tasks.spawn(follow::run(cluster, binder, events()));
        if let Some(events) = events() {
            tasks.spawn(pod_events::run(events, Arc::clone(manager)));
        }
    }
    let [of_shares, ..] = &connected;
    let releaser = Releaser {
        pace: config.release,
        pods,
        manager: Arc::clone(manager),
        store: store.clone(),
        recency: Arc::clone(&shared.recency),
        is_connected: of_shares.clone(),
        readers,
        asked,
    };
    tasks.spawn(releaser.run());
    problems(config, node.clone(), connected)
}

/// Writer of events as `controller`, if they are to be written.
pub(crate) fn events(config: &Config, client: &Client, controller: &str) -> Option<EventWriter> {
    let new = || EventWriter::new(client.clone(), controller, &config.cluster.node);
    config.cluster.events.then(new)
}

/// Source of pods' choices: their annotations, if there is an API server to ask.
fn pod_choices(cluster: Option<&(Client, Cluster)>) -> Arc<dyn PodChoices> {
    match cluster {
        Some((_, cluster)) => Arc::new(cluster.clone()),
        None => Arc::new(NoChoices),
    }
}

/// The GPUs that were given out lately, by the specifications on disk.
fn recency(store: &Store) -> Recency {
    let recency = Recency::default();
    for record in store.records().unwrap_or_default() {
        recency.used(record.held.of(Kind::Gpu));
    }
    recency
}

pub(crate) fn rules(config: &Config) -> Rules {
    Rules {
        chunk_bytes: config.chunk_bytes,
        shim_for_whole_cards: config.shim_for_whole_cards,
        strict: config.strict,
        devices: config.devices.clone(),
        inject: config.inject,
        driver: config.driver.clone(),
    }
}

/// Starts a task for each resource that keeps it registered with kubelet. Kubelet's streams of the shares' list are counted in
/// `of_shares`. Returns whether each resource is registered.
fn register_all(
    config: &Config,
    shared: &Arc<Shared>,
    of_shares: &Readers,
    tasks: &mut JoinSet<()>,
) -> [watch::Receiver<bool>; 3] {
    let directories = &config.directories;
    let changes = Changes::of(vec![
        directories.device_plugins(),
        directories.registry(),
        directories.own(),
    ]);
    Kind::ALL.map(|kind| {
        let resource = Resource {
            kind,
            name: config.names.of(kind).to_owned(),
            shared: Arc::clone(shared),
            readers: match kind {
                Kind::Gpu => of_shares.clone(),
                Kind::Memory | Kind::Cores => Readers::default(),
            },
        };
        let registrar = Registrar::new(directories.clone(), config.ways, resource, changes.clone());
        let connected = registrar.is_connected();
        tasks.spawn(registrar.run());
        connected
    })
}

fn problems(config: &Config, node: Known, connected: [watch::Receiver<bool>; 3]) -> Problems {
    let names = config.names.clone();
    Arc::new(move || {
        let mut problems: Vec<String> = unknown(&node).into_iter().collect();
        if let Some(seen) = node.borrow().as_deref() {
            problems.extend(seen.problem.clone());
        }
        for (kind, connected) in Kind::ALL.into_iter().zip(&connected) {
            if !*connected.borrow() {
                problems.push(format!("{}: kubelet does not read the list", names.of(kind)));
            }
        }
        problems
    })
}
