//! The driver's two sockets: one in the directory that kubelet watches, at which it asks who is there, and the driver's own.

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tonic::service::Routes;
use tracing::{info, warn};
use vcuda_kubelet_api::dra::dra_plugin_server::DraPluginServer;
use vcuda_kubelet_api::dra_health::dra_resource_health_server::DraResourceHealthServer;
use vcuda_kubelet_api::pluginregistration::PluginInfo;
use vcuda_kubelet_api::pluginregistration::registration_server::RegistrationServer;
use vcuda_kubelet_api::{DRA_HEALTH_SERVICE, DRA_PLUGIN, DRA_SERVICE};

use super::DRIVER;
use super::health::Health;
use super::service::Service;
use crate::register::Directories;
use crate::register::watched::{Asked, Watched};
use crate::serve::{Listening, listen};

/// Between looks whether the sockets are there.
const LOOK: Duration = Duration::from_secs(1);

/// Serves claims, and is found by kubelet.
pub(crate) struct Registrar {
    directories: Directories,
    service: Service,
    health: Health,
    asked: watch::Sender<Asked>,
}

impl Registrar {
    /// One in these directories.
    #[must_use]
    pub(crate) fn new(directories: Directories, service: Service, health: Health) -> Self {
        Self {
            directories,
            service,
            health,
            asked: watch::Sender::default(),
        }
    }

    /// What kubelet has said last.
    #[must_use]
    pub(crate) fn asked(&self) -> watch::Receiver<Asked> {
        self.asked.subscribe()
    }

    /// Offers the driver until it is dropped. Kubelet asks by itself, also after its own restart, and needs a new socket only
    /// where the old one is gone.
    pub(crate) async fn run(self) {
        let mut told = None;
        loop {
            match self.offer() {
                Ok(sockets) => {
                    info!("offered to kubelet");
                    told = None;
                    while sockets.iter().all(Listening::is_intact) {
                        sleep(LOOK).await;
                    }
                    warn!("a socket of the driver was removed; it is made again");
                }
                Err(error) => {
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        warn!("cannot be offered to kubelet yet: {error}");
                    }
                    told = Some(error);
                    sleep(LOOK).await;
                }
            }
            self.asked.send_replace(Asked::default());
        }
    }

    fn offer(&self) -> io::Result<[Listening; 2]> {
        std::fs::create_dir_all(self.directories.own())?;
        let path = self.directories.own().join("dra.sock");
        let routes = Routes::new(DraPluginServer::new(self.service.clone()))
            .add_service(DraResourceHealthServer::new(self.health.clone()));
        let service = listen(&path, routes)?;
        let info = PluginInfo {
            r#type: DRA_PLUGIN.to_owned(),
            name: DRIVER.to_owned(),
            endpoint: path.display().to_string(),
            supported_versions: vec![DRA_SERVICE.to_owned(), DRA_HEALTH_SERVICE.to_owned()],
        };
        let watched = Watched::new(info, self.asked.clone());
        let socket = self.directories.registry().join(format!("{DRIVER}-reg.sock"));
        let registration = listen(&socket, Routes::new(RegistrationServer::new(watched)))?;
        Ok([service, registration])
    }
}
