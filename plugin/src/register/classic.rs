//! Registration by kubelet's service. Kubelet dials back within the call, and forgets its plugins when it restarts.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tonic::Status;
use vcuda_kubelet_api::v1beta1::RegisterRequest;
use vcuda_kubelet_api::v1beta1::registration_client::RegistrationClient;
use vcuda_kubelet_api::{VERSION, connect};

use super::{Registrar, classic_name};
use crate::serve::Listening;

/// Deadline of the call, in which kubelet dials back (10 s) and asks for the plugin's options.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest wait after the call until kubelet reads the list.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Kubelet has not registered the resource.
#[derive(Debug, Error)]
pub(super) enum RegisterError {
    /// Kubelet does not listen.
    #[error("kubelet does not answer: {0}")]
    Absent(io::Error),
    /// The plugin's socket cannot be made.
    #[error("{0}")]
    Socket(io::Error),
    /// Kubelet refuses.
    #[error("kubelet refuses: {}", .0.message())]
    Refused(Status),
    /// Kubelet does not read the list.
    #[error("kubelet does not read the list within {READ_TIMEOUT:?}")]
    NotRead,
}

impl RegisterError {
    /// Whether kubelet did not listen.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Absent(_))
    }
}

impl Registrar {
    /// Listens, registers, and waits until the list is read.
    pub(super) async fn register_classic(&mut self) -> Result<Listening, RegisterError> {
        let kind = self.resource.kind;
        let kubelet = connect(&self.directories.kubelet_socket(), REGISTER_TIMEOUT).await;
        let mut client = RegistrationClient::new(kubelet.map_err(RegisterError::Absent)?);
        let listening = self.serve(&self.directories.classic_socket(kind));
        let listening = listening.map_err(RegisterError::Socket)?;
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: classic_name(kind),
            resource_name: self.resource.name.clone(),
            // Kubelet asks for them when it dials back.
            options: None,
        };
        let answer = tokio::time::timeout(REGISTER_TIMEOUT, client.register(request)).await;
        answer
            .unwrap_or_else(|_| {
                Err(Status::deadline_exceeded(format!("no answer within {REGISTER_TIMEOUT:?}")))
            })
            .map_err(RegisterError::Refused)?;
        let mut count = self.readers.count();
        let read = tokio::time::timeout(READ_TIMEOUT, count.wait_for(|open| *open > 0)).await;
        match read {
            Ok(Ok(_)) => {}
            _ => return Err(RegisterError::NotRead),
        }
        Ok(listening)
    }
}
