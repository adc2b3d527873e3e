//! Simulated kubelet, as strict as the real one towards a device plugin: written from Kubernetes' documentation and source,
//! as far as a plugin sees it (docs/kubernetes.md). It has no API server, scheduler or containers: tests admit pods, start
//! containers and remove them.
//!
//! It imitates observations on Kubernetes 1.36 with containerd 2.1:
//!
//! - After its restart kubelet dials sockets in `plugins_registry` again.
//! - Allocate is called once for each resource, in any order; an empty answer is accepted for memory and cores. If it
//!   fails, the pod ends with `UnexpectedAdmissionError`.
//! - PreStartContainer is called at each start, except after kubelet's restart until the plugin is back. PodResources lists
//!   the container before; plain init containers are only in kubelet's checkpoint. If it fails, the container's state is
//!   `CreateContainerConfigError`. Texts reach the events unchanged.
//! - Unhealthy IDs leave `allocatable` within seconds.
//!
//! | module | what |
//! |---|---|
//! | `clients` | plugins: registration, dialling back, lists, loss |
//! | `manager` | devices: free and allocated ones, answers; the checkpoint |
//! | `pods` | pods: admission, starts, removal |
//! | `told` | PodResources |
//! | `runtime` | the container runtime, as far as it reads CDI specifications |
//! | `raw` | gRPC by hand, for requests that a proper client cannot make |

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

/// Default names of the resources.
pub const RESOURCES: [&str; 3] = ["vcuda.io/gpu", "vcuda.io/memory", "vcuda.io/cores"];
/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Value of `:authority` at the sockets that kubelet watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authority {
    /// `localhost`, as at all other sockets.
    Localhost,
    /// The socket's path.
    Path,
    /// The socket's path with its slashes as `%2F`, as grpc-go does for a path without an authority.
    #[default]
    Escaped,
}

/// The kubelet of a node.
#[derive(Debug)]
pub struct Kubelet {
    node: Arc<Node>,
    /// Its threads; `None` while it is stopped.
    running: Option<Runtime>,
    seed: u64,
}

/// State shared by kubelet's threads, which outlives its process.
#[derive(Debug)]
struct Node {
    directory: PathBuf,
    cdi: PathBuf,
    authority: Authority,
    devices: Mutex<Devices>,
    /// Pods of this node by the API server, by UID.
    pods: Mutex<BTreeMap<String, Pod>>,
    random: Mutex<fastrand::Rng>,
    mood: Mutex<Mood>,
    /// Number of calls that PodResources still answers, and its time (s).
    allowance: Mutex<(f64, SystemTime)>,
    /// Number of calls of PodResources.
    asked: AtomicUsize,
    /// Pause after the first failure at a socket of the watched directory.
    first_pause: Mutex<Duration>,
    /// Forbidden actions of a plugin.
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
    /// Starts a kubelet with its files in `directory`, and a runtime that reads specifications in `cdi`.
    pub fn start(directory: &Path, cdi: &Path, authority: Authority) -> Self {
        let seed = fastrand::u64(..);
        for name in ["device-plugins", "plugins_registry", "plugins", "pod-resources"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        fs::create_dir_all(cdi).unwrap();
        let mut kubelet = Self {
            node: Arc::new(Node {
                directory: directory.to_owned(),
                cdi: cdi.to_owned(),
                authority,
                devices: Mutex::default(),
                pods: Mutex::default(),
                random: Mutex::new(fastrand::Rng::with_seed(seed)),
                mood: Mutex::default(),
                allowance: Mutex::new((told::BURST, SystemTime::now())),
                asked: AtomicUsize::new(0),
                first_pause: Mutex::new(clients::FIRST_PAUSE),
                wrongs: Mutex::default(),
            }),
            running: None,
            seed,
        };
        kubelet.start_again();
        kubelet
    }

    /// Seed that reproduces a failure.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Stops it as SIGKILL would: no peer is informed, and containers continue.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown_timeout(Duration::from_secs(5));
        }
    }

    /// Starts it again from the checkpoint: plugins' sockets are removed, and its own are new.
    pub fn start_again(&mut self) {
        assert!(self.running.is_none(), "it runs");
        let directory = self.node.device_plugins();
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_socket() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        self.node.devices.lock().restarted(&directory.join(CHECKPOINT));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let pod_resources = self.node.directory.join("pod-resources").join(KUBELET_SOCKET);
        let _ = fs::remove_file(&pod_resources);
        let listening = runtime.enter();
        clients::listen(&directory.join(KUBELET_SOCKET));
        told::serve(&self.node, &pod_resources);
        runtime.spawn(clients::watch(Arc::clone(&self.node)));
        drop(listening);
        self.running = Some(runtime);
    }

    /// Stops and starts it.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    fn runtime(&self) -> &Runtime {
        self.running.as_ref().unwrap_or_else(|| panic!("kubelet is stopped"))
    }

    /// From its next start on, it behaves as if it had dialled a dead socket for minutes: the next try is after the longest pause.
    pub fn has_waited_long(&self) {
        *self.node.first_pause.lock() = clients::LONGEST_PAUSE;
    }

    /// Sets the behaviour of PodResources.
    pub fn set_mood(&self, mood: Mood) {
        *self.node.mood.lock() = mood;
    }

    /// Numbers of allocatable and of all devices.
    pub fn counts(&self, resource: &str) -> (usize, usize) {
        self.node.devices.lock().counts(resource)
    }

    /// Number of allocatable devices.
    pub fn allocatable(&self, resource: &str) -> usize {
        self.counts(resource).0
    }

    /// Waits until all three resources are available.
    pub fn wait_for_devices(&self) {
        eventually("kubelet has the devices of all three resources", SOON, || {
            RESOURCES.iter().all(|name| self.allocatable(name) > 0)
        });
    }

    /// NUMA nodes of all devices of a resource; -1 for those without.
    pub fn numa_nodes(&self, resource: &str) -> BTreeSet<i64> {
        self.node.devices.lock().numa_nodes(resource)
    }

    /// Number of calls of PodResources.
    pub fn asked(&self) -> usize {
        self.node.asked.load(Ordering::Relaxed)
    }

    /// Whether pods may request the resource: it disappears five minutes after its plugin. `later` is added to the present
    /// time.
    pub fn knows(&self, resource: &str, later: Duration) -> bool {
        self.node.devices.lock().knows(resource, later)
    }

    /// Calls Allocate with any IDs, as a faulty kubelet might.
    ///
    /// # Errors
    /// Fails with the plugin's error.
    pub fn allocate_rubbish(&self, resource: &str, ids: &[&str]) -> Result<Vec<String>, String> {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let answer = self.runtime().block_on(self.node.call_allocate(resource, ids));
        answer.map(|answer| answer.cdi_devices.into_iter().map(|device| device.name).collect())
    }

    /// Calls PreStartContainer with any IDs.
    ///
    /// # Errors
    /// Fails with the plugin's error.
    pub fn start_rubbish(&self, resource: &str, ids: &[&str]) -> Result<(), String> {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        self.runtime().block_on(self.node.call_start(resource, ids))
    }
}

/// Panics if a plugin did something forbidden.
impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop();
        let wrongs = self.node.wrongs.lock();
        assert!(wrongs.is_empty() || std::thread::panicking(), "seed {}: {wrongs:?}", self.seed);
    }
}
