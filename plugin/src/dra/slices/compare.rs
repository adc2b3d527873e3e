//! Comparison of the API server's slices with the desired ones.

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use vcuda_quota::pods::quantity;

/// Whether `found` are the desired slices, regardless of the form in which the API server writes quantities.
pub(super) fn is_desired(found: &[ResourceSlice], desired: &[Vec<Device>]) -> bool {
    let mut found: Vec<&ResourceSlice> = found.iter().collect();
    found.sort_by_key(|slice| slice.metadata.name.clone());
    let generation = found.first().map(|slice| slice.spec.pool.generation);
    let is_of_pool = |slice: &&ResourceSlice| {
        let pool = &slice.spec.pool;
        Some(pool.generation) == generation && usize::try_from(pool.resource_slice_count) == Ok(desired.len())
    };
    let all_normalized = |devices: &[Device]| devices.iter().map(normalized).collect::<Vec<_>>();
    let mut devices: Vec<Vec<Device>> =
        found.iter().map(|slice| all_normalized(slice.spec.devices.as_deref().unwrap_or_default())).collect();
    let mut desired_devices: Vec<Vec<Device>> =
        desired.iter().map(|devices| all_normalized(devices)).collect();
    // By device, not by the slice's name: `10` would come before `2`.
    let by_first = |slice: &Vec<Device>| slice.first().map(|device| device.name.clone());
    devices.sort_by_key(by_first);
    desired_devices.sort_by_key(by_first);
    found.len() == desired.len() && found.iter().all(is_of_pool) && devices == desired_devices
}

/// The device with all quantities as plain numbers, and without the times that the API server adds to taints.
fn normalized(device: &Device) -> Device {
    let mut device = device.clone();
    let number = |quantity: &mut Quantity| {
        if let Ok(value) = quantity::parse(&quantity.0) {
            quantity.0 = value.to_string();
        }
    };
    for capacity in device.capacity.iter_mut().flat_map(|all| all.values_mut()) {
        number(&mut capacity.value);
        let Some(policy) = &mut capacity.request_policy else {
            continue;
        };
        policy.default.iter_mut().for_each(number);
        if let Some(range) = &mut policy.valid_range {
            number(&mut range.min);
            range.max.iter_mut().chain(&mut range.step).for_each(number);
        }
    }
    for taint in device.taints.iter_mut().flatten() {
        taint.time_added = None;
    }
    device
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::{ResourcePool, ResourceSliceSpec};
    use kube::api::ObjectMeta;

    use super::super::super::device::{Effect, tests::device, tests::gpu};
    use super::*;

    fn slice(name: &str, devices: &[Device], (generation, count): (i64, i64)) -> ResourceSlice {
        ResourceSlice {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: ResourceSliceSpec {
                pool: ResourcePool { generation, resource_slice_count: count, ..ResourcePool::default() },
                devices: Some(devices.to_vec()),
                ..ResourceSliceSpec::default()
            },
        }
    }

    #[test]
    fn the_api_servers_form_of_amounts_is_no_change() {
        let desired = device(&gpu(1), Effect::NoSchedule);
        let mut found = desired.clone();
        let memory = found.capacity.as_mut().unwrap().get_mut("memory").unwrap();
        memory.value.0 = "44Gi".to_owned();
        assert_ne!(found, desired);
        assert!(is_desired(&[slice("a", &[found.clone()], (3, 1))], &[vec![desired.clone()]]));
        let memory = found.capacity.as_mut().unwrap().get_mut("memory").unwrap();
        memory.value.0 = "43Gi".to_owned();
        assert!(!is_desired(&[slice("a", &[found], (3, 1))], &[vec![desired]]));
    }

    #[test]
    fn an_incomplete_pool_is_not_desired() {
        let devices: Vec<Device> = (0..3).map(|number| device(&gpu(number), Effect::NoSchedule)).collect();
        let desired = [devices[..2].to_vec(), devices[2..].to_vec()];
        let first = slice("a", &desired[0], (3, 2));
        assert!(is_desired(&[slice("b", &desired[1], (3, 2)), first.clone()], &desired));
        for broken in [
            vec![first.clone()],
            vec![first.clone(), slice("b", &desired[1], (2, 2))],
            vec![first.clone(), slice("b", &desired[1], (3, 3))],
            vec![first, slice("b", &[], (3, 2))],
        ] {
            assert!(!is_desired(&broken, &desired));
        }
    }
}
