//! Parts of the daemon, each started after its dependencies and ended in the opposite order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, timeout};
use tracing::{error, warn};
use vcuda_daemon::http;
use vcuda_daemon::life::RunError;
use vcuda_daemon::pages::{Daemon, pages};

use crate::accounting::{self, Accounting};
use crate::audit::Namespaces;
use crate::background;
use crate::config::Config;
use crate::driver_limits::StartingContainers;
use crate::events::{Events, unix_ms};
use crate::inventory::{self, Node};
use crate::ledger::{Disk, Passing, RealDisk};
use crate::library;
use crate::metrics::{Instruments, Metrics, Sources};
use crate::observe::SnapshotCache;
use crate::problems::Refusal;
use crate::serve;
use crate::service::{About, GrantsService, NodeService};
use crate::settings::{Api, Settings};
use crate::state::Grants;
use crate::state::start::{StartError, WriterThread, start};
use crate::suspend::{self, Suspender, helper};
use crate::users::LiveLimits;
use crate::watchers::Watchers;

pub(crate) const DAEMON: Daemon = Daemon { name: "vcuda-manager", version: env!("CARGO_PKG_VERSION") };

/// Time that the API waits for NVML's first answer. A real driver takes 1 to 3 s without persistence mode.
const FIRST_ANSWER: Duration = Duration::from_secs(5);
/// As above, of a user's own manager, which gives each run the GPUs that it names.
const FIRST_ANSWER_OWN: Duration = Duration::from_millis(500);

/// Interval of the look for transient grants that no process uses any more.
const ENDS_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Parts {
    grants: Grants,
    refusal: Arc<Refusal>,
    keeping: WriterThread,
    accounting: Arc<Accounting>,
    watchers: Watchers,
    suspensions: suspend::Watch,
    stop: watch::Sender<bool>,
    serving: Vec<JoinHandle<()>>,
}

impl Parts {
    /// Starts all parts. Running tenants only notice that the manager is back.
    ///
    /// # Errors
    /// Fails if another manager runs here, or if a directory, socket or address cannot be used.
    pub(crate) async fn start(
        config: &Config,
        shim: &Arc<library::Current>,
        events: &Arc<Events>,
    ) -> Result<Parts, RunError> {
        let (refusal, instruments) = (Arc::<Refusal>::default(), Arc::<Instruments>::default());

        // Both need the inventory; the watchers' root exists once grants have been read.
        let node = Node::start(inventory_settings(config), Arc::clone(events)).map_err(failed)?;
        let settings = settings(config, shim);
        let snapshots = Arc::<SnapshotCache>::default();
        let disk: Box<dyn Disk> = if config.is_own { Box::new(Passing) } else { Box::new(RealDisk) };
        let (grants, keeping) =
            start_grants(settings.clone(), disk, events, &node, Arc::clone(&snapshots)).await?;
        let ledger = grants.clone();
        node.compare_with_ledger(move || ledger.grant_table().gpus());
        // After the lock of the root: a second manager is told of the first one, not of its port.
        let metrics_listener = http::listen(config.metrics.listen.0).await?;
        let starting = Arc::new(StartingContainers::new(Arc::clone(&snapshots)));
        let watchers =
            start_watchers(config, events, &instruments, &node, &snapshots, Arc::clone(&starting), &grants)?;
        let usage = usage_sources(config, &node, Arc::clone(&snapshots), grants.clone(), events);
        let accounting = Arc::new(Accounting::start(usage).map_err(failed)?);
        let (stop, stopped) = watch::channel(false);
        let deadline = settings.api.deadline;
        let (suspender, suspensions) = start_suspender(config, &grants, &node, events, &instruments).await?;
        // Last, as any client that connects may ask for a GPU.
        first_answer(&node, if config.is_own { FIRST_ANSWER_OWN } else { FIRST_ANSWER }).await;
        let listener = serve::listen(&config.root, &settings.api).map_err(unavailable)?;
        let service = GrantsService::new(grants.clone(), deadline, stopped.clone())
            .with_suspender(suspender.clone())
            .with_starting(starting);
        let about_node = NodeService::new(
            grants.clone(),
            Arc::clone(events),
            Arc::clone(&refusal),
            about(config, shim),
            deadline,
            stopped.clone(),
        )
        .with_nvml(node.clone())
        .with_suspender(suspender.clone())
        .with_accounting(Arc::clone(&accounting));
        let (api, until, told) = (settings.api.clone(), stopped.clone(), Arc::clone(&instruments));
        tokio::spawn(end_unused(grants.clone(), stopped.clone()));
        let mut serving = vec![tokio::spawn(async move {
            let ended = serve::serve(listener, &api, service, about_node, told, until).await;
            let _ = ended.inspect_err(|failure| error!("{failure}"));
        })];
        if let Some(listener) = metrics_listener {
            let metrics = Metrics::new(sources(config, &node, snapshots, &grants, suspender), instruments);
            serving.push(serve_pages(listener, metrics, grants.clone(), stopped));
        }
        Ok(Parts { grants, refusal, keeping, accounting, watchers, suspensions, stop, serving })
    }

    /// Applies the settings that need no restart.
    pub(crate) fn apply(&self, config: &Config) {
        self.grants.set_rules(config.admission, config.namespaces.bounds.clone());
        self.suspensions.wake();
        self.grants.users().set(config.users.clone());
        self.watchers.set_actions(config.audit_actions());
    }

    /// Notes whether the last reload of the configuration was refused, for the status.
    pub(crate) fn tell_reload(&self, refused: Option<String>) {
        let goes_on = |why| format!("not read again, the one before stays in force: {why}");
        self.refusal.set(refused.map(goes_on));
    }

    /// Whether all threads that must not hang have worked lately, for the watchdog.
    pub(crate) fn are_alive(&self) -> bool {
        self.watchers.are_alive()
    }

    /// Whether there is no tenant any more, nor the debt of one; or no `socket`, so that none can come.
    pub(crate) fn are_unused(&self, socket: &Path) -> bool {
        let has_tenants =
            !self.grants.grant_table().is_empty() || !self.grants.directories().list().is_empty();
        !(has_tenants || self.watchers.remember_debts()) || !socket.exists()
    }

    /// Ends all parts: open requests and begun work are finished, and tenants keep running.
    ///
    /// `socket` is removed once nothing listens there.
    pub(crate) async fn end(self, socket: Option<PathBuf>) {
        // A closed channel means that the other side has already ended.
        let _ = self.stop.send(true);
        for serving in self.serving {
            let _ = serving.await;
        }
        // Before the lock of the root is free: a successor makes another one.
        let _ = socket.map(std::fs::remove_file);
        let (grants, keeping) = (self.grants, self.keeping);
        let (accounting, watchers) = (self.accounting, self.watchers);
        let suspensions = self.suspensions;
        let ended = spawn_blocking(move || {
            drop(suspensions);
            drop(accounting);
            drop(watchers);
            keeping.finish(&grants);
        });
        if ended.await.is_err() {
            error!("a thread did not end well; the ledger is as it was written last");
        }
    }
}

/// Ends transient grants with their last process, until `stopped` is true.
async fn end_unused(grants: Grants, stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(ENDS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stopped.borrow() {
        ticks.tick().await;
        // A ledger that cannot be written is reported, and this is tried again.
        let _ = grants.end_unused().await;
    }
}

fn serve_pages(
    listener: TcpListener,
    metrics: Metrics,
    grants: Grants,
    stopped: watch::Receiver<bool>,
) -> JoinHandle<()> {
    let pages = pages(DAEMON, Arc::new(move || metrics.scrape()), Arc::new(move || grants.outages()));
    tokio::spawn(http::serve(listener, pages, background::stopped(stopped)))
}

/// Waits for NVML's first answer, so that the first request after a start is not refused. A hanging driver does not delay
/// the API for ever.
async fn first_answer(node: &Node, longest: Duration) {
    if timeout(longest, node.inventory().changed()).await.is_err() {
        warn!(after_ms = longest.as_millis(), "NVML does not answer; no GPU is given out until it does");
    }
}

/// Source of the namespaces of granted tenants, by id.
fn namespaces(grants: Grants) -> Box<Namespaces> {
    Box::new(move |id| {
        let grant_table = grants.grant_table();
        let grant = grant_table.grants().find(|grant| grant.id.as_str() == id);
        grant.map_or_else(String::new, |grant| grant.holder.namespace.clone())
    })
}

fn about(config: &Config, shim: &Arc<library::Current>) -> About {
    About {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: format!("layout {}", vcuda_region::release::layouts().1),
        node: config.node.clone(),
        root: config.root.display().to_string(),
        simulated_machine: config
            .machine
            .as_ref()
            .map_or_else(String::new, |path| path.display().to_string()),
        started_unix_ms: unix_ms(),
        shim: Arc::clone(shim),
    }
}

fn sources(
    config: &Config,
    node: &Node,
    tenants: Arc<SnapshotCache>,
    grants: &Grants,
    suspender: Suspender,
) -> Sources {
    let (grants, of_gpus, problem) = (grants.clone(), grants.clone(), grants.problem());
    Sources {
        node: config.node.clone(),
        inventory: node.inventory(),
        tenants,
        grants: Arc::new(move || grants.grant_table().grants().cloned().collect()),
        cordoned: Arc::new(move || of_gpus.grant_table().cordoned.clone()),
        has_problem: Arc::new(move || problem.borrow().is_some()),
        states: Arc::new(move |id| suspender.state(id)),
    }
}

fn usage_sources(
    config: &Config,
    node: &Node,
    tenants: Arc<SnapshotCache>,
    grants: Grants,
    events: &Arc<Events>,
) -> accounting::Sources {
    accounting::Sources {
        root: config.root.clone(),
        state: config.state.clone(),
        tenants,
        inventory: node.inventory(),
        grant: Arc::new(move |id| grants.grant_table().by_id(id).cloned()),
        events: Arc::clone(events),
    }
}

fn start_watchers(
    config: &Config,
    events: &Arc<Events>,
    instruments: &Arc<Instruments>,
    node: &Node,
    snapshots: &Arc<SnapshotCache>,
    starting: Arc<StartingContainers>,
    grants: &Grants,
) -> Result<Watchers, RunError> {
    let namespaces = namespaces(grants.clone());
    Watchers::start(config, events, instruments, node.clone(), Arc::clone(snapshots), starting, namespaces)
        .map_err(unavailable)
}

/// Starts what suspends tenants. `vcuda-checkpoint` lies beside this program.
async fn start_suspender(
    config: &Config,
    grants: &Grants,
    node: &Node,
    events: &Arc<Events>,
    instruments: &Arc<Instruments>,
) -> Result<(Suspender, suspend::Watch), RunError> {
    let own = std::env::current_exe().map_err(failed)?;
    let settings = suspend::Settings {
        records: config.root.clone(),
        helper: helper::Settings {
            program: own.with_file_name("vcuda-checkpoint"),
            cuda_library: config.cuda_library.clone(),
            locks: config.root.join("suspend"),
        },
        residence: config.suspend.residence,
    };
    let (grants, node) = (grants.clone(), node.clone());
    let (events, instruments) = (Arc::clone(events), Arc::clone(instruments));
    let runtime = tokio::runtime::Handle::current();
    let start = move || Suspender::start(settings, grants, node, events, instruments, runtime);
    let started = spawn_blocking(start);
    started.await.map_err(failed)?.map_err(failed)
}

async fn start_grants(
    settings: Settings,
    disk: Box<dyn Disk>,
    events: &Arc<Events>,
    node: &Node,
    snapshots: Arc<SnapshotCache>,
) -> Result<(Grants, WriterThread), RunError> {
    let (events, inventory) = (Arc::clone(events), node.inventory());
    let started = spawn_blocking(move || {
        let started = start(&settings, disk, &events, inventory, snapshots)?;
        // Once the root is locked, and in memory: a disk that hangs stops no thread.
        events.keep_in(&settings.root);
        Ok(started)
    });
    match started.await {
        Ok(Ok(started)) => Ok(started),
        Ok(Err(error @ StartError::Running(..))) => Err(unavailable(error)),
        Ok(Err(error)) => Err(failed(error)),
        Err(error) => Err(failed(error)),
    }
}

fn settings(config: &Config, shim: &Arc<library::Current>) -> Settings {
    Settings {
        root: config.root.clone(),
        state: config.state.clone(),
        rules: config.admission,
        bounds: config.namespaces.bounds.clone(),
        api: Api {
            mode: config.api.mode,
            group: config.api.group.map(|group| group.0),
            viewers: config.api.viewers.iter().map(|group| group.0).collect(),
            users: LiveLimits::new(config.users.clone()),
            ..Api::default()
        },
        devices: config.cdi.clone(),
        shim: Arc::clone(shim),
    }
}

fn inventory_settings(config: &Config) -> inventory::Settings {
    inventory::Settings {
        nvml_library: config.nvml_library.clone(),
        cuda_library: config.cuda_library.clone(),
        policy: config.health.clone(),
        state: Some(config.state.clone()),
        ..inventory::Settings::default()
    }
}

pub(crate) fn failed(error: impl std::fmt::Display) -> RunError {
    RunError::Failed(error.to_string())
}

fn unavailable(error: impl std::fmt::Display) -> RunError {
    RunError::Unavailable(error.to_string())
}
