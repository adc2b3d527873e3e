//! A kubelet as strict as the real one where it meets a device plugin: written from Kubernetes' documentation and source, for
//! what a plugin sees of it (docs/kubernetes.md). It has no API server, no scheduler and no containers: tests
//! admit pods, start their containers and remove them.
//!
//! What others observed on Kubernetes 1.36 with containerd 2.1, and this imitates:
//!
//! - After its restart kubelet dials sockets in `plugins_registry` again. The oldest that does so for device plugins is not
//!   known; after 5 s without a call the plugin registers the classic way.
//! - Allocate comes once for each resource, in any order; an answer without content is accepted for memory and cores. If it
//!   fails, the pod ends with `UnexpectedAdmissionError`.
//! - PreStartContainer comes at each start, except after kubelet's restart and before the plugin is back. PodResources lists
//!   the container before; plain init containers are only in kubelet's checkpoint. If it fails, the container's state is
//!   `CreateContainerConfigError`. Texts reach the events unchanged.
//! - IDs that are not healthy leave `allocatable` within seconds.
//!
//! | module | what |
//! |---|---|
//! | `clients` | plugins: registered both ways, dialled back, their lists read, lost |
//! | `manager` | devices: which are free, who gets which, what was answered; the checkpoint |
//! | `pods` | pods: admission, starts, removal |
//! | `told` | PodResources |
//! | `runtime` | the container runtime, as far as it reads CDI specifications |
//! | `raw` | gRPC by hand, for what a proper client cannot say |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use vcuda_kubelet_api::{CHECKPOINT, KUBELET_SOCKET};

use crate::eventually;

mod clients;
mod devices;
mod manager;
mod pods;
mod raw;
mod runtime;
mod told;

use devices::Devices;
pub use pods::{ContainerSpec, Pod, PodSpec, Role};
pub use runtime::Started;
pub use told::Mood;

/// The names of the resources, unless a test says otherwise.
pub const RESOURCES: [&str; 3] = ["vcuda.io/gpu", "vcuda.io/memory", "vcuda.io/cores"];
/// Time that an immediate effect may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Value that kubelet writes as `:authority` at the sockets that it watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authority {
    /// `localhost`, as at all other sockets.
    Localhost,
    /// The socket's path.
    Path,
    /// The socket's path with its slashes as `%2F`.
    Escaped,
}

/// Which kubelet this is.
#[derive(Debug, Clone, Copy)]
pub struct Release {
    /// Whether it registers device plugins by the directory that it watches.
    pub watches: bool,
    /// Its name for itself there.
    pub authority: Authority,
    /// Whether it removes all files but its checkpoint at its start, not only sockets.
    pub wipes_all: bool,
}

impl Default for Release {
    fn default() -> Self {
        Self {
            watches: true,
            // What grpc-go makes of a path without an authority.
            authority: Authority::Escaped,
            wipes_all: false,
        }
    }
}

/// The kubelet of a node.
#[derive(Debug)]
pub struct Kubelet {
    node: Arc<Node>,
    /// Running threads; nothing while kubelet is stopped.
    running: Option<Runtime>,
    seed: u64,
}

/// State that outlives a kubelet's process, and that its threads share.
#[derive(Debug)]
struct Node {
    directory: PathBuf,
    cdi: PathBuf,
    release: Release,
    devices: Mutex<Devices>,
    /// Pods that run here by the API server's word, by UID.
    pods: Mutex<BTreeMap<String, Pod>>,
    random: Mutex<fastrand::Rng>,
    mood: Mutex<Mood>,
    /// Calls that PodResources still answers, and since when (seconds).
    allowance: Mutex<(f64, SystemTime)>,
    /// Number of questions to PodResources.
    asked: AtomicUsize,
    /// Acts of a plugin that are forbidden.
    wrongs: Mutex<Vec<String>>,
}

impl Node {
    fn device_plugins(&self) -> PathBuf {
        self.directory.join("device-plugins")
    }

    fn checkpoint(&self) -> PathBuf {
        self.device_plugins().join(CHECKPOINT)
    }

    fn registry(&self) -> PathBuf {
        self.directory.join("plugins_registry")
    }

    fn wrong(&self, what: String) {
        self.wrongs.lock().push(what);
    }
}

impl Kubelet {
    /// Starts one that keeps its files in `directory`, with a runtime that reads specifications in `cdi`.
    pub fn start(directory: &Path, cdi: &Path, release: Release) -> Self {
        let seed = fastrand::u64(..);
        for name in ["device-plugins", "plugins_registry", "plugins", "pod-resources"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        fs::create_dir_all(cdi).unwrap();
        let mut kubelet = Self {
            node: Arc::new(Node {
                directory: directory.to_owned(),
                cdi: cdi.to_owned(),
                release,
                devices: Mutex::default(),
                pods: Mutex::default(),
                random: Mutex::new(fastrand::Rng::with_seed(seed)),
                mood: Mutex::default(),
                allowance: Mutex::new((told::BURST, SystemTime::now())),
                asked: AtomicUsize::new(0),
                wrongs: Mutex::default(),
            }),
            running: None,
            seed,
        };
        kubelet.go();
        kubelet
    }

    /// Seed with which a failure comes again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// As SIGKILL would: no peer is told. Containers run on.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// Starts again, with what the checkpoint says: sockets of plugins are removed, and its own are new ones.
    pub fn go(&mut self) {
        assert!(self.running.is_none(), "it runs");
        let directory = self.node.device_plugins();
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let is_socket = entry.file_type().unwrap().is_socket();
            let is_checkpoint = entry.file_name() == CHECKPOINT;
            if is_socket || self.node.release.wipes_all && !is_checkpoint {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        self.node.devices.lock().restarted(&directory.join(CHECKPOINT));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let pod_resources = self.node.directory.join("pod-resources").join(KUBELET_SOCKET);
        let _ = fs::remove_file(&pod_resources);
        let listening = runtime.enter();
        clients::serve_registration(&self.node, &directory.join(KUBELET_SOCKET));
        told::serve(&self.node, &pod_resources);
        if self.node.release.watches {
            runtime.spawn(clients::watch(Arc::clone(&self.node)));
        }
        drop(listening);
        self.running = Some(runtime);
    }

    /// Stops and starts.
    pub fn restart(&mut self) {
        self.stop();
        self.go();
    }

    fn runtime(&self) -> &Runtime {
        self.running
            .as_ref()
            .unwrap_or_else(|| panic!("kubelet is stopped"))
    }

    /// Sets the answers of PodResources from now on.
    pub fn set_mood(&self, mood: Mood) {
        *self.node.mood.lock() = mood;
    }

    /// Devices that can be given out, of all that there are: healthy, and all.
    pub fn counts(&self, resource: &str) -> (usize, usize) {
        self.node.devices.lock().counts(resource)
    }

    /// Devices that can be given out.
    pub fn allocatable(&self, resource: &str) -> usize {
        self.counts(resource).0
    }

    /// Waits until pods can ask for all three resources.
    pub fn wait_for_devices(&self) {
        eventually("kubelet has the devices of all three resources", SOON, || {
            RESOURCES.iter().all(|name| self.allocatable(name) > 0)
        });
    }

    /// The NUMA nodes of all devices of a resource: -1 for those without.
    pub fn numa_nodes(&self, resource: &str) -> BTreeSet<i64> {
        self.node.devices.lock().numa_nodes(resource)
    }

    /// Number of questions to PodResources.
    pub fn asked(&self) -> usize {
        self.node.asked.load(Ordering::Relaxed)
    }

    /// The clients that hold a plugin now, by how it was registered.
    pub fn ways(&self, resource: &str) -> Vec<&'static str> {
        self.node.devices.lock().ways(resource)
    }

    /// Whether pods may ask for the resource at all: it goes five minutes after its plugin. `later` is added to that time.
    pub fn knows(&self, resource: &str, later: Duration) -> bool {
        self.node.devices.lock().knows(resource, later)
    }

    /// Panics if a plugin has done what it must not.
    pub fn assert_no_wrongs(&self) {
        let wrongs = self.node.wrongs.lock();
        assert!(wrongs.is_empty(), "seed {}: {wrongs:?}", self.seed);
    }

    /// Calls the plugin of a resource directly, as a kubelet with a fault might.
    ///
    /// # Errors
    /// The plugin's answer.
    pub fn allocate_rubbish(&self, resource: &str, ids: &[&str]) -> Result<Vec<String>, String> {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let answer = self.runtime().block_on(self.node.call_allocate(resource, ids));
        answer.map(|answer| answer.cdi_devices.into_iter().map(|device| device.name).collect())
    }

    /// Likewise, before a container's start.
    ///
    /// # Errors
    /// The plugin's answer.
    pub fn start_rubbish(&self, resource: &str, ids: &[&str]) -> Result<(), String> {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        self.runtime().block_on(self.node.call_start(resource, ids))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop();
    }
}
