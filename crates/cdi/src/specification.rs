//! Types of a CDI specification (Container Device Interface 0.5.0, `specs-go/config.go`), with the fields that vcuda writes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Time after which the runtime counts a hook as failed (s). One that asks the manager has more than each of its two calls takes.
const TIMEOUT: u32 = 10;
const TIMEOUT_OF_CALLS: u32 = 30;

/// A device of a specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Its name, behind the kind and `=`.
    pub name: String,
    /// Changes of a container that gets it.
    pub container_edits: ContainerEdits,
}

/// Changes of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerEdits {
    /// Variables, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// Device nodes.
    pub device_nodes: Vec<DeviceNode>,
    /// Mounts.
    pub mounts: Vec<Mount>,
    /// Programs that the runtime starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    path: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_path: Option<PathBuf>,
}

impl DeviceNode {
    /// The node `name` of the folder `devices` on the host.
    pub fn new(devices: &Path, name: &str) -> Self {
        let (path, host) = (Path::new("/dev").join(name), devices.join(name));
        Self { host_path: (host != path).then_some(host), path }
    }

    /// Path in the container.
    pub fn container(&self) -> &Path {
        &self.path
    }

    /// Path on the host.
    pub fn host(&self) -> &Path {
        self.host_path.as_ref().unwrap_or(&self.path)
    }
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: Vec<String>,
}

impl Mount {
    /// A mount with `access` `ro` or `rw`; one of data is not executable.
    pub fn new(host: &Path, container: &Path, access: &str, is_data: bool) -> Self {
        let mut options = vec![access, "nosuid", "nodev"];
        // A library has to be mapped executable.
        options.extend(is_data.then_some("noexec"));
        options.push("bind");
        Self {
            host_path: host.to_owned(),
            container_path: container.to_owned(),
            options: options.into_iter().map(str::to_owned).collect(),
        }
    }

    /// Path on the host.
    pub fn host(&self) -> &Path {
        &self.host_path
    }

    /// Path in the container.
    pub fn container(&self) -> &Path {
        &self.container_path
    }

    /// Whether the container may write there.
    pub fn is_writable(&self) -> bool {
        !self.options.iter().any(|option| option == "ro")
    }
}

/// A program that the runtime starts at a point of a container's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    hook_name: String,
    path: PathBuf,
    args: Vec<String>,
    env: Vec<String>,
    /// Seconds.
    timeout: u32,
}

impl Hook {
    /// A hook that runs `program`, a path in the container, with the container's user and rights. It runs last before the
    /// container's own program, which starts only if the hook succeeds (OCI runtime specification, "startContainer hooks"). The
    /// hook gets no environment from the image or the pod.
    pub fn before_start(program: &Path, arguments: &[&str]) -> Self {
        Self::at("startContainer", program, arguments, TIMEOUT)
    }

    /// A hook that runs `program`, a path on the host, with the runtime's rights, and the container's state on stdin. The container
    /// has its namespaces and its cgroup, and nothing of it has run; it starts only if the hook succeeds (OCI runtime
    /// specification, "createRuntime hooks").
    pub fn at_creation(program: &Path, arguments: &[&str]) -> Self {
        Self::at("createRuntime", program, arguments, TIMEOUT_OF_CALLS)
    }

    fn at(name: &str, program: &Path, arguments: &[&str], timeout: u32) -> Self {
        let args = std::iter::once("vcuda".to_owned());
        Self {
            hook_name: name.to_owned(),
            path: program.into(),
            args: args.chain(arguments.iter().map(|&one| one.to_owned())).collect(),
            env: vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned()],
            timeout,
        }
    }
}
