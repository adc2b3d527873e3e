//! CDI specifications (Container Device Interface 0.5.0) of containers that get a grant: the tenant's directory, the shim,
//! device nodes and the driver's files ([`driver`]). The plugins write them for pods, the manager for containers of podman and
//! docker. Files are written atomically ([`place`]).
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub mod driver;
mod specification;

use driver::DriverFile;
pub use specification::{ContainerEdits, Device, DeviceNode, Hook, Mount};

/// CDI version: the first that allows names with a leading digit and device nodes with another path on the host. It has no
/// annotations yet. containerd 1.7 and podman 4.3 refuse newer versions.
const VERSION: &str = "0.5.0";
/// Directory of the shim in a container, as in the manager's file for `/etc/ld.so.preload`.
pub const LIBRARIES_IN_CONTAINER: &str = "/usr/lib/vcuda";
/// Path of the `vcuda` command in a container: it is in the usual PATH, and images seldom have a file there.
const PROGRAM_IN_CONTAINER: &str = "/usr/local/bin/vcuda";
/// Default path of the file from which kubelet reads the reason of a container's end (`terminationMessagePath`).
const TERMINATION: &str = "/dev/termination-log";
/// Path at which NVIDIA's toolkit looks for mounts that name devices (nvidia-container-toolkit,
/// `internal/config/image`).
const TOOLKIT_MOUNTS: &str = "/var/run/nvidia-container-devices";
/// Path of the tenant's directory in a container.
const DIRECTORY_IN_CONTAINER: &str = "/etc/vcuda";

/// Names of the device nodes that all GPUs share.
pub const CONTROL_NODES: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];
/// Largest file that can be a specification of ours (bytes).
const MOST_BYTES: u64 = 1 << 20;

/// Files of the shim on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shim {
    /// The library, whose name has its version.
    pub library: PathBuf,
    /// The file for `/etc/ld.so.preload`, which names the library.
    pub preload: PathBuf,
}

/// The component that provides device nodes and the driver's libraries to containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inject {
    /// vcuda, in its specifications.
    #[default]
    Cdi,
    /// NVIDIA's container toolkit, by the variable `NVIDIA_VISIBLE_DEVICES`.
    ToolkitEnv,
    /// NVIDIA's container toolkit, by mounts (`accept-nvidia-visible-devices-as-volume-mounts`), which images and pods cannot
    /// forge.
    ToolkitMounts,
}

/// Inputs of a specification that are the same for all containers of a node at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecInputs {
    /// Files of the shim; `None` if none is installed, so that no limits can be enforced.
    pub shim: Option<Shim>,
    /// Path of the `vcuda` command on the host; `None` if containers do not get it.
    pub program: Option<PathBuf>,
    /// Whether a container starts only if the shim is loaded in it.
    pub is_strict: bool,
    /// Whether the driver has memory limits of cgroups, which a container gets before it starts.
    pub has_driver_limits: bool,
    /// The component that provides device nodes and the driver's libraries.
    pub inject: Inject,
    /// Directory of the host's device nodes.
    pub devices: PathBuf,
    /// Names of the device nodes that all GPUs share.
    pub control_nodes: Vec<String>,
    /// Name of the device node of each GPU, by UUID.
    pub gpu_nodes: BTreeMap<String, String>,
    /// Files of the driver.
    pub driver: Vec<DriverFile>,
}

/// No specification can be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// No shim is installed.
    #[error(
        "the manager has no shim library installed: set shim_library in its configuration; without it no limit would hold"
    )]
    NoShim,
    /// No `vcuda` command is installed, which strict containers need.
    #[error(
        "strict is set, and the manager has no vcuda command installed that would prove the limits in the container: set \
         vcuda_program in its configuration"
    )]
    NoProgram,
    /// The device node of a GPU is not known.
    #[error("{0}: NVML does not tell its minor number, so its device node is unknown")]
    NoNode(String),
}

/// Edits for a container with these GPUs (UUIDs). `limits` is the tenant's directory on the host; `None` for no limits.
pub fn edits(
    inputs: &SpecInputs,
    gpus: &[String],
    limits: Option<&Path>,
) -> Result<ContainerEdits, SpecError> {
    let mut edits = gpu_edits(inputs, gpus)?;
    if let Some(directory) = limits {
        let shim = inputs.shim.as_ref().ok_or(SpecError::NoShim)?;
        edits.mounts.extend(limit_mounts(shim, directory));
        let program = inputs.program.iter();
        edits
            .mounts
            .extend(program.map(|program| Mount::new(program, Path::new(PROGRAM_IN_CONTAINER), "ro", false)));
        let directory = directory.to_string_lossy();
        if let Some(program) = inputs.program.as_ref().filter(|_| inputs.has_driver_limits) {
            let mut arguments = vec!["limit-container", &*directory];
            arguments.extend(inputs.is_strict.then_some("--strict"));
            edits.hooks.push(Hook::at_creation(program, &arguments));
        }
        if inputs.is_strict {
            inputs.program.as_ref().ok_or(SpecError::NoProgram)?;
            let program = Path::new(PROGRAM_IN_CONTAINER);
            edits.hooks.push(Hook::before_start(program, &["attached", "--report", TERMINATION]));
        }
    }
    Ok(edits)
}

/// Edits that make these GPUs (UUIDs), and no others, visible in a container.
fn gpu_edits(inputs: &SpecInputs, gpus: &[String]) -> Result<ContainerEdits, SpecError> {
    let variable = |which: &str| vec![format!("NVIDIA_VISIBLE_DEVICES={which}")];
    match inputs.inject {
        Inject::Cdi => {
            let mut nodes = Vec::new();
            for gpu in gpus {
                let node = inputs.gpu_nodes.get(gpu);
                nodes.push(node.ok_or_else(|| SpecError::NoNode(gpu.clone()))?);
            }
            let nodes = nodes.into_iter().chain(&inputs.control_nodes);
            let driver = inputs.driver.iter();
            Ok(ContainerEdits {
                // Without it an image with "all" would get every GPU from NVIDIA's runtime.
                env: variable("void"),
                device_nodes: nodes.map(|name| DeviceNode::new(&inputs.devices, name)).collect(),
                mounts: driver.map(|file| Mount::new(&file.host, &file.container, "ro", false)).collect(),
                hooks: Vec::new(),
            })
        }
        Inject::ToolkitEnv => {
            Ok(ContainerEdits { env: variable(&gpus.join(",")), ..ContainerEdits::default() })
        }
        Inject::ToolkitMounts => Ok(ContainerEdits {
            env: variable(TOOLKIT_MOUNTS),
            mounts: gpus
                .iter()
                .map(|gpu| {
                    Mount::new(Path::new("/dev/null"), &Path::new(TOOLKIT_MOUNTS).join(gpu), "ro", true)
                })
                .collect(),
            ..ContainerEdits::default()
        }),
    }
}

/// Mounts of the tenant's directory and the shim. The files are also mounted one by one, as else a pod's own mount on a file's
/// path would win.
fn limit_mounts(shim: &Shim, directory: &Path) -> Vec<Mount> {
    let inside = Path::new(DIRECTORY_IN_CONTAINER);
    let name = shim.library.file_name().unwrap_or_default();
    let library = Path::new(LIBRARIES_IN_CONTAINER).join(name);
    vec![
        Mount::new(directory, inside, "ro", true),
        Mount::new(&directory.join("limits"), &inside.join("limits"), "ro", true),
        Mount::new(&directory.join("usage"), &inside.join("usage"), "rw", true),
        Mount::new(&shim.library, &library, "ro", false),
        Mount::new(&shim.preload, Path::new("/etc/ld.so.preload"), "ro", false),
    ]
}

/// A CDI specification with the fields that vcuda writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    cdi_version: String,
    kind: String,
    devices: Vec<Device>,
}

impl Spec {
    /// A specification of these devices.
    pub fn new(kind: &str, devices: Vec<Device>) -> Self {
        Self { cdi_version: VERSION.to_owned(), kind: kind.to_owned(), devices }
    }

    /// Whether it has this kind, and each of its devices has this name, or a name that begins with it and `-`.
    pub fn is_of(&self, kind: &str, name: &str) -> bool {
        let is_named = |device: &Device| {
            let rest = device.name.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        self.kind == kind && self.devices.iter().all(is_named)
    }

    /// The tenant's directory on the host that its first device mounts.
    pub fn limits(&self) -> Option<&Path> {
        let mounts = &self.devices.first()?.container_edits.mounts;
        let inside = Path::new(DIRECTORY_IN_CONTAINER);
        mounts.iter().find(|mount| mount.container() == inside).map(Mount::host)
    }
}

/// Writes `text` to `path` atomically, by a temporary file beside it ([`is_half_written`]) and a rename.
///
/// # Errors
/// The file cannot be written; an old one stays.
pub fn place(path: &Path, text: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    write(&aside, text).and_then(|()| fs::rename(&aside, path)).inspect_err(|_| drop(fs::remove_file(&aside)))
}

/// Whether a file of this name is what a killed process left of [`place`], of a file whose name begins with `prefix`.
pub fn is_half_written(name: &str, prefix: &str) -> bool {
    name.strip_prefix('.').is_some_and(|name| name.starts_with(prefix)) && name.ends_with(".new")
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(path)?;
    // Whatever the umask is, an engine of another user may read it.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// Content of the file at `path`; `None` if it is no regular file or larger than ours.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let metadata = fs::symlink_metadata(path)?;
    match metadata.is_file() && metadata.len() <= MOST_BYTES {
        true => fs::read(path).map(Some),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests;
