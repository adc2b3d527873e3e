//! The DRA driver on a fixture, and kubelet's calls of it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::runtime::Runtime;
use vcuda_kubelet_api::dra::dra_plugin_client::DraPluginClient;
use vcuda_kubelet_api::dra::{
    Claim, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
};
use vcuda_kubelet_api::dra_health::dra_resource_health_client::DraResourceHealthClient;
use vcuda_kubelet_api::dra_health::{DeviceHealth, NodeWatchResourcesRequest};
use vcuda_kubelet_api::pluginregistration::registration_client::RegistrationClient;
use vcuda_kubelet_api::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};
use vcuda_kubelet_api::{DRA_HEALTH_SERVICE, DRA_PLUGIN, DRA_SERVICE, connect};

pub mod claims;

use crate::resource_api::ResourceApi;
use crate::{Fixture, Running, eventually, release_dir};

/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A running driver, killed on drop.
#[derive(Debug)]
pub struct DraDriver<'b> {
    fixture: &'b Fixture,
    node: String,
    kubelet: Runtime,
    running: Option<Running>,
}

impl Fixture {
    /// Starts a driver on the node of this name, with the API server `api`, and registers it as kubelet does.
    pub fn dra_driver(&self, node: &str, api: &ResourceApi) -> DraDriver<'_> {
        let mut driver = self.dra_driver_with(node, api, "");
        driver.start();
        driver
    }

    /// As [`Fixture::dra_driver`], with this configuration too; not started.
    pub fn dra_driver_with(&self, node: &str, api: &ResourceApi, more: &str) -> DraDriver<'_> {
        let root = self.driver_root();
        let configuration = format!(
            "devices = \"{root}/dev\"\n[cluster]\nevents = true\nkubeconfig = \"{config}\"\n[driver]\nroot = \"{root}\"\n{more}\n",
            root = root.display(),
            config = api.kubeconfig().display()
        );
        fs::write(self.home.path().join("dra.toml"), configuration).unwrap();
        fs::create_dir_all(self.cdi()).unwrap();
        fs::create_dir_all(self.kubelet_directory().join("plugins_registry")).unwrap();
        DraDriver { fixture: self, node: node.to_owned(), kubelet: Runtime::new().unwrap(), running: None }
    }
}

impl DraDriver<'_> {
    /// Starts and registers the driver.
    pub fn start(&mut self) {
        self.start_alone();
        self.register();
    }

    /// Registers the driver as kubelet does.
    pub fn register(&self) {
        let mut info = None;
        eventually("kubelet registers the driver", SOON, || {
            info = self.registered();
            info.is_some()
        });
        let info = info.unwrap();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), (DRA_PLUGIN, "vcuda.io"));
        assert_eq!(info.supported_versions, [DRA_SERVICE, DRA_HEALTH_SERVICE]);
    }

    /// Starts it where it may have to wait.
    pub fn start_alone(&mut self) {
        let path = self.fixture.home.path().join("dra.log");
        let addresses = || {
            let log = fs::read_to_string(&path).unwrap_or_default();
            log.matches("metrics at http://").count()
        };
        let before = addresses();
        let log = self.fixture.home.path().join("dra.log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(release_dir().join("vcuda-kubernetes"));
        command.arg("dra-driver");
        self.fixture.environment(&mut command);
        command
            .arg("--config")
            .arg(self.fixture.home.path().join("dra.toml"))
            .arg("--manager")
            .arg(self.fixture.runtime().join("vcuda/manager.sock"))
            .arg("--kubelet")
            .arg(self.fixture.kubelet_directory())
            .arg("--cdi")
            .arg(self.fixture.cdi())
            .args(["--node", &self.node, "--metrics", "127.0.0.1:0"])
            .stderr(Stdio::from(log));
        self.running = Some(Running::start(&mut command));
        eventually("its pages are served", SOON, || addresses() > before);
    }

    /// Kills the driver.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.signal(libc::SIGKILL);
            running.finish();
        }
    }

    /// Registers the driver as kubelet does. Returns whether it answers.
    pub fn registers(&self) -> bool {
        self.registered().is_some()
    }

    /// Its sockets in the directory that kubelet watches.
    pub fn registration_sockets(&self) -> Vec<PathBuf> {
        let registry = self.fixture.kubelet_directory().join("plugins_registry");
        let entries = std::fs::read_dir(registry).into_iter().flatten().flatten();
        let resources = ["gpu", "memory", "cores"].map(|name| format!("vcuda.io-{name}-"));
        let is_plugins = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            resources.iter().any(|resource| name.starts_with(resource))
        };
        entries.map(|entry| entry.path()).filter(|path| !is_plugins(path)).collect()
    }

    fn registered(&self) -> Option<PluginInfo> {
        let socket = self.registration_sockets().pop()?;
        self.kubelet.block_on(async {
            let channel = connect(&socket, SOON).await.ok()?;
            let mut client = RegistrationClient::new(channel);
            let info = client.get_info(InfoRequest {}).await.ok()?.into_inner();
            let status = RegistrationStatus { plugin_registered: true, error: String::new() };
            client.notify_registration_status(status).await.ok()?;
            Some(info)
        })
    }

    /// Path of the socket that kubelet calls.
    pub fn socket(&self) -> PathBuf {
        self.fixture.kubelet_directory().join("plugins/vcuda.io/dra.sock")
    }

    /// Calls NodePrepareResources for a claim of the namespace `default`.
    pub fn prepare(&self, name: &str, uid: &str) -> NodePrepareResourceResponse {
        self.kubelet.block_on(async {
            let mut client = DraPluginClient::new(connect(&self.socket(), SOON).await.unwrap());
            let request = NodePrepareResourcesRequest { claims: vec![claim(name, uid)] };
            let mut answer = client.node_prepare_resources(request).await.unwrap().into_inner();
            answer.claims.remove(uid).expect("each claim is answered")
        })
    }

    /// Calls NodeUnprepareResources for it. Returns the error.
    pub fn unprepare(&self, name: &str, uid: &str) -> String {
        self.kubelet.block_on(async {
            let mut client = DraPluginClient::new(connect(&self.socket(), SOON).await.unwrap());
            let request = NodeUnprepareResourcesRequest { claims: vec![claim(name, uid)] };
            let mut answer = client.node_unprepare_resources(request).await.unwrap().into_inner();
            answer.claims.remove(uid).expect("each claim is answered").error
        })
    }

    /// Watches the health of its devices, as kubelet does, until a report is as wanted.
    pub fn health_until(&self, mut is_wanted: impl FnMut(&[DeviceHealth]) -> bool) -> Vec<DeviceHealth> {
        self.kubelet.block_on(async {
            let mut client = DraResourceHealthClient::new(connect(&self.socket(), SOON).await.unwrap());
            let reports = client.node_watch_resources(NodeWatchResourcesRequest {});
            let mut reports = reports.await.unwrap().into_inner();
            let wanted = async {
                loop {
                    let report = reports.message().await.unwrap();
                    let devices = report.expect("the stream goes on").devices;
                    if is_wanted(&devices) {
                        return devices;
                    }
                }
            };
            let found = tokio::time::timeout(SOON, wanted).await;
            found.expect("a report as wanted")
        })
    }

    /// Its metrics.
    pub fn metrics(&self) -> String {
        self.page("/metrics")
    }

    /// Its log, of all its starts.
    pub fn log(&self) -> String {
        fs::read_to_string(self.fixture.home.path().join("dra.log")).unwrap()
    }

    /// Problems on its readiness page; empty if it is ready.
    pub fn problems(&self) -> String {
        self.page("/readyz")
    }

    fn page(&self, page: &str) -> String {
        let log = self.log();
        let found = log.lines().rev().find_map(|line| line.split_once("metrics at http://"));
        let address = found.unwrap_or_else(|| panic!("no address in {log}")).1;
        crate::manager::fetched(address.split('/').next().unwrap(), page)
    }
}

fn claim(name: &str, uid: &str) -> Claim {
    Claim { namespace: "default".to_owned(), uid: uid.to_owned(), name: name.to_owned() }
}
