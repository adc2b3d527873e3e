//! What each device of a GPU has: all of the GPU, or the parts of one whose memory is overcommitted.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use vcuda_manager_api::v1;

use super::{CORES, MEMORY, is_overcommitted};

/// Name of the capacity of slots for tenants.
const SLOTS: &str = "slots";
/// Step of memory requests (bytes).
const MEMORY_STEP: u64 = 1 << 20;
/// Least memory of a share (number of steps).
const MEMORY_MIN_STEPS: u64 = 64;

/// What a device has.
pub(super) struct Capacity {
    pub(super) is_suspendable: bool,
    /// Memory of all shares together (number of steps).
    steps: u64,
    /// Memory of the largest share (number of steps).
    steps_max: u64,
    /// GPU time that can be guaranteed (percent).
    percent: u64,
    slots: u32,
}

impl Capacity {
    /// What each device of a GPU has, in the order of the slices.
    pub(super) fn of_gpu(gpu: &v1::Gpu) -> Vec<Self> {
        let percent = u64::from(gpu.cores_grantable_permille / 10);
        let for_all = |memory_bytes, slots| Self {
            is_suspendable: false,
            steps: memory_bytes / MEMORY_STEP,
            steps_max: memory_bytes / MEMORY_STEP,
            percent,
            slots,
        };
        let mut capacities = Vec::new();
        if is_overcommitted(gpu) {
            // Devices have no counter in common (Kubernetes 1.36), so what is one number of the GPU is divided: the slots by memory.
            // A guarantee of GPU time cannot be kept to a share that takes turns, so all of it is the other device's.
            let slots = suspendable_slots(gpu);
            // The scheduler takes the first that fits: what only suspendable shares can have comes first.
            capacities.push(Self {
                is_suspendable: true,
                steps_max: gpu.memory_suspendable_largest_bytes / MEMORY_STEP,
                percent: 0,
                ..for_all(gpu.memory_suspendable_bytes, slots)
            });
            capacities.push(for_all(gpu.memory_common_bytes, gpu.sharers_max.saturating_sub(slots)));
        } else {
            capacities.push(for_all(gpu.memory_shared_bytes, gpu.sharers_max));
        }
        capacities.retain(|capacity| capacity.steps_max >= MEMORY_MIN_STEPS && capacity.slots > 0);
        capacities
    }

    /// The capacities of the device, with what a share may consume of each.
    pub(super) fn with_policies(&self) -> BTreeMap<String, DeviceCapacity> {
        let Self { steps, steps_max, percent, slots, .. } = *self;
        let mebibytes = |steps: u64| Quantity(format!("{steps}Mi"));
        let number = |number: u64| Quantity(number.to_string());
        // The API server refuses a step that is larger than what is beyond the minimum, so amounts without a choice have none.
        let policy = |default, min, max, step| CapacityRequestPolicy {
            default: Some(default),
            valid_range: Some(CapacityRequestPolicyRange { min, max: Some(max), step }),
            ..CapacityRequestPolicy::default()
        };
        let memory = DeviceCapacity {
            value: mebibytes(steps),
            // A claim without an amount gets all memory, and so a GPU without other tenants unless it is overcommitted.
            request_policy: Some(policy(
                mebibytes(steps_max),
                mebibytes(MEMORY_MIN_STEPS),
                mebibytes(steps_max),
                Some(mebibytes(1)),
            )),
        };
        // A claim without an amount has no guarantee: it gets the time that others leave (docs/policies.md).
        let cores = DeviceCapacity {
            value: number(percent),
            request_policy: Some(policy(
                number(0),
                number(0),
                number(percent.min(100)),
                (percent > 0).then(|| number(1)),
            )),
        };
        let slots = DeviceCapacity {
            value: number(slots.into()),
            request_policy: Some(policy(number(1), number(1), number(1), None)),
        };
        [(MEMORY, memory), (CORES, cores), (SLOTS, slots)]
            .map(|(name, capacity)| (name.to_owned(), capacity))
            .into()
    }
}

/// Slots of the device for suspendable shares alone: its part of the memory that is given, and at least one for each device that has
/// memory.
fn suspendable_slots(gpu: &v1::Gpu) -> u32 {
    if gpu.memory_common_bytes / MEMORY_STEP < MEMORY_MIN_STEPS {
        return gpu.sharers_max;
    }
    let all_bytes = u128::from(gpu.memory_suspendable_bytes) + u128::from(gpu.memory_common_bytes);
    let slots = u128::from(gpu.sharers_max) * u128::from(gpu.memory_suspendable_bytes) / all_bytes;
    let most = gpu.sharers_max.saturating_sub(1);
    u32::try_from(slots).unwrap_or(most).max(1).min(most)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::Device;

    use super::super::tests::{device, gpu};
    use super::super::{Effect, devices, is_suspendable_device};
    use super::*;

    /// A GPU whose 44 GiB are overcommitted with the factor 1.5.
    fn overcommitted() -> v1::Gpu {
        v1::Gpu {
            memory_common_bytes: 22 << 30,
            memory_suspendable_bytes: 44 << 30,
            memory_suspendable_largest_bytes: 22 << 30,
            ..gpu(6)
        }
    }

    /// Value, default and maximum of a capacity.
    fn amounts(device: &Device, name: &str) -> [String; 3] {
        let capacity = &device.capacity.as_ref().unwrap()[name];
        let policy = capacity.request_policy.clone().unwrap();
        [capacity.value.clone(), policy.default.unwrap(), policy.valid_range.unwrap().max.unwrap()]
            .map(|quantity| quantity.0)
    }

    #[test]
    fn an_overcommitted_gpu_is_two_devices_with_one_uuid() {
        let [suspendable, common] =
            <[Device; 2]>::try_from(devices(&overcommitted(), Effect::NoSchedule)).unwrap();
        assert_eq!(common.name, "gpu-fef8089b-4820-abfc-e83e-943181975706");
        assert_eq!(suspendable.name, "gpu-fef8089b-4820-abfc-e83e-943181975706-suspendable");
        assert!(is_suspendable_device(&suspendable.name) && !is_suspendable_device(&common.name));
        let attribute = |device: &Device, name: &str| device.attributes.as_ref().unwrap()[name].clone();
        for (device, kind) in [(&suspendable, "vcuda-suspendable"), (&common, "vcuda")] {
            assert_eq!(attribute(device, "type").string.as_deref(), Some(kind));
            assert_eq!(attribute(device, "overcommitted").bool, Some(true));
        }
        assert_eq!(attribute(&suspendable, "uuid"), attribute(&common, "uuid"));
        assert_eq!(amounts(&suspendable, MEMORY), ["45056Mi", "22528Mi", "22528Mi"]);
        assert_eq!(amounts(&common, MEMORY), ["22528Mi", "22528Mi", "22528Mi"]);
        assert_eq!(amounts(&suspendable, CORES), ["0", "0", "0"]);
        assert_eq!(amounts(&common, CORES), ["100", "0", "100"]);
        let slots = [&suspendable, &common].map(|device| amounts(device, SLOTS)[0].clone());
        assert_eq!(slots, ["10", "6"]);
    }

    /// Checks of Kubernetes' `validateRequestPolicyRange` (pkg/apis/resource/validation).
    #[test]
    fn the_api_server_takes_each_capacity() {
        let number = |quantity: &Quantity| quantity.0.trim_end_matches("Mi").parse::<u64>().unwrap();
        // Of two slots each device has one; and a GPU of one slot is one device.
        for (gpu, sharers_max) in [(overcommitted(), 16), (overcommitted(), 2), (gpu(6), 16), (gpu(6), 1)] {
            let gpu = v1::Gpu { sharers_max, ..gpu };
            let capacities =
                devices(&gpu, Effect::NoSchedule).into_iter().flat_map(|device| device.capacity.unwrap());
            for (name, capacity) in capacities {
                let policy = capacity.request_policy.unwrap();
                let range = policy.valid_range.unwrap();
                let (min, max) = (number(&range.min), number(&range.max.unwrap()));
                let default = number(&policy.default.unwrap());
                let step = range.step.as_ref().map(number);
                assert!(min <= default && default <= max && max <= number(&capacity.value), "{name}");
                assert!(
                    step.is_none_or(|step| min + step <= number(&capacity.value)
                        && (default - min) % step == 0
                        && (max - min) % step == 0),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn all_memory_for_suspendable_shares_is_one_device() {
        let gpu = v1::Gpu {
            memory_common_bytes: 0,
            memory_suspendable_bytes: 88 << 30,
            memory_suspendable_largest_bytes: 44 << 30,
            ..gpu(6)
        };
        let only = device(&gpu, Effect::NoSchedule);
        assert!(is_suspendable_device(&only.name));
        assert_eq!(amounts(&only, MEMORY), ["90112Mi", "45056Mi", "45056Mi"]);
        assert_eq!(amounts(&only, SLOTS)[0], "16");
    }
}
