//! A GPU as a device of a ResourceSlice: attributes for selectors, capacities of which each share consumes a part, and taints
//! that keep new claims away.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity, DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use vcuda_manager_api::v1;

/// Name of the capacity of memory (bytes).
pub const MEMORY: &str = "memory";
/// Name of the capacity of GPU time (percent).
pub const CORES: &str = "cores";
/// Name of the capacity of slots for tenants.
const SLOTS: &str = "slots";
/// Step of memory requests (bytes).
const MEMORY_STEP: u64 = 1 << 20;
/// Least memory of a share (number of steps).
const MEMORY_MIN_STEPS: u64 = 64;
/// Taint of an unhealthy GPU. Its value is the kind of trouble, so that a claim can tolerate one: see [`kind_of`].
const UNHEALTHY: &str = "vcuda.io/unhealthy";
/// Taint of a GPU that an operator has cordoned.
const CORDONED: &str = "vcuda.io/cordoned";

/// Effect of the taint of an unhealthy GPU on the pods that have shares of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Effect {
    /// The pods run on; no new claim is allocated on the GPU.
    #[default]
    NoSchedule,
    /// Kubernetes evicts the pods.
    NoExecute,
}

/// Name of a GPU's device. It is the UUID in lower case, as device names are DNS labels.
#[must_use]
pub fn device_name(uuid: &str) -> String {
    uuid.to_ascii_lowercase()
}

/// The device of a GPU; `None` if the GPU cannot have a share. `effect` is that of the taint of an unhealthy GPU.
#[must_use]
pub fn device(gpu: &v1::Gpu, effect: Effect) -> Option<Device> {
    // Managers of earlier releases send only the memory that is left beside the present tenants.
    let bytes = match gpu.memory_shared_bytes {
        0 => gpu.memory_grantable_bytes,
        bytes => bytes,
    };
    let steps = bytes / MEMORY_STEP;
    let percent = match gpu.cores_grantable_permille {
        0 => 100,
        permille => u64::from(permille / 10),
    };
    (steps >= MEMORY_MIN_STEPS && gpu.sharers_max > 0).then(|| Device {
        name: device_name(&gpu.uuid),
        allow_multiple_allocations: Some(true),
        attributes: Some(attributes(gpu)),
        capacity: Some(capacities(steps, percent, gpu.sharers_max)),
        taints: Some(taints(gpu, effect)).filter(|taints| !taints.is_empty()),
        ..Device::default()
    })
}

fn capacities(steps: u64, percent: u64, slots: u32) -> BTreeMap<String, DeviceCapacity> {
    let mebibytes = |steps: u64| Quantity(format!("{steps}Mi"));
    let number = |number: u64| Quantity(number.to_string());
    let policy = |default, min, max, step| CapacityRequestPolicy {
        default: Some(default),
        valid_range: Some(CapacityRequestPolicyRange {
            min,
            max: Some(max),
            step: Some(step),
        }),
        ..CapacityRequestPolicy::default()
    };
    let memory = DeviceCapacity {
        value: mebibytes(steps),
        // A claim without an amount gets all memory, and so a GPU without other tenants.
        request_policy: Some(policy(
            mebibytes(steps),
            mebibytes(MEMORY_MIN_STEPS),
            mebibytes(steps),
            mebibytes(1),
        )),
    };
    // A claim without an amount has no guarantee: it gets the time that others leave (docs/policies.md).
    let cores = DeviceCapacity {
        value: number(percent),
        request_policy: Some(policy(number(0), number(0), number(percent.min(100)), number(1))),
    };
    let slots = DeviceCapacity {
        value: number(slots.into()),
        request_policy: Some(policy(number(1), number(1), number(1), number(1))),
    };
    [(MEMORY, memory), (CORES, cores), (SLOTS, slots)]
        .map(|(name, capacity)| (name.to_owned(), capacity))
        .into()
}

fn attributes(gpu: &v1::Gpu) -> BTreeMap<String, DeviceAttribute> {
    let text = |text: &str| DeviceAttribute {
        string: Some(text.to_owned()),
        ..DeviceAttribute::default()
    };
    let version = |version: &str| {
        Some(DeviceAttribute {
            version: Some(semantic_version(version)?),
            ..DeviceAttribute::default()
        })
    };
    let mut attributes = BTreeMap::from([
        ("type".to_owned(), text("vcuda")),
        ("uuid".to_owned(), text(&gpu.uuid)),
    ]);
    let mut add = |name: &str, attribute: Option<DeviceAttribute>| {
        attributes.extend(attribute.map(|attribute| (name.to_owned(), attribute)));
    };
    // The API server takes texts of 64 characters at most.
    let product: String = gpu.name.chars().take(64).collect();
    add("productName", (!product.is_empty()).then(|| text(&product)));
    add("cudaComputeCapability", version(&gpu.compute_capability));
    add("driverVersion", version(&gpu.driver_version));
    let root = !gpu.pci_root.is_empty() && gpu.pci_root.len() <= 64;
    add(
        "resource.kubernetes.io/pcieRoot",
        root.then(|| text(&gpu.pci_root)),
    );
    let node = (gpu.numa_node >= 0).then(|| DeviceAttribute {
        int: Some(gpu.numa_node.into()),
        ..DeviceAttribute::default()
    });
    add("numaNode", node);
    attributes
}

/// A version of two or three numbers, such as 8.9 or 550.54.05, in the form of semver.org: three numbers without leading zeros.
/// Returns `None` for other texts.
fn semantic_version(version: &str) -> Option<String> {
    let numbers: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
    match numbers?.as_slice() {
        [major, minor] => Some(format!("{major}.{minor}.0")),
        [major, minor, patch] => Some(format!("{major}.{minor}.{patch}")),
        _ => None,
    }
}

/// Kind of trouble of an unhealthy GPU, by the manager's reason: `ecc` for XIDs of its memory (NVIDIA, "XID Errors"), `xid` for
/// others, `thermal`, or `lost` if it does not answer.
fn kind_of(reason: &str) -> &'static str {
    const OF_MEMORY: [&str; 6] = ["48", "63", "64", "92", "94", "95"];
    match reason.strip_prefix("XID ") {
        Some(xid) if OF_MEMORY.contains(&xid) => "ecc",
        Some(_) => "xid",
        None if reason == "thermal slowdown" => "thermal",
        None => "lost",
    }
}

fn taints(gpu: &v1::Gpu, effect: Effect) -> Vec<DeviceTaint> {
    let taint = |key: &str, value: Option<&str>, effect| DeviceTaint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: match effect {
            Effect::NoSchedule => "NoSchedule".to_owned(),
            Effect::NoExecute => "NoExecute".to_owned(),
        },
        ..DeviceTaint::default()
    };
    let unhealthy = (!gpu.healthy).then(|| taint(UNHEALTHY, Some(kind_of(&gpu.health_reason)), effect));
    let cordoned = gpu.cordoned.then(|| taint(CORDONED, None, Effect::NoSchedule));
    unhealthy.into_iter().chain(cordoned).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::dra) fn gpu(number: u8) -> v1::Gpu {
        v1::Gpu {
            uuid: format!("GPU-FEF8089b-4820-abfc-e83e-9431819757{number:02x}"),
            name: "NVIDIA L40S".to_owned(),
            memory_shared_bytes: (44 << 30) + 5,
            cores_grantable_permille: 1000,
            sharers_max: 16,
            compute_capability: "8.9".to_owned(),
            driver_version: "550.54.05".to_owned(),
            numa_node: 1,
            pci_root: "pci0000:3a".to_owned(),
            healthy: true,
            ..v1::Gpu::default()
        }
    }

    #[test]
    fn a_gpu_has_capacities_of_which_a_share_consumes_a_part() {
        let device = device(&gpu(6), Effect::NoSchedule).unwrap();
        assert_eq!(device.name, "gpu-fef8089b-4820-abfc-e83e-943181975706");
        assert_eq!(
            (device.allow_multiple_allocations, &device.taints),
            (Some(true), &None)
        );
        let capacity = device.capacity.unwrap();
        assert_eq!(capacity[MEMORY].value.0, "45056Mi");
        let policy = |name: &str| {
            let policy = capacity[name].request_policy.clone().unwrap();
            let range = policy.valid_range.unwrap();
            [policy.default.unwrap(), range.min, range.max.unwrap()].map(|quantity| quantity.0)
        };
        assert_eq!(policy(MEMORY), ["45056Mi", "64Mi", "45056Mi"]);
        assert_eq!(policy(CORES), ["0", "0", "100"]);
        assert_eq!(policy(SLOTS), ["1", "1", "1"]);
        let attributes = device.attributes.unwrap();
        let version = |name: &str| attributes[name].version.clone().unwrap();
        assert_eq!(version("cudaComputeCapability"), "8.9.0");
        assert_eq!(version("driverVersion"), "550.54.5");
        assert_eq!(attributes["numaNode"].int, Some(1));
        assert_eq!(
            attributes["uuid"].string.as_deref(),
            Some("GPU-FEF8089b-4820-abfc-e83e-943181975706")
        );
    }

    #[test]
    fn unknown_attributes_are_left_out() {
        let bare = v1::Gpu {
            uuid: "GPU-1".to_owned(),
            memory_grantable_bytes: 1 << 30,
            sharers_max: 1,
            numa_node: -1,
            ..v1::Gpu::default()
        };
        let device = device(&bare, Effect::NoSchedule).unwrap();
        let attributes = device.attributes.unwrap();
        assert_eq!(attributes.into_keys().collect::<Vec<_>>(), ["type", "uuid"]);
        assert_eq!(device.capacity.unwrap()[CORES].value.0, "100");
        assert!(super::device(&v1::Gpu::default(), Effect::NoSchedule).is_none());
        assert_eq!(semantic_version("535.104.05.1"), None);
    }

    #[test]
    fn the_taint_tells_the_kind_of_trouble() {
        let reasons = ["XID 79", "XID 94", "thermal slowdown", "the GPU is lost"];
        assert_eq!(reasons.map(kind_of), ["xid", "ecc", "thermal", "lost"]);
    }

    #[test]
    fn an_unhealthy_or_cordoned_gpu_keeps_new_claims_away() {
        let keys = |healthy, cordoned| {
            let gpu = v1::Gpu {
                healthy,
                cordoned,
                ..gpu(1)
            };
            let device = device(&gpu, Effect::NoExecute).unwrap();
            let taints = device.taints.unwrap_or_default().into_iter();
            taints
                .map(|taint| format!("{}:{}", taint.key, taint.effect))
                .collect::<Vec<_>>()
        };
        assert!(keys(true, false).is_empty());
        let unhealthy = format!("{UNHEALTHY}:NoExecute");
        assert_eq!(keys(false, false), std::slice::from_ref(&unhealthy));
        assert_eq!(keys(false, true), [unhealthy, format!("{CORDONED}:NoSchedule")]);
    }
}
