//! Records of slots and claims. A record is a file beside the specification, as CDI has annotations only since 0.6.0, and older
//! runtimes refuse them.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ids::{Ids, Kind, Slot};

/// What a specification is for.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// Vendor and class of the specification's devices.
    const KIND: &str;

    /// Name of the slot or claim: part of the files' names, and the beginning of the devices' names.
    fn name(&self) -> String;
}

/// Devices that kubelet gave to a container, and the container's pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldDevices {
    /// Namespace and name of the pod, or a text with its UID if the name is not known.
    pub(crate) pod: String,
    /// The pod's UID; empty while unknown.
    pub(crate) pod_uid: String,
    /// By [`Kind`].
    pub(crate) ids: [Ids; 4],
}

impl HeldDevices {
    /// Whether both belong to the same pod.
    pub(crate) fn is_same_pod(&self, other: &Self) -> bool {
        match self.pod_uid.is_empty() || other.pod_uid.is_empty() {
            true => self.pod == other.pod,
            false => self.pod_uid == other.pod_uid,
        }
    }

    pub(crate) fn ids_of(&self, kind: Kind) -> &Ids {
        kind.select(&self.ids)
    }
}

/// The container that has a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlotRecord {
    /// The manager's name for the grant.
    pub(crate) grant: String,
    pub(crate) gpus: Vec<String>,
    #[serde(flatten)]
    pub(crate) held: HeldDevices,
    /// The requested amounts, as a text to compare.
    pub(crate) asked: String,
}

impl SlotRecord {
    /// The slot of the container's shares.
    pub(crate) fn slot(&self) -> Slot {
        Slot::from_shares(self.held.ids_of(Kind::Gpu))
    }
}

impl Record for SlotRecord {
    const KIND: &str = "vcuda.io/slot";

    fn name(&self) -> String {
        self.slot().to_string()
    }
}

/// A share of a claim in the answer to kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    pub(crate) request: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) share_id: Option<String>,
    pub(crate) cdi: Vec<String>,
    pub(crate) uuid: String,
    /// The grant's key; `None` for admin access, and if no container can use the share.
    pub(crate) key: Option<String>,
    /// Whether no container can use the share. An older record has it not, and then counts as used.
    #[serde(default)]
    pub(crate) is_unused: bool,
}

/// A claim that is prepared, with the answer to kubelet, which may ask again while the API server is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClaimRecord {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The requested amounts of each grant by key, as a text to compare. Grants whose amounts are not known are missing.
    pub(crate) asked: BTreeMap<String, String>,
    /// Whether the claim was made for a single pod, whose annotations then apply to it too.
    pub(crate) of_pod: bool,
    /// The answer to kubelet.
    pub(crate) prepared: Vec<Prepared>,
}

impl ClaimRecord {
    pub(crate) fn keys(&self) -> BTreeSet<&String> {
        self.prepared.iter().filter_map(|prepared| prepared.key.as_ref()).collect()
    }
}

impl Record for ClaimRecord {
    const KIND: &str = "vcuda.io/claim";

    fn name(&self) -> String {
        self.uid.clone()
    }
}
