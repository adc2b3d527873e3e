//! The API server, which is asked only where the configuration needs it.

use std::path::Path;

use kube::Client;
use vcuda_daemon::api_server::{self, ApiServerError};

/// Folder of the token that kubelet gives to a pod whose service account may be used (`automountServiceAccountToken`).
const TOKEN_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Client by a file, or as in any pod. `None` where this is no pod, or one that was given no token: the chart gives it only to
/// what asks the API server.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<Option<Client>, ApiServerError> {
    if kubeconfig.is_none() && !Path::new(TOKEN_FOLDER).exists() {
        return Ok(None);
    }
    api_server::client(kubeconfig).await
}
