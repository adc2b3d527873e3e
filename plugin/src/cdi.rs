//! CDI specifications (Container Device Interface 0.5.0) of the files, device nodes and variables that a container gets. Each
//! slot has a file with a single device, which the runtime finds by its name. The plugin's record of the container is beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::driver::DriverFile;
use crate::ids::Slot;
use edits::{ContainerEdits, Device, DeviceNode, Hook, Mount};

mod claim;
mod edits;
mod record;
mod store;

pub use claim::{ClaimDevice, ClaimRecord, Prepared, claim_spec};
pub use record::{HeldDevices, Record};
pub use store::{Store, StoreError};

/// CDI version: the first that allows names with a leading digit and device nodes with another path on the host. It has no
/// annotations yet. containerd 1.7 and podman 4.3 refuse newer versions.
const VERSION: &str = "0.5.0";
/// Vendor and class of the slots' devices.
pub const KIND: &str = "vcuda.io/slot";
/// Directory of the shim in a container, as in the manager's file for `/etc/ld.so.preload`.
const LIBRARIES_IN_CONTAINER: &str = "/usr/lib/vcuda";
/// Path of the `vcuda` command in a container: it is in the usual PATH, and images seldom have a file there.
const PROGRAM_IN_CONTAINER: &str = "/usr/local/bin/vcuda";
/// Default path of the file from which kubelet reads the reason of a container's end (`terminationMessagePath`).
const TERMINATION: &str = "/dev/termination-log";
/// Path at which NVIDIA's toolkit looks for mounts that name devices (nvidia-container-toolkit,
/// `internal/config/image`).
const TOOLKIT_MOUNTS: &str = "/var/run/nvidia-container-devices";
/// Path of the tenant's directory in a container.
const DIRECTORY_IN_CONTAINER: &str = "/etc/vcuda";

/// Qualified CDI name of the slot's device.
#[must_use]
pub fn qualified(slot: &Slot) -> String {
    format!("{KIND}={slot}")
}

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
    /// The plugin, in its specifications.
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

/// The grant of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its slot.
    pub slot: Slot,
    /// The manager's name for it.
    pub id: String,
    /// The tenant's directory on the host.
    pub directory: PathBuf,
    /// UUIDs of its GPUs, in the order in which the container sees them.
    pub gpus: Vec<String>,
    /// Whether the container is limited and gets the shim. If not, it has whole GPUs.
    pub is_limited: bool,
    /// Devices and pod of the container.
    pub held: HeldDevices,
    /// The requested amounts, as a text to compare.
    pub asked: String,
}

impl Grant {
    /// The record of the grant.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            slot: self.slot.clone(),
            id: self.id.clone(),
            gpus: self.gpus.clone(),
            held: self.held.clone(),
            asked: self.asked.clone(),
        }
    }
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

/// The specification of a container's device.
///
/// # Errors
/// An input is missing: see [`SpecError`].
pub fn spec(inputs: &SpecInputs, grant: &Grant) -> Result<Spec, SpecError> {
    let limits = grant.is_limited.then_some(grant.directory.as_path());
    Ok(Spec {
        cdi_version: VERSION.to_owned(),
        kind: KIND.to_owned(),
        devices: vec![Device {
            name: grant.slot.to_string(),
            container_edits: edits(inputs, &grant.gpus, limits)?,
        }],
    })
}

/// Edits for a container with these GPUs (UUIDs). `limits` is the tenant's directory on the host; `None` for no limits.
fn edits(inputs: &SpecInputs, gpus: &[String], limits: Option<&Path>) -> Result<ContainerEdits, SpecError> {
    let mut edits = gpu_edits(inputs, gpus)?;
    if let Some(directory) = limits {
        let shim = inputs.shim.as_ref().ok_or(SpecError::NoShim)?;
        edits.mounts.extend(limit_mounts(shim, directory));
        let program = inputs.program.iter();
        edits
            .mounts
            .extend(program.map(|program| Mount::new(program, Path::new(PROGRAM_IN_CONTAINER), "ro", false)));
        if inputs.is_strict {
            inputs.program.as_ref().ok_or(SpecError::NoProgram)?;
            edits.hooks.push(Hook::before_start(
                PROGRAM_IN_CONTAINER,
                &["attached", "--report", TERMINATION],
            ));
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
                mounts: driver
                    .map(|file| Mount::new(&file.host, &file.container, "ro", false))
                    .collect(),
                hooks: Vec::new(),
            })
        }
        Inject::ToolkitEnv => Ok(ContainerEdits {
            env: variable(&gpus.join(",")),
            ..ContainerEdits::default()
        }),
        Inject::ToolkitMounts => Ok(ContainerEdits {
            env: variable(TOOLKIT_MOUNTS),
            mounts: gpus
                .iter()
                .map(|gpu| {
                    Mount::new(
                        Path::new("/dev/null"),
                        &Path::new(TOOLKIT_MOUNTS).join(gpu),
                        "ro",
                        true,
                    )
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

/// A CDI specification with the fields that the plugin writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    cdi_version: String,
    kind: String,
    devices: Vec<Device>,
}

impl Spec {
    /// Whether the plugin wrote it for this slot.
    #[must_use]
    pub fn is_of(&self, slot: &Slot) -> bool {
        self.kind == KIND && matches!(self.devices.as_slice(), [device] if device.name == slot.as_str())
    }
}

#[cfg(test)]
mod tests;
