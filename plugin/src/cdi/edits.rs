//! Types of the CDI specification that the plugin writes (Container Device Interface 0.5.0, `specs-go/config.go`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Time after which the runtime counts a hook as failed (s).
const HOOK_TIMEOUT: u32 = 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) container_edits: ContainerEdits,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerEdits {
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<DeviceNode>,
    pub(super) mounts: Vec<Mount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hooks: Vec<Hook>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceNode {
    path: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_path: Option<PathBuf>,
}

impl DeviceNode {
    pub(super) fn new(devices: &Path, name: &str) -> Self {
        let (path, host) = (Path::new("/dev").join(name), devices.join(name));
        Self {
            host_path: (host != path).then_some(host),
            path,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: Vec<String>,
}

impl Mount {
    pub(super) fn new(host: &Path, container: &Path, access: &str, is_data: bool) -> Self {
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
}

/// A program that the runtime starts at a point of a container's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hook {
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
    pub(super) fn before_start(program: &str, arguments: &[&str]) -> Self {
        let name = Path::new(program).file_name().unwrap_or_default();
        let args = std::iter::once(name.to_string_lossy().into_owned());
        Self {
            hook_name: "startContainer".to_owned(),
            path: program.into(),
            args: args.chain(arguments.iter().map(|&one| one.to_owned())).collect(),
            env: vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned()],
            timeout: HOOK_TIMEOUT,
        }
    }
}
