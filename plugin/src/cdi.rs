//! What a container receives, as a CDI specification (Container Device Interface 0.6.0): one file for each slot, with one
//! device, by whose name kubelet's runtime finds it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::ids::{self, Ids, Kind, Slot};

mod store;

pub use store::{Store, StoreError};

/// Vendor and class of our devices.
pub const KIND: &str = "vcuda.io/slot";
/// Where a container finds the library: as the manager writes it into the file for `/etc/ld.so.preload`.
const LIBRARIES_IN_CONTAINER: &str = "/usr/lib/vcuda";
/// Where a container finds its limits.
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

/// What is the same for all containers of a node at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What is preloaded. None: nothing can be limited.
    pub shim: Option<Shim>,
    /// Device nodes of all cards.
    pub control_nodes: Vec<PathBuf>,
    /// Device node of each GPU, by UUID.
    pub gpu_nodes: BTreeMap<String, PathBuf>,
}

/// What one container was granted.
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
    /// Whether it is limited: if not, it has its cards alone, and no shim.
    pub is_limited: bool,
    /// For whom.
    pub held: Holding,
}

/// What kubelet counts for a container, and whose it is: written into the specification, so that it survives us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// Namespace and name of the pod, or what else it is called.
    pub pod: String,
    /// The pod's UID; empty while unknown.
    pub pod_uid: String,
    /// Shares, chunks and percents, by [`Kind`].
    pub ids: [Ids; 3],
}

impl Holding {
    /// Whether both are of one pod.
    #[must_use]
    pub fn is_same_pod(&self, other: &Self) -> bool {
        match self.pod_uid.is_empty() || other.pod_uid.is_empty() {
            true => self.pod == other.pod,
            false => self.pod_uid == other.pod_uid,
        }
    }

    /// The IDs of one kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &Ids {
        let [shares, chunks, percents] = &self.ids;
        match kind {
            Kind::Gpu => shares,
            Kind::Memory => chunks,
            Kind::Cores => percents,
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
    /// A GPU has no device node that is known.
    #[error("{0}: NVML does not tell its minor number, so its device node is unknown")]
    NoNode(String),
}

/// The specification of one container's device.
///
/// # Errors
/// Something that it needs is not known.
pub fn spec(facts: &Facts, grant: &Grant) -> Result<Spec, FactsError> {
    let mut nodes = Vec::new();
    for gpu in &grant.gpus {
        let node = facts.gpu_nodes.get(gpu);
        nodes.push(node.ok_or_else(|| FactsError::NoNode(gpu.clone()))?);
    }
    let mut mounts = Vec::new();
    if grant.is_limited {
        let shim = facts.shim.as_ref().ok_or(FactsError::NoShim)?;
        mounts = limited(shim, &grant.directory);
    }
    let edits = ContainerEdits {
        // Else an image that says "all" would get every card from NVIDIA's runtime.
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()],
        device_nodes: nodes
            .into_iter()
            .chain(&facts.control_nodes)
            .map(|path| DeviceNode { path: path.clone() })
            .collect(),
        mounts,
    };
    Ok(Spec {
        cdi_version: "0.6.0".to_owned(),
        kind: KIND.to_owned(),
        devices: vec![Device {
            name: grant.slot.to_string(),
            annotations: annotations(grant),
            container_edits: edits,
        }],
    })
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

const GRANT: &str = "vcuda.io/grant";
const GPUS: &str = "vcuda.io/gpus";
const POD: &str = "vcuda.io/pod";
const POD_UID: &str = "vcuda.io/pod-uid";

fn ids_key(kind: Kind) -> String {
    format!("vcuda.io/{}-ids", kind.word())
}

fn annotations(grant: &Grant) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([
        (GRANT.to_owned(), grant.id.clone()),
        (GPUS.to_owned(), grant.gpus.join(",")),
        (POD.to_owned(), grant.held.pod.clone()),
        (POD_UID.to_owned(), grant.held.pod_uid.clone()),
    ]);
    for kind in Kind::ALL {
        annotations.insert(ids_key(kind), ids::ranges(grant.held.of(kind)));
    }
    annotations
}

/// What a specification of ours says about its slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The slot.
    pub slot: Slot,
    /// The manager's name for the grant.
    pub id: String,
    /// Its GPUs by UUID.
    pub gpus: Vec<String>,
    /// For whom.
    pub held: Holding,
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
    /// What it says about its slot. None: it is not one of ours.
    #[must_use]
    pub fn record(&self) -> Option<Record> {
        let [device] = self.devices.as_slice() else {
            return None;
        };
        let word = |key: &str| device.annotations.get(key).map(String::as_str);
        let ids = |kind: Kind| ids::of_ranges(word(&ids_key(kind))?);
        (self.kind == KIND).then_some(())?;
        Some(Record {
            slot: Slot::named(&device.name)?,
            id: word(GRANT)?.to_owned(),
            gpus: word(GPUS)?.split(',').map(str::to_owned).collect(),
            held: Holding {
                pod: word(POD)?.to_owned(),
                pod_uid: word(POD_UID)?.to_owned(),
                ids: [ids(Kind::Gpu)?, ids(Kind::Memory)?, ids(Kind::Cores)?],
            },
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    container_edits: ContainerEdits,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerEdits {
    env: Vec<String>,
    device_nodes: Vec<DeviceNode>,
    mounts: Vec<Mount>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: Vec<String>,
}

impl Mount {
    fn new(host: &Path, container: &Path, access: &str, is_data: bool) -> Self {
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

#[cfg(test)]
mod tests;
