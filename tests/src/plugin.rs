//! The device plugin on a fixture, between a manager and a kubelet.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use vcuda_region::limits::Limits;

use crate::kubelet::{Authority, Kubelet, Pod, Started};
use crate::{Fixture, Manager, Running, release_dir};

/// A running device plugin, killed on drop.
#[derive(Debug)]
pub struct Plugin<'b> {
    fixture: &'b Fixture,
    name: &'static str,
    running: Option<Running>,
}

/// A node whose kubelet has the plugin's devices.
#[derive(Debug)]
pub struct Node<'b> {
    /// The plugin, which logs to `plugin.log`.
    pub plugin: Plugin<'b>,
    /// The kubelet.
    pub kubelet: Kubelet,
    /// The manager, with a shim for containers.
    pub manager: Manager<'b>,
}

/// Default configuration of the plugin.
const CONFIGURATION: &str = "[release]\ninterval = \"200ms\"\ngrace = \"1s\"\n[log]\nfilter = \"debug,h2=info,tower=info,hyper_util=info\"\n";

impl Fixture {
    /// Starts a manager with a shim for containers, and with `manager.toml` of the fixture's home if there is one.
    pub fn manager_with_shim(&self) -> Manager<'_> {
        let file = self.home.path().join("manager.toml");
        let (shim, program) = (release_dir().join("libvcuda_shim.so"), release_dir().join("vcuda"));
        let mut args =
            vec!["--shim-library", shim.to_str().unwrap(), "--vcuda-program", program.to_str().unwrap()];
        if file.exists() {
            args.extend(["--config", file.to_str().unwrap()]);
        }
        self.manager_with(&args)
    }

    /// Starts manager, kubelet and plugin, and waits for the devices.
    pub fn node(&self) -> Node<'_> {
        self.node_with(CONFIGURATION)
    }

    /// As [`Fixture::node`], with this configuration of the plugin.
    pub fn node_with(&self, configuration: &str) -> Node<'_> {
        let manager = self.manager_with_shim();
        let kubelet = self.kubelet();
        let plugin = self.plugin_named("plugin", configuration);
        kubelet.wait_for_devices();
        Node { plugin, kubelet, manager }
    }

    /// As [`Fixture::node_with`], with this node name.
    pub fn node_named(&self, name: &str, configuration: &str) -> Node<'_> {
        fs::write(self.home.path().join("plugin.node"), name).unwrap();
        self.node_with(configuration)
    }

    /// Starts a kubelet on this fixture's directories.
    pub fn kubelet(&self) -> Kubelet {
        self.kubelet_calling(Authority::default())
    }

    /// Starts a kubelet with this `:authority`.
    pub fn kubelet_calling(&self, authority: Authority) -> Kubelet {
        Kubelet::start(&self.kubelet_directory(), &self.cdi(), authority)
    }

    /// Folder in place of `/var/lib/kubelet`.
    pub fn kubelet_directory(&self) -> PathBuf {
        self.home.path().join("kubelet")
    }

    /// Folder of container specifications.
    pub fn cdi(&self) -> PathBuf {
        self.home.path().join("cdi")
    }

    /// Starts a device plugin.
    pub fn plugin(&self) -> Plugin<'_> {
        self.plugin_named("plugin", CONFIGURATION)
    }

    /// Starts a plugin with this configuration and this name of its log. Containers get the simulated driver.
    pub fn plugin_named(&self, name: &'static str, configuration: &str) -> Plugin<'_> {
        let root = self.driver_root();
        let driver = format!(
            "devices = \"{root}/dev\"\n{configuration}\n[driver]\nroot = \"{root}\"\n",
            root = root.display()
        );
        fs::write(self.home.path().join(format!("{name}.toml")), driver).unwrap();
        let mut plugin = Plugin { fixture: self, name, running: None };
        plugin.start();
        plugin
    }

    /// A driver root with the simulated driver, and with device nodes if they can be made.
    pub fn driver_root(&self) -> PathBuf {
        let root = self.home.path().join("driver");
        let (libraries, devices) = (root.join("usr/lib64"), root.join("dev"));
        if !devices.exists() {
            fs::create_dir_all(&libraries).unwrap();
            fs::create_dir_all(&devices).unwrap();
            for (library, name) in [("cuda", "libcuda.so.580.1"), ("nvml", "libnvidia-ml.so.580.1")] {
                let from = release_dir().join(format!("libvcuda_simulator_{library}.so"));
                fs::copy(from, libraries.join(name)).unwrap();
                let asked = name.replace("580.1", "1");
                symlink(name, libraries.join(asked)).unwrap();
            }
            for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"] {
                // Only root can make them, and only root starts containers here.
                let null = Command::new("mknod")
                    .args(["-m", "666"])
                    .arg(devices.join(name))
                    .args(["c", "1", "3"])
                    .output();
                assert!(null.is_ok(), "{null:?}");
            }
        }
        root
    }

    /// A command for the device plugin on this fixture's directories, with the configuration of this name.
    pub fn plugin_command(&self, name: &str) -> Command {
        let mut command = Command::new(release_dir().join("vcuda-kubernetes"));
        command.arg("device-plugin");
        self.environment(&mut command);
        let configuration = self.home.path().join(format!("{name}.toml"));
        if configuration.exists() {
            command.arg("--config").arg(configuration);
        }
        command
            .arg("--manager")
            .arg(self.runtime().join("vcuda/manager.sock"))
            .arg("--kubelet")
            .arg(self.kubelet_directory())
            .arg("--cdi")
            .arg(self.cdi())
            .args(["--metrics", "127.0.0.1:0"]);
        if let Ok(node) = fs::read_to_string(self.home.path().join(format!("{name}.node"))) {
            command.args(["--node", &node]);
        }
        command
    }
}

impl Plugin<'_> {
    /// Starts it after a kill.
    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        let mut command = self.fixture.plugin_command(self.name);
        self.running = Some(Running::start(command.stderr(Stdio::from(log))));
    }

    fn log_path(&self) -> PathBuf {
        self.fixture.home.path().join(format!("{}.log", self.name))
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.signal(libc::SIGKILL);
            running.finish();
        }
    }

    /// Kills it and starts it again.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Its process.
    pub fn running(&mut self) -> &mut Running {
        self.running.as_mut().unwrap()
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap()
    }

    /// Address of its metrics and health, chosen by itself.
    pub fn address(&self) -> String {
        let log = self.log();
        let found = log.lines().rev().find_map(|line| line.split_once("metrics at http://"));
        let rest = found.unwrap_or_else(|| panic!("no metrics in {log}")).1;
        rest.split('/').next().unwrap().to_owned()
    }
}

impl Started {
    /// The tenant's id at the manager.
    pub fn id(&self) -> String {
        let directory = self.directory();
        directory.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// Whether the tenant may be suspended.
    pub fn is_suspendable(&self) -> bool {
        Limits::read(&self.directory()).unwrap().is_suspendable()
    }

    /// Memory limits (bytes) and shares of time (thousandths) of the tenant by GPU, from its `limits` file.
    pub fn limits(&self) -> Vec<(String, u64, u32)> {
        let limits = Limits::read(&self.directory()).unwrap();
        let devices = limits.devices();
        devices
            .map(|(index, uuid)| {
                let config = limits.config(index).unwrap();
                (uuid.to_string(), config.memory_limit_bytes, config.cap_permille)
            })
            .collect()
    }
}

impl Kubelet {
    /// Starts the container `c`, with kubelet's repetitions.
    ///
    /// # Panics
    /// Panics if it does not start within a minute.
    pub fn started(&self, pod: &Pod) -> Started {
        let mut started = None;
        let mut why = String::new();
        let end = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        while started.is_none() {
            match self.start_container(pod, "c") {
                Ok(now) => started = Some(now),
                Err(now) => why = now,
            }
            assert!(std::time::SystemTime::now() < end, "{}: {why}", pod.spec.name);
            if started.is_none() {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
        started.unwrap()
    }
}
