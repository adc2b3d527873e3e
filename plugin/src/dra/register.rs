//! The driver's two sockets: its service, and the registration in the directory that kubelet watches.

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};
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
use crate::register::name::WatchedName;
use crate::register::watched::{RegistrationService, RegistrationState};
use crate::register::{Directories, QUERY_TIMEOUT};
use crate::serve::{Listening, listen};

/// Longest time without a query after which the registration is offered under another name.
const QUERY_TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Interval of checks whether the sockets are still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Registrar {
    directories: Directories,
    service: Service,
    health: Health,
    state: watch::Sender<RegistrationState>,
}

impl Registrar {
    pub(crate) fn new(directories: Directories, service: Service, health: Health) -> Self {
        Self { directories, service, health, state: watch::Sender::default() }
    }

    pub(crate) fn state(&self) -> watch::Receiver<RegistrationState> {
        self.state.subscribe()
    }

    /// Serves both sockets until the task is dropped. Kubelet queries the registration by itself, also after its own restart. So
    /// the sockets are made again only if one is gone, or if kubelet does not query at all.
    pub(crate) async fn run(self) {
        let mut watched = WatchedName::find(self.directories.registry(), DRIVER.to_owned());
        let mut logged = None;
        let mut patience = QUERY_TIMEOUT;
        loop {
            match self.serve_sockets(&watched) {
                Ok(sockets) => {
                    info!("offered to kubelet");
                    logged = None;
                    match self.is_lost(&sockets, patience).await {
                        true => warn!("a socket of the driver was removed; it is made again"),
                        false => {
                            watched.renew();
                            // Kubelet may not run yet.
                            patience = QUERY_TIMEOUT_MAX.min(patience * 2);
                        }
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if logged.as_ref() != Some(&error) {
                        warn!("cannot be offered to kubelet yet: {error}");
                    }
                    logged = Some(error);
                    sleep(CHECK_INTERVAL).await;
                }
            }
            self.state.send_replace(RegistrationState::default());
        }
    }

    /// Waits until a socket is gone, or kubelet has not queried for `patience`. Returns whether a socket is gone.
    async fn is_lost(&self, sockets: &[Listening], patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while sockets.iter().all(Listening::is_intact) {
            let is_queried = self.state.borrow().is_queried;
            if !is_queried && Instant::now() >= until {
                return false;
            }
            sleep(CHECK_INTERVAL).await;
        }
        true
    }

    fn serve_sockets(&self, watched: &WatchedName) -> io::Result<[Listening; 2]> {
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
        let registration = RegistrationService::new(info, self.state.clone());
        let routes = Routes::new(RegistrationServer::new(registration));
        let registration_socket = listen(&watched.path(), routes)?;
        watched.remove_others();
        Ok([service, registration_socket])
    }
}
