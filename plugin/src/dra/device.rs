//! A GPU as devices of a ResourceSlice: attributes for selectors, capacities of which each share consumes a part, and taints
//! that keep new claims away.
//!
//! A GPU is one device. If its quotas may exceed its memory, as suspendable tenants take turns, it is two: one for all shares, and
//! one for suspendable shares alone.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceTaint};
use serde::Deserialize;
use vcuda_manager_api::v1;

mod capacity;

use capacity::Capacity;

/// Name of the capacity of memory (bytes).
pub(crate) const MEMORY: &str = "memory";
/// Name of the capacity of GPU time (percent).
pub(crate) const CORES: &str = "cores";
/// Taint of an unhealthy GPU. Its value is the kind of trouble, so that a claim can tolerate one: see [`kind_of`].
const UNHEALTHY: &str = "vcuda.io/unhealthy";
/// Taint of a GPU that an operator has cordoned.
const CORDONED: &str = "vcuda.io/cordoned";
/// End of the name of a GPU's device for suspendable shares alone.
const SUSPENDABLE: &str = "-suspendable";

/// Effect of the taint of an unhealthy GPU on the pods that have shares of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Effect {
    /// The pods run on; no new claim is allocated on the GPU.
    #[default]
    NoSchedule,
    NoExecute,
}

/// Name of a GPU's device. It is the UUID in lower case, as device names are DNS labels.
pub(crate) fn device_name(uuid: &str) -> String {
    uuid.to_ascii_lowercase()
}

/// Name of a GPU's device for suspendable shares alone.
pub(crate) fn suspendable_device_name(uuid: &str) -> String {
    device_name(uuid) + SUSPENDABLE
}

pub(crate) fn is_suspendable_device(device: &str) -> bool {
    device.ends_with(SUSPENDABLE)
}

/// Whether a GPU's memory is overcommitted, as suspendable tenants take turns in it.
pub(crate) fn is_overcommitted(gpu: &v1::Gpu) -> bool {
    gpu.memory_suspendable_bytes > 0
}

/// The devices of a GPU; none if the GPU cannot have a share. `effect` is that of the taint of an unhealthy GPU.
pub(crate) fn devices(gpu: &v1::Gpu, effect: Effect) -> Vec<Device> {
    let device = |capacity: Capacity| {
        let (name, kind) = match capacity.is_suspendable {
            true => (suspendable_device_name(&gpu.uuid), "vcuda-suspendable"),
            false => (device_name(&gpu.uuid), "vcuda"),
        };
        Device {
            name,
            allow_multiple_allocations: Some(true),
            attributes: Some(attributes(gpu, kind)),
            capacity: Some(capacity.with_policies()),
            taints: Some(taints(gpu, effect)).filter(|taints| !taints.is_empty()),
            ..Device::default()
        }
    };
    Capacity::of_gpu(gpu).into_iter().map(device).collect()
}

/// Attributes of a device of this type.
fn attributes(gpu: &v1::Gpu, kind: &str) -> BTreeMap<String, DeviceAttribute> {
    let text = |text: &str| DeviceAttribute { string: Some(text.to_owned()), ..DeviceAttribute::default() };
    let version = |version: &str| {
        Some(DeviceAttribute { version: Some(semantic_version(version)?), ..DeviceAttribute::default() })
    };
    let mut attributes =
        BTreeMap::from([("type".to_owned(), text(kind)), ("uuid".to_owned(), text(&gpu.uuid))]);
    let mut add = |name: &str, attribute: Option<DeviceAttribute>| {
        attributes.extend(attribute.map(|attribute| (name.to_owned(), attribute)));
    };
    // The API server takes texts of 64 characters at most.
    let product: String = gpu.name.chars().take(64).collect();
    add("productName", (!product.is_empty()).then(|| text(&product)));
    add("cudaComputeCapability", version(&gpu.compute_capability));
    add("driverVersion", version(&gpu.driver_version));
    let root = !gpu.pci_root.is_empty() && gpu.pci_root.len() <= 64;
    add("resource.kubernetes.io/pcieRoot", root.then(|| text(&gpu.pci_root)));
    let node = (gpu.numa_node >= 0)
        .then(|| DeviceAttribute { int: Some(gpu.numa_node.into()), ..DeviceAttribute::default() });
    add("numaNode", node);
    let known =
        |is_so: bool| is_so.then(|| DeviceAttribute { bool: Some(true), ..DeviceAttribute::default() });
    add("overcommitted", known(is_overcommitted(gpu)));
    add("driverMemoryLimits", known(gpu.has_driver_limits));
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
            has_driver_limits: true,
            numa_node: 1,
            pci_root: "pci0000:3a".to_owned(),
            healthy: true,
            ..v1::Gpu::default()
        }
    }

    /// The only device of a GPU.
    pub(in crate::dra) fn device(gpu: &v1::Gpu, effect: Effect) -> Device {
        let [device] = <[Device; 1]>::try_from(devices(gpu, effect)).unwrap();
        device
    }

    #[test]
    fn a_gpu_has_capacities_of_which_a_share_consumes_a_part() {
        let device = device(&gpu(6), Effect::NoSchedule);
        assert_eq!(device.name, "gpu-fef8089b-4820-abfc-e83e-943181975706");
        assert_eq!((device.allow_multiple_allocations, &device.taints), (Some(true), &None));
        let capacity = device.capacity.unwrap();
        assert_eq!(capacity[MEMORY].value.0, "45056Mi");
        let policy = |name: &str| {
            let policy = capacity[name].request_policy.clone().unwrap();
            let range = policy.valid_range.unwrap();
            [policy.default.unwrap(), range.min, range.max.unwrap()].map(|quantity| quantity.0)
        };
        assert_eq!(policy(MEMORY), ["45056Mi", "64Mi", "45056Mi"]);
        assert_eq!(policy(CORES), ["0", "0", "100"]);
        assert_eq!(policy("slots"), ["1", "1", "1"]);
        let attributes = device.attributes.unwrap();
        let version = |name: &str| attributes[name].version.clone().unwrap();
        assert_eq!(version("cudaComputeCapability"), "8.9.0");
        assert_eq!(version("driverVersion"), "550.54.5");
        assert_eq!(attributes["numaNode"].int, Some(1));
        assert_eq!(attributes["driverMemoryLimits"].bool, Some(true));
        assert_eq!(attributes["uuid"].string.as_deref(), Some("GPU-FEF8089b-4820-abfc-e83e-943181975706"));
    }

    #[test]
    fn unknown_attributes_are_left_out() {
        let bare = v1::Gpu {
            uuid: "GPU-1".to_owned(),
            memory_shared_bytes: 1 << 30,
            cores_grantable_permille: 1000,
            sharers_max: 1,
            numa_node: -1,
            ..v1::Gpu::default()
        };
        let device = device(&bare, Effect::NoSchedule);
        let attributes = device.attributes.unwrap();
        assert_eq!(attributes.into_keys().collect::<Vec<_>>(), ["type", "uuid"]);
        assert_eq!(device.capacity.unwrap()[CORES].value.0, "100");
        assert!(devices(&v1::Gpu::default(), Effect::NoSchedule).is_empty());
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
            let gpu = v1::Gpu { healthy, cordoned, ..gpu(1) };
            let device = device(&gpu, Effect::NoExecute);
            let taints = device.taints.unwrap_or_default().into_iter();
            taints.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect::<Vec<_>>()
        };
        assert!(keys(true, false).is_empty());
        let unhealthy = format!("{UNHEALTHY}:NoExecute");
        assert_eq!(keys(false, false), std::slice::from_ref(&unhealthy));
        assert_eq!(keys(false, true), [unhealthy, format!("{CORDONED}:NoSchedule")]);
    }
}
