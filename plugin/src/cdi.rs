//! Content of a container, as a CDI specification (Container Device Interface 0.5.0): one file for each slot, with one
//! device, by whose name kubelet's runtime finds it; beside it, for ourselves, its owner.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::driver::Bound;
use crate::ids::Slot;
use edits::{ContainerEdits, Device, DeviceNode, Hook, Mount};

mod claim;
mod edits;
mod record;
mod store;

pub use claim::{ClaimDevice, ClaimRecord, Prepared, claim_spec};
pub use record::{Holding, Record};
pub use store::{Store, StoreError};

/// Names that start with a digit, and nodes that are elsewhere on the host, are in it; annotations are not. containerd 1.7
/// and podman 4.3 refuse what is newer.
const VERSION: &str = "0.5.0";
/// Vendor and class of our devices.
pub const KIND: &str = "vcuda.io/slot";
/// Path of the library in a container, as the manager writes it into the file for `/etc/ld.so.preload`.
const LIBRARIES_IN_CONTAINER: &str = "/usr/lib/vcuda";
/// Path of the `vcuda` command in a container: in every image's usual PATH, and seldom taken.
const PROGRAM_IN_CONTAINER: &str = "/usr/local/bin/vcuda";
/// Path from which kubelet reads why a container has ended, unless the pod names another (`terminationMessagePath`).
const TERMINATION: &str = "/dev/termination-log";
/// Path at which NVIDIA's toolkit looks for mounts that name devices (nvidia-container-toolkit,
/// `internal/config/image`).
const TOOLKIT_MOUNTS: &str = "/var/run/nvidia-container-devices";
/// Path of a container's limits.
const DIRECTORY_IN_CONTAINER: &str = "/etc/vcuda";

/// The name by which kubelet's runtime finds the slot's device.
#[must_use]
pub fn qualified(slot: &Slot) -> String {
    format!("{KIND}={slot}")
}

/// The shim on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shim {
    /// The library, under a name of its version.
    pub library: PathBuf,
    /// The file for `/etc/ld.so.preload`, which names it.
    pub preload: PathBuf,
}

/// The part that brings a container its device nodes and the driver's libraries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inject {
    /// We do.
    #[default]
    Cdi,
    /// NVIDIA's container toolkit does, which is told by `NVIDIA_VISIBLE_DEVICES`.
    ToolkitEnv,
    /// The same, where it believes only mounts (`accept-nvidia-visible-devices-as-volume-mounts`): an image or a pod cannot
    /// make those.
    ToolkitMounts,
}

/// Facts that are the same for all containers of a node at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Library that is preloaded. None: nothing can be limited.
    pub shim: Option<Shim>,
    /// The `vcuda` command, if containers get one.
    pub program: Option<PathBuf>,
    /// Whether a container starts only if the shim is loaded in it.
    pub is_strict: bool,
    /// The part that brings the rest.
    pub inject: Inject,
    /// Folder of the host's device nodes.
    pub devices: PathBuf,
    /// Names of the device nodes of all GPUs.
    pub control_nodes: Vec<String>,
    /// Name of the device node of each GPU, by UUID.
    pub gpu_nodes: BTreeMap<String, String>,
    /// The driver's files.
    pub driver: Vec<Bound>,
}

/// Grant of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its slot.
    pub slot: Slot,
    /// The manager's name for it.
    pub id: String,
    /// The container's directory on the host.
    pub directory: PathBuf,
    /// Its GPUs by UUID, in its order.
    pub gpus: Vec<String>,
    /// Whether it is limited: if not, it has its GPUs alone, and no shim.
    pub is_limited: bool,
    /// For whom.
    pub held: Holding,
    /// The amounts that were asked of the manager for it, as a text to compare.
    pub asked: String,
}

impl Grant {
    /// Facts that have to be known of it later.
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
pub enum FactsError {
    /// There is nothing to preload.
    #[error(
        "the manager has no shim library installed: set shim_library in its configuration; without it no limit would hold"
    )]
    NoShim,
    /// There is nothing to prove with that it is preloaded.
    #[error(
        "strict is set, and the manager has no vcuda command installed that would prove the limits in the container: set \
         vcuda_program in its configuration"
    )]
    NoProgram,
    /// A GPU has no device node that is known.
    #[error("{0}: NVML does not tell its minor number, so its device node is unknown")]
    NoNode(String),
}

/// The specification of one container's device.
///
/// # Errors
/// Something that it needs is not known.
pub fn spec(facts: &Facts, grant: &Grant) -> Result<Spec, FactsError> {
    let limits = grant.is_limited.then_some(grant.directory.as_path());
    Ok(Spec {
        cdi_version: VERSION.to_owned(),
        kind: KIND.to_owned(),
        devices: vec![Device {
            name: grant.slot.to_string(),
            container_edits: edits(facts, &grant.gpus, limits)?,
        }],
    })
}

/// Edits for a container with these GPUs (UUIDs), limited as the files in the directory `limits` say, if there is one.
fn edits(facts: &Facts, gpus: &[String], limits: Option<&Path>) -> Result<ContainerEdits, FactsError> {
    let mut edits = visible(facts, gpus)?;
    if let Some(directory) = limits {
        let shim = facts.shim.as_ref().ok_or(FactsError::NoShim)?;
        edits.mounts.extend(limited(shim, directory));
        let program = facts.program.iter();
        edits
            .mounts
            .extend(program.map(|program| Mount::new(program, Path::new(PROGRAM_IN_CONTAINER), "ro", false)));
        if facts.is_strict {
            facts.program.as_ref().ok_or(FactsError::NoProgram)?;
            edits.hooks.push(Hook::before_start(
                PROGRAM_IN_CONTAINER,
                &["attached", "--report", TERMINATION],
            ));
        }
    }
    Ok(edits)
}

/// Edits that make these GPUs, and no others, visible in a container.
fn visible(facts: &Facts, gpus: &[String]) -> Result<ContainerEdits, FactsError> {
    let variable = |which: &str| vec![format!("NVIDIA_VISIBLE_DEVICES={which}")];
    match facts.inject {
        Inject::Cdi => {
            let mut nodes = Vec::new();
            for gpu in gpus {
                let node = facts.gpu_nodes.get(gpu);
                nodes.push(node.ok_or_else(|| FactsError::NoNode(gpu.clone()))?);
            }
            let nodes = nodes.into_iter().chain(&facts.control_nodes);
            let driver = facts.driver.iter();
            Ok(ContainerEdits {
                // Without this an image that asks for "all" would get every GPU from NVIDIA's runtime.
                env: variable("void"),
                device_nodes: nodes.map(|name| DeviceNode::new(&facts.devices, name)).collect(),
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

/// Files at exact paths over the read-only directory: a pod's own mount on one of them would else win.
fn limited(shim: &Shim, directory: &Path) -> Vec<Mount> {
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

/// A CDI specification, as far as we write it.
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
