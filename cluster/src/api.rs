//! The API server, as it is configured.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;

/// The API server cannot be asked, as it is configured.
#[derive(Debug, Error)]
pub enum ApiError {
    /// The file that names it.
    #[error("kubeconfig {0}: {1}")]
    Kubeconfig(String, String),
    /// The service account that kubelet puts into every pod is missing, or wrong.
    #[error("this pod's service account: {0}; set automountServiceAccountToken")]
    ServiceAccount(String),
    /// No client can be made of it.
    #[error("API server: {0}")]
    Client(String),
}

/// Client by a file, or as in any pod. `None` where this is no pod.
///
/// # Errors
/// It is configured, and cannot work.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Option<Client>, ApiError> {
    let config = match kubeconfig {
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| {
                ApiError::Kubeconfig(path.display().to_string(), error.to_string())
            };
            let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            config.map_err(|error| wrong(&error))?
        }
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() => return Ok(None),
        None => Config::incluster().map_err(|error| ApiError::ServiceAccount(error.to_string()))?,
    };
    let client = Client::try_from(config).map_err(|error| ApiError::Client(error.to_string()))?;
    Ok(Some(client))
}
