//! Containers started by containerd with kubelet's answers: pods and containers over the Container Runtime Interface,
//! devices by CDI names, whose specifications containerd reads itself.
//!
//! | module | what |
//! |---|---|
//! | `container` | containers of a pod: creation, start, end and output |
//! | `cri` | messages of the interface |
//! | `image` | the image of all containers |

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::transport::Channel;
use vcuda_kubelet_api::connect;

use crate::kubelet::{Pod, Started};
use crate::{Fixture, Running, release_dir, skip, succeeded};

mod container;
mod cri;
mod image;

pub use container::{Container, Ended, Named};

/// Debian releases whose containerd is tested: version 1.7, which needs a setting for specifications, and version 2, which
/// reads them by default. `scripts/test.sh` fetches both.
pub const RELEASES: [&str; 2] = ["trixie", "sid"];

/// Time that an immediate effect may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// Own process and mount namespaces: nothing outlives containerd, and its files in `/run` are not visible elsewhere. This
/// machine's userland is put below a writable directory, for mount points.
const SCRIPT: &str = r#"
set -eu
scratch=$1 programs=$2
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs "$scratch/over"
mkdir "$scratch/over/upper" "$scratch/over/work"
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$scratch/over/upper,workdir=$scratch/over/work" "$scratch/usr"
export PATH="$programs:$PATH"
exec containerd --config "$scratch/config.toml"
"#;

/// A running containerd, killed with all its containers on drop.
#[derive(Debug)]
pub struct Containerd<'b> {
    fixture: &'b Fixture,
    calls: Runtime,
    channel: Channel,
    version: String,
    // Dropped before the folder in which it works.
    process: Running,
    scratch: TempDir,
}

/// A pod's sandbox, removed on drop.
#[derive(Debug)]
pub struct Sandbox<'c> {
    containerd: &'c Containerd<'c>,
    id: String,
    config: cri::PodConfig,
}

impl<'b> Containerd<'b> {
    /// Starts the containerd of this Debian release, with the fixture's folder of specifications. `None` if it is missing,
    /// or cannot start a container without devices.
    pub fn start(fixture: &'b Fixture, release: &str) -> Option<Self> {
        let started = Self::started(fixture, release).and_then(|containerd| {
            let bare = containerd.pod(&Pod::named("bare"))?;
            let ended = bare.container(&Started::default()).run(&["true"])?;
            match ended.code {
                0 => Ok(()),
                _ => Err(format!("{ended:?}")),
            }?;
            drop(bare);
            Ok(containerd)
        });
        started
            .map_err(|why| {
                let words = why.replace('\n', " ");
                skip(&format!("containerd of Debian's {release} does not work here: {words}"));
            })
            .ok()
    }

    fn started(fixture: &'b Fixture, release: &str) -> Result<Self, String> {
        let programs = release_dir().join(format!("../containerd/{release}/usr/bin"));
        let programs = fs::canonicalize(programs).map_err(|_| "it was not fetched".to_owned())?;
        let scratch = tempfile::tempdir().unwrap();
        for folder in ["over", "usr", "logs"] {
            fs::create_dir(scratch.path().join(folder)).unwrap();
        }
        let configured = configuration(release, scratch.path(), &fixture.cdi());
        fs::write(scratch.path().join("config.toml"), configured).unwrap();
        let log = File::create(scratch.path().join("log")).unwrap();
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", SCRIPT, "containerd"])
            .args([scratch.path(), &programs])
            .stdin(Stdio::null())
            .stderr(Stdio::from(log));
        let mut process = Running::start(&mut command);
        let calls =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let socket = scratch.path().join("containerd.sock");
        let end = SystemTime::now() + SOON;
        let channel = loop {
            match calls.block_on(connect(&socket, Duration::from_secs(5))) {
                Ok(channel) => break channel,
                Err(_) if SystemTime::now() < end && process.is_alive() => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => {
                    let log = fs::read_to_string(scratch.path().join("log")).unwrap();
                    let last = log.lines().last().unwrap_or_default();
                    return Err(format!("{error}: {last}"));
                }
            }
        };
        let mut containerd = Self { fixture, calls, channel, version: String::new(), process, scratch };
        containerd.import(&programs);
        let version: cri::Version =
            containerd.call("/runtime.v1.RuntimeService/Version", cri::Empty::default())?;
        containerd.version = version.runtime_version;
        Ok(containerd)
    }

    /// Imports the image, and waits until pods can use it.
    fn import(&self, programs: &Path) {
        let archive = self.scratch.path().join("image.tar");
        image::write(&archive);
        let mut ctr = Command::new(programs.join("ctr"));
        ctr.arg("--address").arg(self.scratch.path().join("containerd.sock"));
        ctr.args(["--namespace", "k8s.io", "images", "import", "--no-unpack"]).arg(archive);
        succeeded(&ctr.output().unwrap());
        let named = || cri::ImageStatusRequest { image: Some(cri::Image { name: image::NAME.to_owned() }) };
        crate::eventually("containerd's pods can have the image", SOON, || {
            let answer = self.call("/runtime.v1.ImageService/ImageStatus", named());
            answer.is_ok_and(|status: cri::ImageStatusResponse| status.image.is_some())
        });
    }

    /// Its version as it reports it.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, String>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        self.calls.block_on(cri::call(&self.channel, method, request))
    }

    /// Makes this pod's sandbox, with the node's network.
    ///
    /// # Errors
    /// Fails with containerd's message.
    pub fn pod(&self, pod: &Pod) -> Result<Sandbox<'_>, String> {
        let logs = self.scratch.path().join("logs").join(&pod.uid);
        fs::create_dir(&logs).unwrap();
        let config = cri::PodConfig {
            metadata: Some(cri::PodMetadata {
                name: pod.spec.name.clone(),
                uid: pod.uid.clone(),
                namespace: pod.spec.namespace.clone(),
            }),
            log_directory: logs.display().to_string(),
            linux: Some(cri::LinuxPod {
                cgroup_parent: format!("/{}", self.cgroup()),
                security: Some(cri::PodSecurity { namespaces: Some(namespaces()) }),
            }),
        };
        let request = cri::RunPodSandboxRequest { config: Some(config.clone()) };
        let made: cri::PodId = self.call("/runtime.v1.RuntimeService/RunPodSandbox", request)?;
        Ok(Sandbox { containerd: self, id: made.id, config })
    }

    /// Name of its control groups in each hierarchy.
    fn cgroup(&self) -> String {
        let name = self.scratch.path().file_name().unwrap().to_string_lossy();
        format!("vcuda-test-{}", name.trim_start_matches('.'))
    }
}

impl Sandbox<'_> {
    /// A container with kubelet's answers, run by root with a writable root file system.
    pub fn container<'s>(&'s self, started: &'s Started) -> Container<'s> {
        Container::new(self, &started.names)
    }
}

impl Drop for Sandbox<'_> {
    fn drop(&mut self) {
        for method in
            ["/runtime.v1.RuntimeService/StopPodSandbox", "/runtime.v1.RuntimeService/RemovePodSandbox"]
        {
            let id = cri::PodId { id: self.id.clone() };
            // After a failed test, containerd's answer does not matter.
            let _: Result<cri::Empty, String> = self.containerd.call(method, id);
        }
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        self.process.signal(libc::SIGKILL);
        self.process.finish();
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            // It may not exist.
            let _ = fs::remove_dir(hierarchy.path().join(self.cgroup()));
        }
    }
}

/// Namespaces as kubelet requests them, except the network.
fn namespaces() -> cri::Namespaces {
    cri::Namespaces { network: cri::NODE, pid: cri::CONTAINER, ipc: cri::POD }
}

/// Configuration recommended by docs/kubernetes.md, with this machine's paths.
fn configuration(release: &str, scratch: &Path, cdi: &Path) -> String {
    let at = |name: &str| scratch.join(name).display().to_string();
    let enabled = if release == RELEASES[0] { "enable_cdi = true" } else { "" };
    format!(
        r#"version = 2
root = "{}"
state = "{}"
# It makes a folder in /opt.
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{}"
# Root may be one that must not lower it.
restrict_oom_score_adj = true
{enabled}
cdi_spec_dirs = ["{}"]
[plugins."io.containerd.grpc.v1.cri".containerd]
# The folder may be on an overlay itself.
snapshotter = "native"
"#,
        at("root"),
        at("state"),
        at("containerd.sock"),
        image::NAME,
        cdi.display()
    )
}

/// Path of the machine's userland for its containers.
fn userland(containerd: &Containerd<'_>) -> PathBuf {
    containerd.scratch.path().join("usr")
}
