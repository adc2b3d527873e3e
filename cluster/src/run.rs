//! The life of `vcuda-kubernetes cluster`: certificate, pages, signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::info;
use vcuda_daemon::http;
use vcuda_daemon::life::{self, Ends, RunError};
use vcuda_daemon::pages::{Daemon, pages};
use vcuda_daemon::tls::{self, Certificates};

use crate::api;
use crate::config::Config;
use crate::counters::Counters;
use crate::extender::{BoundPods, Extender, Nodes};
use crate::templates;
use crate::webhook::Webhook;

/// Time between being unready and the end: until no caller is sent here any more.
const DRAINS: Duration = Duration::from_secs(5);

/// Runs until a signal.
pub fn run(config: Config) -> Result<(), RunError> {
    life::block_on(work(config))
}

async fn work(config: Config) -> Result<(), RunError> {
    let mut ends = Ends::listen()?;
    let unavailable = |error: &dyn std::fmt::Display| RunError::Unavailable(error.to_string());
    let certificates = Certificates::read(&config.certificate).map_err(|error| unavailable(&error))?;
    let server = certificates.server().map_err(|error| unavailable(&error))?;
    let client = api::client(config.kubeconfig.as_deref()).await.map_err(|error| unavailable(&error))?;
    let counters = Arc::new(Counters::default());
    let known = known(&config, client.as_ref())?;
    let extender = Extender::new(config.rules.clone(), config.score, known, Arc::clone(&counters));
    if config.rules.makes_claims {
        templates::follow(client.ok_or_else(|| {
            RunError::Unavailable(
                "admission.claims, mode dra: no API server is known to make claims at; set kubeconfig, or mode = \"plugin\"".to_owned(),
            )
        })?);
    }
    let webhook = Webhook::new(config.rules, Arc::clone(&counters));
    let router = webhook.router().merge(extender.router());
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        RunError::Unavailable(format!("listen {}: {error}; give another address", config.listen))
    })?;
    let address = listener.local_addr().map_err(|error| unavailable(&error))?;
    info!("webhook at https://{address}/mutate and /validate, scheduler extender at /filter and /prioritize");
    let is_ending = Arc::new(AtomicBool::new(false));
    let health = http::listen(config.metrics).await?.map(|listener| {
        let pages = health(Arc::clone(&counters), Arc::clone(&certificates), Arc::clone(&is_ending));
        tokio::spawn(http::serve(listener, pages, std::future::pending()))
    });
    let follows = tokio::spawn(Arc::clone(&certificates).follow());
    let (stop, stopped) = oneshot::channel::<()>();
    let serves = tokio::spawn(tls::serve(listener, router, server, async {
        let _ = stopped.await;
    }));
    let signal = ends.next().await;
    info!(signal, "ending");
    is_ending.store(true, Ordering::Relaxed);
    // A second signal does not wait.
    tokio::select! {
        () = tokio::time::sleep(DRAINS) => {}
        _ = ends.next() => {}
    }
    let _ = stop.send(());
    let _ = serves.await;
    follows.abort();
    if let Some(health) = health {
        health.abort();
    }
    Ok(())
}

/// What the extender knows of the nodes and of the pods that they were sent.
fn known(config: &Config, client: Option<&Client>) -> Result<(Nodes, BoundPods), RunError> {
    match (config.follows_nodes, client) {
        (false, _) => Ok((Nodes::unknown(), BoundPods::default())),
        (true, Some(client)) => {
            Ok((Nodes::follow(client.clone()), BoundPods::follow(client.clone(), config.rules.clone())))
        }
        (true, None) => Err(RunError::Unavailable(
            "extender.follow_nodes: no API server is known; set kubeconfig, or follow_nodes = false"
                .to_owned(),
        )),
    }
}

fn health(
    counters: Arc<Counters>,
    certificates: Arc<Certificates>,
    is_ending: Arc<AtomicBool>,
) -> axum::Router {
    let of_metrics = Arc::clone(&certificates);
    let daemon = Daemon { name: "vcuda-cluster", version: env!("CARGO_PKG_VERSION") };
    pages(
        daemon,
        Arc::new(move || counters.text(of_metrics.problem().is_none())),
        Arc::new(move || {
            let ending = is_ending.load(Ordering::Relaxed).then(|| "it is about to end".to_owned());
            ending.into_iter().collect()
        }),
    )
}
