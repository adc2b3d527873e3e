//! The driver's life: its parts, and the signals that end it.

use std::fs::File;
use std::io;
use std::sync::Arc;

use kube::Client;
use nix::fcntl::Flock;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};
use vcuda_daemon::http;
use vcuda_daemon::life::RunError;
use vcuda_daemon::pages::{Problems, pages};

use super::gpus::{self, Gpus};
use super::leftover::Leftovers;
use super::prepare::Preparer;
use super::register::Registrar;
use super::slices::Publisher;
use crate::cdi::Store;
use crate::cluster;
use crate::config::{Api, Config};
use crate::manager::Manager;
use crate::register::Directories;
use crate::register::watched::Asked;
use crate::run::{TURN_LOOK, lock, rules, tell_start, until_signal};

/// Runs until a signal ends it.
///
/// # Errors
/// It could not start: see [`RunError`].
pub fn run(config: Config) -> Result<(), RunError> {
    until_signal(live(config))
}

async fn live(config: Config) -> Result<(), RunError> {
    let listener = http::listen(config.metrics).await?;
    tell_start(&config);
    let client = client(&config).await?;
    let mut tasks = JoinSet::new();
    let manager = Arc::new(Manager::new(&config.manager));
    let (gpus, known) = watch::channel(None);
    tasks.spawn(gpus::follow(Arc::clone(&manager), gpus));
    let (turn, has_turn) = watch::channel(Err(None));
    let publisher = Publisher::new(&client, config.cluster.node.clone(), known.clone());
    let store = Store::new(&config.cdi);
    let preparer = Arc::new(Preparer::new(
        client.clone(),
        Arc::clone(&manager),
        store.clone(),
        rules(&config),
        known.clone(),
        config.cluster.node.clone(),
    ));
    let registrar = Registrar::new(config.directories.clone(), Arc::clone(&preparer));
    if let Some(listener) = listener {
        let problems = problems(has_turn, known, publisher.problem(), registrar.asked());
        let pages = pages(Arc::new(|| Ok("# EOF\n".to_owned())), problems);
        tasks.spawn(http::serve(listener, pages, std::future::pending()));
    }
    let _alone = alone(&config.directories, &turn).await;
    // First: kubelet asks for what its pods need as soon as it finds the driver.
    tasks.spawn(registrar.run());
    tasks.spawn(publisher.run());
    let leftovers = Leftovers {
        client,
        manager,
        store,
        preparer,
    };
    tasks.spawn(leftovers.run());
    info!("ready");
    // No part ends by itself.
    match tasks.join_next().await {
        Some(Err(error)) => Err(RunError::Failed(error.to_string())),
        _ => Err(RunError::Failed("a part has ended".to_owned())),
    }
}

async fn client(config: &Config) -> Result<Client, RunError> {
    let unavailable =
        |why: String| RunError::Unavailable(format!("{why}; the driver cannot work without the API server"));
    if config.cluster.api == Api::Off {
        return Err(unavailable("[cluster] api = \"off\"".to_owned()));
    }
    let client = cluster::client(config.cluster.kubeconfig.as_deref()).await;
    let client = client.map_err(|error| unavailable(error.to_string()))?;
    client.ok_or_else(|| unavailable("this is no pod, and no [cluster] kubeconfig is set".to_owned()))
}

/// Whether this driver is at work; if not, what is in the way, unless it is another driver.
type Turn = Result<(), Option<String>>;

/// Waits until this is the only driver of the node: two would take each other's sockets away.
async fn alone(directories: &Directories, turn: &watch::Sender<Turn>) -> Flock<File> {
    let path = directories.own().join("dra.lock");
    loop {
        let waits = match lock(&path) {
            Ok(lock) => {
                turn.send_modify(|turn| *turn = Ok(()));
                return lock;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(format!(
                "{}: {error}; is kubelet's directory mounted?",
                path.display()
            )),
        };
        turn.send_if_modified(|known| {
            let is_new = *known != Err(waits.clone());
            if let Some(why) = waits.as_ref().filter(|_| is_new) {
                warn!("{why}");
            }
            *known = Err(waits);
            is_new
        });
        tokio::time::sleep(TURN_LOOK).await;
    }
}

/// What is wrong. A driver that waits for another's end is ready as soon as it knows the GPUs, so that a rollout ends the other.
fn problems(
    turn: watch::Receiver<Turn>,
    gpus: Gpus,
    slices: watch::Receiver<Option<String>>,
    asked: watch::Receiver<Asked>,
) -> Problems {
    Arc::new(move || {
        let mut problems = Vec::new();
        match gpus.borrow().as_deref() {
            None => problems.push("the manager has not said yet which GPUs there are".to_owned()),
            Some(gpus) => problems.extend(gpus.problem.clone()),
        }
        let asked = asked.borrow();
        match &*turn.borrow() {
            Err(why) => problems.extend(why.clone()),
            Ok(()) => {
                problems.extend(slices.borrow().clone());
                match &asked.refused {
                    Some(why) => problems.push(format!("kubelet refuses the driver: {why}")),
                    None if !asked.accepted => {
                        problems.push("kubelet has not registered the driver".to_owned())
                    }
                    None => {}
                }
            }
        }
        problems
    })
}
