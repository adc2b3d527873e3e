//! Start of the DRA driver's parts, and its end by a signal.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};
use vcuda_daemon::api_server;
use vcuda_daemon::http;
use vcuda_daemon::life::RunError;
use vcuda_daemon::pages::{Daemon, Problems, pages};

use super::claim_reconciler::ClaimReconciler;
use super::gpus::{self, Gpus};
use super::health::Health;
use super::metrics::Instruments;
use super::node_lock::{LockState, NodeLock};
use super::orphans::OrphanCleaner;
use super::prepare::Preparer;
use super::register::Registrar;
use super::service::Service;
use super::slices::Publisher;
use super::status::StatusWriter;
use crate::annotation_reconciler;
use crate::cdi::Store;
use crate::cluster::Cluster;
use crate::config::{Api, Config};
use crate::manager::Manager;
use crate::pod_events;
use crate::register::watched::RegistrationState;
use crate::run::{bind_settings, event_writer, log_start, run_until_signal};

/// Reporter of the driver's events (`reportingController`: a qualified name).
const CONTROLLER: &str = "vcuda.io/dra-driver";

/// Longest wait for kubelet before the GPUs are published.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the DRA driver until a signal ends it.
///
/// # Errors
/// The driver could not start, or a part has failed: see [`RunError`].
pub fn run(config: Config) -> Result<(), RunError> {
    run_until_signal(run_parts(config))
}

async fn run_parts(config: Config) -> Result<(), RunError> {
    let listener = http::listen(config.metrics).await?;
    log_start(&config);
    let client = client(&config).await?;
    let mut tasks = JoinSet::new();
    let base = Base::start(&config, client, &mut tasks);
    let node = config.cluster.node.clone();
    let instruments = Arc::clone(&base.instruments);
    let publisher = Publisher::new(&base.client, node.clone(), base.gpus.clone(), instruments);
    let service = Service::new(Arc::clone(&base.preparer), Arc::clone(&base.instruments));
    let health = Health::new(base.gpus.clone(), node.clone());
    let registrar = Registrar::new(config.directories.clone(), service, health);
    let registration = registrar.state();
    let (lock_state, is_locked) = watch::channel(Err(None));
    if let Some(listener) = listener {
        let problems = problems(
            is_locked,
            base.gpus.clone(),
            publisher.problem(),
            registration.clone(),
            Arc::clone(&base.preparer),
        );
        let instruments = Arc::clone(&base.instruments);
        let daemon = Daemon { name: "vcuda-dra-driver", version: env!("CARGO_PKG_VERSION") };
        let pages = pages(daemon, Arc::new(move || instruments.text()), problems);
        tasks.spawn(http::serve(listener, pages, std::future::pending()));
    }
    let node_lock = NodeLock {
        client: base.client.clone(),
        manager: Arc::clone(&base.manager),
        store: base.store.clone(),
        directories: config.directories.clone(),
        node,
    };
    let _locks = node_lock.acquire(&lock_state).await;
    // First, as kubelet prepares the claims of waiting pods as soon as it finds the driver.
    tasks.spawn(registrar.run());
    tasks.spawn(publish_once_registered(publisher, registration));
    base.keep(&config, &mut tasks);
    info!("ready");
    // A part that ends has failed.
    match tasks.join_next().await {
        Some(Err(error)) => Err(RunError::Failed(error.to_string())),
        _ => Err(RunError::Failed("a part has ended".to_owned())),
    }
}

/// Publishes the slices once kubelet has accepted the driver, or after [`REGISTRATION_TIMEOUT`]: pods that come before fail, and kubelet
/// tries them again only after 60 to 90 s.
async fn publish_once_registered(publisher: Publisher, mut registration: watch::Receiver<RegistrationState>) {
    let accepted = registration.wait_for(|state| state.accepted);
    if timeout(REGISTRATION_TIMEOUT, accepted).await.is_err() {
        warn!("kubelet has not registered the driver; the GPUs are published all the same");
    }
    publisher.run().await;
}

/// Parts that only read, so that they may run beside another driver.
struct Base {
    client: Client,
    instruments: Arc<Instruments>,
    manager: Arc<Manager>,
    store: Store,
    gpus: Gpus,
    preparer: Arc<Preparer>,
}

impl Base {
    fn start(config: &Config, client: Client, tasks: &mut JoinSet<()>) -> Self {
        let manager = Arc::new(Manager::new(&config.manager));
        let store = Store::new(&config.cdi);
        let (sender, gpus) = watch::channel(None);
        tasks.spawn(gpus::poll_manager(Arc::clone(&manager), sender, config.unhealthy_effect));
        let preparer = Preparer::new(
            client.clone(),
            Arc::clone(&manager),
            store.clone(),
            bind_settings(config),
            gpus.clone(),
            config.cluster.node.clone(),
        );
        Self { client, instruments: Arc::default(), manager, store, gpus, preparer: Arc::new(preparer) }
    }

    /// Starts the tasks for prepared claims: their status, their annotations and their cleanup.
    fn keep(self, config: &Config, tasks: &mut JoinSet<()>) {
        let events = || event_writer(config, &self.client, CONTROLLER);
        let statuses = StatusWriter::new(
            self.client.clone(),
            Arc::clone(&self.manager),
            self.store.clone(),
            self.instruments,
            self.preparer.changed(),
        );
        tasks.spawn(statuses.run());
        let reconciler = ClaimReconciler::new(
            self.client.clone(),
            Arc::clone(&self.manager),
            self.store.clone(),
            Arc::clone(&self.preparer),
            config.cluster.node.clone(),
        );
        let cluster = Cluster::start(self.client.clone(), &config.cluster.node);
        tasks.spawn(annotation_reconciler::run(cluster, Arc::new(reconciler), events()));
        if let Some(events) = events() {
            tasks.spawn(pod_events::run(events, Arc::clone(&self.manager)));
        }
        let cleaner = OrphanCleaner {
            client: self.client,
            manager: self.manager,
            store: self.store,
            preparer: self.preparer,
        };
        tasks.spawn(cleaner.run());
    }
}

async fn client(config: &Config) -> Result<Client, RunError> {
    let unavailable =
        |why: String| RunError::Unavailable(format!("{why}; the driver cannot work without the API server"));
    if config.cluster.api == Api::Off {
        return Err(unavailable("[cluster] api = \"off\"".to_owned()));
    }
    let client = api_server::client(config.cluster.kubeconfig.as_deref()).await;
    let client = client.map_err(|error| unavailable(error.to_string()))?;
    client.ok_or_else(|| unavailable("this is no pod, and no [cluster] kubeconfig is set".to_owned()))
}

/// The readiness problems. A driver that waits for another daemon is ready as soon as it knows the GPUs, so that a rollout ends
/// the other daemon.
fn problems(
    lock_state: watch::Receiver<LockState>,
    gpus: Gpus,
    slices: watch::Receiver<Option<String>>,
    registration: watch::Receiver<RegistrationState>,
    preparer: Arc<Preparer>,
) -> Problems {
    Arc::new(move || {
        let mut problems = Vec::new();
        match gpus.borrow().as_deref() {
            None => problems.push("the manager has not said yet which GPUs there are".to_owned()),
            Some(gpus) => problems.extend(gpus.problem.clone()),
        }
        let registration = registration.borrow();
        match &*lock_state.borrow() {
            Err(why) => problems.extend(why.clone()),
            Ok(()) => {
                // A rollout deletes a pod that is not ready at once; nothing could then end the pods of these claims. So in a change
                // of the mode, which takes the driver's rights at the API server.
                if !preparer.has_claims() {
                    problems.extend(slices.borrow().clone());
                }
                match &registration.refused {
                    Some(why) => problems.push(format!("kubelet refuses the driver: {why}")),
                    None if !registration.accepted => {
                        problems.push("kubelet has not registered the driver".to_owned())
                    }
                    None => {}
                }
            }
        }
        problems
    })
}
