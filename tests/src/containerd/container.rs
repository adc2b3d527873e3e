//! Containers of a pod, made as kubelet makes them: created with device names, started, with their log read.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use super::{SOON, Sandbox, cri, image, namespaces, userland};
use crate::release_dir;

/// Ways in which kubelet passes device names to the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// In the field made for it (kubelet 1.28 and later).
    Field,
    /// In an annotation of the container, as kubelets before.
    Annotation,
}

/// A container to run. The pod's manifest adds only the simulated machine and the test programs.
#[derive(Debug, Clone)]
pub struct Container<'s> {
    sandbox: &'s Sandbox<'s>,
    devices: &'s [String],
    /// Way in which device names are passed.
    pub named: Named,
    /// User and group of its first process.
    pub user: u32,
    /// Whether its root file system is read-only, and processes cannot gain privileges.
    pub is_restricted: bool,
    /// Further mounts of the pod: source, and path in the container.
    pub mounts: Vec<(PathBuf, &'s str)>,
}

/// A container that has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Exit status of its first process.
    pub code: i32,
    /// Its output on stdout.
    pub out: String,
    /// Output on stderr, by it or by the runtime.
    pub err: String,
    /// Content of `/dev/termination-log`.
    pub termination: String,
    /// The runtime's message about its end.
    pub message: String,
}

impl Ended {
    /// Its output, after a check that it succeeded.
    pub fn printed(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }
}

/// Number of starts of all containers.
static STARTS: AtomicU32 = AtomicU32::new(0);

impl<'s> Container<'s> {
    pub(super) fn new(sandbox: &'s Sandbox<'s>, devices: &'s [String]) -> Self {
        Self { sandbox, devices, named: Named::Field, user: 0, is_restricted: false, mounts: Vec::new() }
    }

    /// Runs this command in it to its end.
    ///
    /// # Errors
    /// Fails with the runtime's reason if it cannot be created or started.
    pub fn run(&self, words: &[&str]) -> Result<Ended, String> {
        let containerd = self.sandbox.containerd;
        let attempt = STARTS.fetch_add(1, Ordering::Relaxed);
        let logs = PathBuf::from(&self.sandbox.config.log_directory);
        let termination = logs.join(format!("termination-{attempt}"));
        fs::write(&termination, "").unwrap();
        // As kubelet makes it.
        fs::set_permissions(&termination, fs::Permissions::from_mode(0o666)).unwrap();
        let config = self.config(words, attempt, &termination);
        let log = logs.join(&config.log_path);
        let request = cri::CreateContainerRequest {
            pod: self.sandbox.id.clone(),
            config: Some(config),
            pod_config: Some(self.sandbox.config.clone()),
        };
        let container: cri::ContainerId =
            containerd.call("/runtime.v1.RuntimeService/CreateContainer", request)?;
        let _: cri::Empty =
            containerd.call("/runtime.v1.RuntimeService/StartContainer", container.clone())?;
        let end = SystemTime::now() + SOON;
        let status = loop {
            let answer: cri::StatusResponse =
                containerd.call("/runtime.v1.RuntimeService/ContainerStatus", container.clone())?;
            let status = answer.status.unwrap_or_default();
            if status.state == cri::EXITED {
                break status;
            }
            assert!(SystemTime::now() < end, "{words:?} does not end: {status:?}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        let log = fs::read_to_string(log).unwrap();
        let ended = Ended {
            code: status.exit_code,
            out: written(&log, "stdout"),
            err: written(&log, "stderr"),
            termination: fs::read_to_string(&termination).unwrap(),
            message: status.message,
        };
        let _: cri::Empty = containerd.call("/runtime.v1.RuntimeService/RemoveContainer", container)?;
        Ok(ended)
    }

    /// Runs this command. Returns its output after a check that it succeeded.
    pub fn printed(&self, words: &[&str]) -> String {
        self.run(words).unwrap().printed()
    }

    fn config(&self, words: &[&str], attempt: u32, termination: &Path) -> cri::ContainerConfig {
        let containerd = self.sandbox.containerd;
        let mount = |host: &Path, inside: &str, is_read_only| cri::Mount {
            container_path: inside.to_owned(),
            host_path: host.display().to_string(),
            is_read_only,
        };
        let mut mounts = vec![
            mount(&userland(containerd), "/usr", false),
            mount(&release_dir().join("test-apps"), "/app", true),
            mount(&containerd.fixture.machine(), "/machine", false),
            mount(termination, "/dev/termination-log", false),
        ];
        mounts.extend(self.mounts.iter().map(|(host, inside)| mount(host, inside, false)));
        let (mut devices, mut annotations) = (Vec::new(), HashMap::new());
        match self.named {
            Named::Field => {
                devices.extend(self.devices.iter().map(|name| cri::CdiDevice { name: name.clone() }))
            }
            Named::Annotation => {
                annotations.insert("cdi.k8s.io/vcuda_tests".to_owned(), self.devices.join(","));
            }
        }
        let user = cri::Int64 { value: self.user.into() };
        cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "c".to_owned(), attempt }),
            image: Some(cri::Image { name: image::NAME.to_owned() }),
            command: words.iter().map(|&word| word.to_owned()).collect(),
            environment: vec![cri::Variable { name: "VCUDA_SIM".to_owned(), value: "/machine".to_owned() }],
            mounts,
            annotations,
            log_path: format!("c-{attempt}.log"),
            linux: Some(cri::LinuxContainer {
                security: Some(cri::ContainerSecurity {
                    namespaces: Some(namespaces()),
                    user: Some(user.clone()),
                    group: Some(user),
                    has_read_only_root: self.is_restricted,
                    gains_no_privileges: self.is_restricted,
                }),
            }),
            cdi_devices: devices,
        }
    }
}

/// Text of a stream in a container's log. Each line has a time, the stream, `F` for a whole line or `P` for a part, and the
/// text.
fn written(log: &str, stream: &str) -> String {
    let mut text = String::new();
    for line in log.lines() {
        let mut words = line.splitn(4, ' ').skip(1);
        if words.next() == Some(stream) {
            let is_whole = words.next() == Some("F");
            text.push_str(words.next().unwrap_or_default());
            if is_whole {
                text.push('\n');
            }
        }
    }
    text
}
