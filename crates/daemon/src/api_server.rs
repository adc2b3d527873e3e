//! Kubernetes' API server, for the daemons that ask it: a client as configured, and watches that outlive its absence.

use std::path::Path;

use futures_util::{Stream, StreamExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::runtime::watcher;
use kube::{Client, Config};
use thiserror::Error;
use tracing::{info, warn};

/// The API server cannot be used as it is configured.
#[derive(Debug, Error)]
pub enum ApiServerError {
    /// The kubeconfig file cannot be read or is wrong.
    #[error("kubeconfig {0}: {1}")]
    Kubeconfig(String, String),
    /// The service account that kubelet puts into every pod is missing, or wrong.
    #[error("this pod's service account: {0}; set automountServiceAccountToken")]
    ServiceAccount(String),
    /// No client can be made from the configuration.
    #[error("API server: {0}")]
    Client(String),
}

/// Client of the API server, by the kubeconfig file or by the pod's service account. Returns `None` outside of a pod.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Option<Client>, ApiServerError> {
    let config = match kubeconfig {
        Some(path) => {
            let wrong = |error: KubeconfigError| {
                ApiServerError::Kubeconfig(path.display().to_string(), kubeconfig_text(&error))
            };
            let file = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(wrong)?
        }
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() => return Ok(None),
        None => Config::incluster().map_err(|error| ApiServerError::ServiceAccount(error.to_string()))?,
    };
    let client = Client::try_from(config).map_err(|error| ApiServerError::Client(error.to_string()))?;
    Ok(Some(client))
}

/// An error of a kubeconfig, without the file's content: the parser's own text shows the lines at fault, which may be secrets.
pub fn kubeconfig_text(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(_) => {
            "it is no kubeconfig; `kubectl config view` says what is wrong".to_owned()
        }
        error => error.to_string(),
    }
}

/// Reads a watch to its end, and calls `after_event` after each event. Once for each absence of the API server it logs the
/// error and `consequence`, and once for each return that it answers again.
pub async fn read_watch<T>(
    events: impl Stream<Item = Result<T, watcher::Error>>,
    consequence: &str,
    mut after_event: impl FnMut(),
) {
    let mut events = std::pin::pin!(events);
    let mut is_away = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(_) if is_away => {
                is_away = false;
                info!("the API server answers again");
            }
            Ok(_) => {}
            Err(error) if !is_away => {
                is_away = true;
                warn!("{error}: {consequence}");
            }
            Err(_) => {}
        }
        after_event();
    }
}
