//! The sockets that kubelet asks by itself.

use std::io;

use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tracing::debug;
use vcuda_kubelet_api::pluginregistration::registration_server::{Registration, RegistrationServer};
use vcuda_kubelet_api::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use vcuda_kubelet_api::{DEVICE_PLUGIN, VERSION};

use super::Registrar;
use crate::serve::{Listening, listen};

/// Kubelet's requests at the watched socket.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// Set once kubelet has asked for the plugin's identity.
    pub(super) came: bool,
    /// It does not want us, and why.
    pub(super) refused: Option<String>,
}

#[derive(Debug)]
struct Watched {
    info: PluginInfo,
    asked: watch::Sender<Asked>,
}

#[tonic::async_trait]
impl Registration for Watched {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        self.asked.send_modify(|asked| asked.came = true);
        debug!(resource = self.info.name, "kubelet asks");
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        if !status.plugin_registered {
            self.asked.send_modify(|asked| asked.refused = Some(status.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

impl Registrar {
    /// Serves the resource, and then the socket at which kubelet learns of it.
    pub(super) fn offer(&self, asked: watch::Sender<Asked>) -> io::Result<(Listening, Listening)> {
        let kind = self.resource.kind;
        let path = self.directories.service_socket(kind);
        std::fs::create_dir_all(self.directories.own())?;
        let service = self.serve(&path)?;
        let watched = Watched {
            info: PluginInfo {
                r#type: DEVICE_PLUGIN.to_owned(),
                name: self.resource.name.clone(),
                endpoint: path.display().to_string(),
                supported_versions: vec![VERSION.to_owned()],
            },
            asked,
        };
        let routes = Routes::new(RegistrationServer::new(watched));
        let registration = listen(&self.directories.watched_socket(kind), routes)?;
        Ok((service, registration))
    }
}
