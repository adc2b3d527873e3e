//! Kubelet's registration service: called once, dials back within the call, forgets all when it restarts.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tonic::Status;
use vcuda_kubelet_api::v1beta1::RegisterRequest;
use vcuda_kubelet_api::v1beta1::registration_client::RegistrationClient;
use vcuda_kubelet_api::{VERSION, connect};

use super::{Registrar, classic_name};
use crate::serve::Listening;

/// For the call, in which kubelet dials us back (10 s) and asks our options.
const REGISTERS_WITHIN: Duration = Duration::from_secs(15);
/// After the call, until kubelet reads the list.
const READS_WITHIN: Duration = Duration::from_secs(5);

/// Kubelet has not registered us.
#[derive(Debug, Error)]
pub(super) enum RegisterError {
    /// It is not there.
    #[error("kubelet does not answer: {0}")]
    Absent(io::Error),
    /// The socket cannot be made.
    #[error("{0}")]
    Socket(io::Error),
    /// It refuses.
    #[error("kubelet refuses: {}", .0.message())]
    Refused(Status),
    /// It does not read the list.
    #[error("kubelet does not read the list within {READS_WITHIN:?}")]
    NotRead,
}

impl RegisterError {
    /// Whether there was no kubelet that could refuse.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Absent(_))
    }
}

impl Registrar {
    /// Listens, registers, and waits until the list is read.
    pub(super) async fn register_classic(&mut self) -> Result<Listening, RegisterError> {
        let kind = self.resource.kind;
        let kubelet = connect(&self.directories.kubelet_socket(), REGISTERS_WITHIN).await;
        let mut client = RegistrationClient::new(kubelet.map_err(RegisterError::Absent)?);
        let listening = self.serve(&self.directories.classic_socket(kind));
        let listening = listening.map_err(RegisterError::Socket)?;
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: classic_name(kind),
            resource_name: self.resource.name.clone(),
            // Kubelet asks for them.
            options: None,
        };
        let answer = tokio::time::timeout(REGISTERS_WITHIN, client.register(request)).await;
        answer
            .unwrap_or_else(|_| {
                Err(Status::deadline_exceeded(format!(
                    "no answer within {REGISTERS_WITHIN:?}"
                )))
            })
            .map_err(RegisterError::Refused)?;
        let mut count = self.readers.count();
        let read = tokio::time::timeout(READS_WITHIN, count.wait_for(|open| *open > 0)).await;
        match read {
            Ok(Ok(_)) => {}
            _ => return Err(RegisterError::NotRead),
        }
        Ok(listening)
    }
}
