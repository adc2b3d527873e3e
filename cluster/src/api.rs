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

/// Folder of the token that kubelet gives to a pod whose service account may be used (`automountServiceAccountToken`).
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Client by a file, or as in any pod. `None` where this is no pod, or one that was given no token: the chart gives it only to
/// what asks the API server.
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
        None if !has_token() => return Ok(None),
        None => Config::incluster().map_err(|error| ApiError::ServiceAccount(error.to_string()))?,
    };
    let client = Client::try_from(config).map_err(|error| ApiError::Client(error.to_string()))?;
    Ok(Some(client))
}

/// Whether this is a pod with a service account's token.
fn has_token() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() && Path::new(TOKEN_FOLDER).exists()
}
