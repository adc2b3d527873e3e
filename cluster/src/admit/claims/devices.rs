//! Devices of a claim's template, in the one form in which they are written into a pod and read there again.

use serde::{Deserialize, Serialize};

use super::{CLASS, SUSPENDABLE_CLASS};

/// Devices of a template, in the one form that [`super::convert`] writes.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Devices {
    pub(super) requests: Vec<DeviceRequest>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) constraints: Vec<Constraint>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceRequest {
    pub(super) name: String,
    pub(super) exactly: Exactly,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Exactly {
    pub(super) device_class_name: String,
    pub(super) capacity: Capacity,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Capacity {
    pub(super) requests: Amounts,
}

/// Amounts of a share, as Kubernetes writes them.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Amounts {
    pub(super) memory: String,
    /// Left out, none is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cores: Option<String>,
}

/// GPUs that have to differ.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Constraint {
    pub(super) requests: Vec<String>,
    pub(super) distinct_attribute: String,
}

impl Devices {
    /// Whether all requests are for shares.
    pub(super) fn are_ours(&self) -> bool {
        let is_ours = |request: &DeviceRequest| {
            [CLASS, SUSPENDABLE_CLASS].contains(&request.exactly.device_class_name.as_str())
        };
        self.requests.iter().all(is_ours)
    }
}
