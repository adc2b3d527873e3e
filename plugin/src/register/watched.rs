//! Registration by a socket in the directory that kubelet watches. Kubelet queries it by itself.

use std::io;

use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tracing::debug;
use vcuda_kubelet_api::pluginregistration::registration_server::{Registration, RegistrationServer};
use vcuda_kubelet_api::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use vcuda_kubelet_api::v1beta1::device_plugin_server::DevicePluginServer;
use vcuda_kubelet_api::{DEVICE_PLUGIN, VERSION};

use super::Registrar;
use crate::serve::{Listening, listen};

/// State of the registration, by kubelet's calls at the watched socket.
#[derive(Debug, Clone, Default)]
pub(crate) struct RegistrationState {
    pub(crate) is_queried: bool,
    pub(crate) accepted: bool,
    pub(crate) refused: Option<String>,
}

#[derive(Debug)]
pub(crate) struct RegistrationService {
    info: PluginInfo,
    state: watch::Sender<RegistrationState>,
}

impl RegistrationService {
    /// Creates a service that answers with `info` and updates `state`.
    pub(crate) fn new(info: PluginInfo, state: watch::Sender<RegistrationState>) -> Self {
        Self { info, state }
    }
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        debug!(resource = self.info.name, "kubelet asks");
        self.state.send_modify(|state| state.is_queried = true);
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        self.state.send_modify(|state| {
            state.accepted = status.plugin_registered;
            state.refused = (!status.plugin_registered).then_some(status.error);
        });
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

impl Registrar {
    /// Serves the resource, then the registration socket. Returns both.
    pub(super) fn serve_watched(
        &self,
        state: watch::Sender<RegistrationState>,
    ) -> io::Result<(Listening, Listening)> {
        let kind = self.resource.kind;
        let path = self.directories.service_socket(kind);
        std::fs::create_dir_all(self.directories.own())?;
        let service = listen(&path, Routes::new(DevicePluginServer::new(self.resource.clone())))?;
        let info = PluginInfo {
            r#type: DEVICE_PLUGIN.to_owned(),
            name: self.resource.name.clone(),
            endpoint: path.display().to_string(),
            supported_versions: vec![VERSION.to_owned()],
        };
        let registration = RegistrationService::new(info, state);
        let routes = Routes::new(RegistrationServer::new(registration));
        let registration_socket = listen(&self.watched.path(), routes)?;
        self.watched.remove_others();
        Ok((service, registration_socket))
    }
}
