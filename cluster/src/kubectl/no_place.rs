//! Whether a claim that is not allocated asks for what no node has: a capacity that GPUs do not have, more GPUs than a node has. It
//! would wait for ever. Whether a GPU matches the claim's selectors is not evaluated. No network.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1::{Device, DeviceRequest, ExactDeviceRequest, ResourceClaim};
use vcuda_quota::pods::quantity;

use super::finding::Finding;
use super::too_large::{OURS, finding};

/// Devices by pool, which is a node.
pub(super) type Pools = BTreeMap<String, Vec<Device>>;

/// What `claim` asks for that no pool has, one finding each. Nothing is told while no pool has a device.
pub(super) fn unplaceable(claim: &ResourceClaim, pools: &Pools) -> Vec<Finding> {
    if pools.values().all(Vec::is_empty) {
        return Vec::new();
    }
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let mut found: Vec<Finding> = requests(claim).filter_map(|asked| unknown(name, asked, pools)).collect();
    if found.is_empty() {
        found.extend(requests(claim).filter_map(|asked| too_many(name, asked, pools)));
        found.extend(too_many_different(name, claim, pools));
    }
    found
}

/// The selectors of a claim, which its author has to compare.
pub(super) fn selected(claim: &ResourceClaim) -> Option<Finding> {
    let selectors = requests(claim).flat_map(|(_, exactly)| exactly.selectors.iter().flatten());
    let texts: Vec<&str> =
        selectors.filter_map(|selector| Some(selector.cel.as_ref()?.expression.as_str())).collect();
    (!texts.is_empty()).then(|| Finding {
        source: "claim".to_owned(),
        reason: format!(
            "claim {} takes GPUs with {}",
            claim.metadata.name.as_deref().unwrap_or_default(),
            texts.join(" and ")
        ),
        remedy: "selectors are not evaluated here: compare with kubectl get resourceslices -o yaml. If no GPU matches, it can never start: \
                 correct the selector in a new claim. If one matches, wait: it starts by itself when that GPU has room"
            .to_owned(),
    })
}

/// Requests for devices of our classes, without lists of alternatives.
fn requests(claim: &ResourceClaim) -> impl Iterator<Item = (&DeviceRequest, &ExactDeviceRequest)> {
    let devices = claim.spec.iter().filter_map(|spec| spec.devices.as_ref());
    let requests = devices.flat_map(|devices| devices.requests.iter().flatten());
    requests.filter_map(|request| Some((request, request.exactly.as_ref()?))).filter(|(_, exactly)| {
        exactly.device_class_name.starts_with(OURS) && exactly.admin_access != Some(true)
    })
}

/// Devices that a request asks for.
fn count(exactly: &ExactDeviceRequest) -> u64 {
    match exactly.allocation_mode.as_deref() {
        Some("All") => 0,
        _ => u64::try_from(exactly.count.unwrap_or(1)).unwrap_or(1),
    }
}

/// The amount of a capacity that a request names, if it names it.
fn named(exactly: &ExactDeviceRequest, capacity: &str) -> Option<u64> {
    let amount = exactly.capacity.as_ref()?.requests.as_ref()?.get(capacity)?;
    quantity::parse(&amount.0).ok()
}

/// A capacity that no device has.
fn unknown(
    claim: &str,
    (request, exactly): (&DeviceRequest, &ExactDeviceRequest),
    pools: &Pools,
) -> Option<Finding> {
    let devices = pools.values().flatten();
    let known: BTreeSet<&String> =
        devices.flat_map(|device| device.capacity.iter().flat_map(BTreeMap::keys)).collect();
    let asked = exactly.capacity.as_ref()?.requests.as_ref()?;
    let name = asked.keys().find(|name| !known.contains(name))?;
    let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
    Some(Finding {
        source: "claim".to_owned(),
        reason: format!(
            "request {} of claim {claim} asks for capacity {name}, which no GPU has; they have {}",
            request.name,
            known.join(", ")
        ),
        remedy: "it can never start: write one of these names in a new claim".to_owned(),
    })
}

/// More shares than fit on an empty node. A GPU may be allocated more than once for a request.
fn too_many(
    claim: &str,
    (request, exactly): (&DeviceRequest, &ExactDeviceRequest),
    pools: &Pools,
) -> Option<Finding> {
    let of_pool = |devices: &Vec<Device>| {
        devices.iter().map(|device| places(exactly, device)).fold(0, u64::saturating_add)
    };
    let most = pools.values().map(of_pool).max()?;
    (most < count(exactly)).then(|| {
        let asked = count(exactly);
        let name = &request.name;
        finding(
            format!(
                "request {name} of claim {claim} asks for {asked} shares, and at most {most} fit on a node"
            ),
            "claim",
        )
    })
}

/// The shares of this size that an empty device has room for.
fn places(exactly: &ExactDeviceRequest, device: &Device) -> u64 {
    let of_capacity = device.capacity.iter().flatten().filter_map(|(name, capacity)| {
        let value = quantity::parse(&capacity.value.0).ok()?;
        let default = capacity.request_policy.as_ref().and_then(|policy| policy.default.as_ref());
        let default = default.and_then(|default| quantity::parse(&default.0).ok());
        value.checked_div(named(exactly, name).or(default).unwrap_or(value))
    });
    of_capacity.min().unwrap_or(1)
}

/// More GPUs that differ in an attribute than a node has.
fn too_many_different(claim: &str, of: &ResourceClaim, pools: &Pools) -> Option<Finding> {
    let constraints = of.spec.as_ref()?.devices.as_ref()?.constraints.iter().flatten();
    let mut found = constraints.filter_map(|constraint| {
        let attribute = constraint.distinct_attribute.as_deref()?.trim_start_matches("vcuda.io/");
        let names = constraint.requests.as_deref().unwrap_or_default();
        let asked = requests(of).filter(|(request, _)| names.is_empty() || names.contains(&request.name));
        let asked = asked.map(|(_, exactly)| count(exactly)).fold(0, u64::saturating_add);
        let values = |devices: &Vec<Device>| {
            let of_device = |device: &Device| Some(format!("{:?}", device.attributes.as_ref()?.get(attribute)?));
            devices.iter().filter_map(of_device).collect::<BTreeSet<_>>().len()
        };
        let most = pools.values().map(values).max()?;
        (u64::try_from(most).is_ok_and(|most| most < asked)).then(|| {
            finding(format!("claim {claim} asks for {asked} GPUs of different {attribute}, and no node has more than {most}"), "claim")
        })
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Two nodes: one of eight GPUs with 80 GiB, one of one GPU.
    fn pools() -> Pools {
        let device = |number: u32| {
            let policy = |default: &str| json!({"default": default});
            json!({"name": format!("gpu-{number}"), "attributes": {"uuid": {"string": format!("GPU-{number}")}}, "capacity": {
                "memory": {"value": "80Gi", "requestPolicy": policy("80Gi")}, "cores": {"value": "100", "requestPolicy": policy("0")},
                "slots": {"value": "16", "requestPolicy": policy("1")}}})
        };
        let pool = |count: u32| serde_json::from_value((0..count).map(device).collect()).unwrap();
        [("large".to_owned(), pool(8)), ("small".to_owned(), pool(1))].into()
    }

    fn claim(requests: &Value, constraints: &Value) -> ResourceClaim {
        let devices = json!({"requests": requests, "constraints": constraints});
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"devices": devices}})).unwrap()
    }

    fn said(request: &Value, constraints: &Value) -> String {
        let class = json!({"deviceClassName": "vcuda.io"});
        let mut exactly = class.as_object().unwrap().clone();
        exactly.extend(request.as_object().unwrap().clone());
        let claim = claim(&json!([{"name": "gpu", "exactly": exactly}]), constraints);
        let found = unplaceable(&claim, &pools());
        assert!(found.iter().all(|finding| finding.remedy.contains("never")), "{found:?}");
        found.into_iter().map(|finding| finding.reason).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn more_gpus_than_a_node_has_never_fit() {
        let (none, different) = (json!([]), json!([{"distinctAttribute": "vcuda.io/uuid"}]));
        let nine = "request gpu of claim c asks for 9 shares, and at most 8 fit on a node";
        assert_eq!(said(&json!({"count": 9}), &none), nine, "without an amount each is a whole GPU");
        assert_eq!(said(&json!({"count": 8}), &none), "");
        assert_eq!(said(&json!({"allocationMode": "All"}), &none), "");
        let small = |count: u32| json!({"count": count, "capacity": {"requests": {"memory": "30Gi"}}});
        assert_eq!(said(&small(16), &none), "");
        assert!(said(&small(17), &none).contains("17 shares, and at most 16"));
        assert_eq!(said(&small(8), &different), "");
        assert_eq!(
            said(&small(9), &different),
            "claim c asks for 9 GPUs of different uuid, and no node has more than 8"
        );
        let other = json!([{"distinctAttribute": "vcuda.io/uuid", "requests": ["other"]}]);
        assert_eq!(said(&small(9), &other), "");
        assert_eq!(said(&json!({"count": 9, "deviceClassName": "gpu.nvidia.com"}), &none), "");
    }

    #[test]
    fn a_capacity_that_no_gpu_has_is_named_with_those_that_they_have() {
        let asks = json!({"capacity": {"requests": {"vcuda.io/memory": "1Gi"}}});
        assert_eq!(
            said(&asks, &json!([])),
            "request gpu of claim c asks for capacity vcuda.io/memory, which no GPU has; they have cores, memory, slots"
        );
        let unread = unplaceable(
            &claim(
                &json!([{"name": "g", "exactly": {"deviceClassName": "vcuda.io", "count": 9}}]),
                &json!([]),
            ),
            &Pools::new(),
        );
        assert_eq!(unread, []);
    }

    #[test]
    fn selectors_are_left_to_their_author() {
        let exactly =
            json!({"deviceClassName": "vcuda.io", "selectors": [{"cel": {"expression": "a == 1"}}]});
        let found = selected(&claim(&json!([{"name": "gpu", "exactly": exactly}]), &json!([]))).unwrap();
        assert!(
            found.reason == "claim c takes GPUs with a == 1" && !found.remedy.starts_with("wait"),
            "{found:?}"
        );
        assert_eq!(selected(&ResourceClaim::default()), None);
    }
}
