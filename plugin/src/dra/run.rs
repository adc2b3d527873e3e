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
use super::gpus::Gpus;
use super::health::Health;
use super::node_lock::NodeLock;
use super::orphans::OrphanCleaner;
use super::prepare::Preparer;
use super::register::Registrar;
use super::service::Service;
use super::shared::Shared;
use super::shared_claims::SharedClaims;
use super::slices::Publisher;
use super::status::StatusWriter;
use crate::annotation_reconciler;
use crate::cluster::Cluster;
use crate::config::{Api, Config};
use crate::event_writer::Interval;
use crate::mode::{LockState, starting};
use crate::pod_events;
use crate::register::watched::RegistrationState;
use crate::run::{bind_settings, event_writer, log_start, run_until_signal};

/// Reporter of the driver's events (`reportingController`: a qualified name).
const CONTROLLER: &str = "vcuda.io/dra-driver";

/// Longest wait for kubelet before the GPUs are published.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the DRA driver until a signal ends it.
pub fn run(config: Config) -> Result<(), RunError> {
    run_until_signal(run_parts(config))
}

async fn run_parts(config: Config) -> Result<(), RunError> {
    let listener = http::listen(config.metrics).await?;
    log_start(&config);
    let client = client(&config).await?;
    let mut tasks = JoinSet::new();
    let shared = Shared::start(&config, client, &mut tasks);
    let preparer = Arc::new(Preparer::new(Arc::clone(&shared), bind_settings(&config)));
    let publisher = Publisher::new(Arc::clone(&shared));
    let service = Service { preparer: Arc::clone(&preparer), shared: Arc::clone(&shared) };
    let health = Health::new(shared.gpus.clone(), shared.node.clone());
    let registrar = Registrar::new(config.directories.clone(), service, health);
    let registration = registrar.state();
    let (lock_state, is_locked) = watch::channel(starting());
    if let Some(listener) = listener {
        let problems = problems(
            is_locked,
            shared.gpus.clone(),
            publisher.problem(),
            registration.clone(),
            Arc::clone(&preparer),
        );
        let metrics = Arc::clone(&shared);
        let daemon = Daemon { name: "vcuda-dra-driver", version: env!("CARGO_PKG_VERSION") };
        let pages = pages(daemon, Arc::new(move || metrics.instruments.text()), problems);
        tasks.spawn(http::serve(listener, pages, std::future::pending()));
    }
    let node_lock = NodeLock { shared: Arc::clone(&shared), directories: config.directories.clone() };
    let _locks = node_lock.acquire(&lock_state).await;
    // First, as kubelet prepares the claims of waiting pods as soon as it finds the driver.
    tasks.spawn(registrar.run());
    tasks.spawn(publish_once_registered(publisher, registration));
    keep_claims(&config, &shared, &preparer, &mut tasks);
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

/// Starts the tasks for prepared claims: their status, their annotations and their cleanup.
fn keep_claims(config: &Config, shared: &Arc<Shared>, preparer: &Arc<Preparer>, tasks: &mut JoinSet<()>) {
    let events = |interval| event_writer(config, &shared.client, CONTROLLER, interval);
    tasks.spawn(StatusWriter::new(Arc::clone(shared), preparer.changed()).run());
    let reconciler = ClaimReconciler::new(Arc::clone(shared), Arc::clone(preparer));
    let cluster = Cluster::start(shared.client.clone(), &shared.node);
    let shared_claims = SharedClaims { shared: Arc::clone(shared), cluster: cluster.clone() };
    tasks.spawn(annotation_reconciler::run(cluster, Arc::new(reconciler), events(Interval::PerNote)));
    if let Some(events) = events(Interval::PerReason) {
        tasks.spawn(pod_events::run(events, Arc::clone(&shared.manager), Some(Box::new(shared_claims))));
    }
    tasks.spawn(OrphanCleaner { shared: Arc::clone(shared), preparer: Arc::clone(preparer) }.run());
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
