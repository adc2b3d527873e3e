//! What claims hold of each GPU: also those of pods that do not start, of which no manager has a grant.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client};
use vcuda_quota::pods::quantity;

/// Driver of the claims and slices.
const DRIVER: &str = "vcuda.io";

/// What claims hold of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) memory_bytes: u64,
    pub(super) cores_percent: u64,
}

/// What is held of each GPU, by UUID. Empty in a cluster without claims, and for a user who may not list them all.
pub(super) async fn by_gpu(client: &Client) -> BTreeMap<String, Claimed> {
    let all = ListParams::default();
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let claims: Api<ResourceClaim> = Api::all(client.clone());
    match tokio::try_join!(slices.list(&all), claims.list(&all)) {
        Ok((slices, claims)) => sums(&slices.items, &claims.items),
        Err(_) => BTreeMap::new(),
    }
}

fn sums(slices: &[ResourceSlice], claims: &[ResourceClaim]) -> BTreeMap<String, Claimed> {
    let mut uuids: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.spec.driver == DRIVER) {
        for device in slice.spec.devices.iter().flatten() {
            let uuid = device.attributes.as_ref().and_then(|all| all.get("uuid")?.string.as_deref());
            uuids.extend(uuid.map(|uuid| ((slice.spec.pool.name.as_str(), device.name.as_str()), uuid)));
        }
    }
    let mut sums: BTreeMap<String, Claimed> = BTreeMap::new();
    let allocations =
        claims.iter().filter_map(|claim| claim.status.as_ref()?.allocation.as_ref()?.devices.as_ref());
    let results = allocations.flat_map(|devices| devices.results.iter().flatten());
    // Admin access sees a GPU and holds nothing of it.
    for result in results.filter(|result| result.admin_access != Some(true)) {
        let Some(uuid) =
            uuids.get(&(result.pool.as_str(), result.device.as_str())).filter(|_| result.driver == DRIVER)
        else {
            continue;
        };
        let amount = |name: &str| {
            let consumed = result.consumed_capacity.as_ref().and_then(|capacity| capacity.get(name));
            consumed.and_then(|amount| quantity::parse(&amount.0).ok()).unwrap_or(0)
        };
        let sum = sums.entry((*uuid).to_owned()).or_default();
        sum.memory_bytes = sum.memory_bytes.saturating_add(amount("memory"));
        sum.cores_percent = sum.cores_percent.saturating_add(amount("cores"));
    }
    sums
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn claims_count_whether_or_not_their_pods_start() {
        let slice = |driver: &str| -> ResourceSlice {
            let device = json!({"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-1"}}});
            let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 1});
            let spec = json!({"driver": driver, "pool": pool, "devices": [device]});
            serde_json::from_value(json!({"metadata": {"name": driver}, "spec": spec})).unwrap()
        };
        let claim = |results: &[Value]| -> ResourceClaim {
            let status = json!({"allocation": {"devices": {"results": results}}});
            serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}, "status": status})).unwrap()
        };
        let result = |driver: &str, memory: &str, cores: &str| json!({"request": "r", "driver": driver, "pool": "n1", "device": "gpu-0", "consumedCapacity": {"memory": memory, "cores": cores}});
        let claims = [
            claim(&[result("vcuda.io", "20Gi", "60"), result("gpu.nvidia.com", "1Gi", "5")]),
            claim(&[result("vcuda.io", "2Gi", "30")]),
            claim(&[
                json!({"request": "r", "driver": "vcuda.io", "pool": "n1", "device": "gpu-0", "adminAccess": true,
                "consumedCapacity": {"memory": "80Gi", "cores": "100"}}),
            ]),
        ];
        let sums = sums(&[slice("vcuda.io"), slice("gpu.nvidia.com")], &claims);
        assert_eq!(
            sums,
            [("GPU-1".to_owned(), Claimed { memory_bytes: 22 << 30, cores_percent: 90 })].into()
        );
    }
}
