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

/// What kubelet has said at the watched socket.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Set once kubelet has asked for the plugin's identity.
    pub came: bool,
    /// Set once kubelet has said that it uses the plugin.
    pub accepted: bool,
    /// It does not want us, and why.
    pub refused: Option<String>,
}

/// The service at a socket that kubelet finds in the directory that it watches.
#[derive(Debug)]
pub struct Watched {
    info: PluginInfo,
    asked: watch::Sender<Asked>,
}

impl Watched {
    /// Answers with `info`, and notes in `asked` what kubelet says.
    #[must_use]
    pub fn new(info: PluginInfo, asked: watch::Sender<Asked>) -> Self {
        Self { info, asked }
    }
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
        self.asked.send_modify(|asked| {
            asked.accepted = status.plugin_registered;
            asked.refused = (!status.plugin_registered).then_some(status.error);
        });
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
        let info = PluginInfo {
            r#type: DEVICE_PLUGIN.to_owned(),
            name: self.resource.name.clone(),
            endpoint: path.display().to_string(),
            supported_versions: vec![VERSION.to_owned()],
        };
        let watched = Watched::new(info, asked);
        let routes = Routes::new(RegistrationServer::new(watched));
        let registration = listen(&self.directories.watched_socket(kind), routes)?;
        Ok((service, registration))
    }
}
