//! Checks of GPUs whose tenants' quotas add up to more than there is. Each quota is enforced, but a GPU may be full before a memory
//! quota is reached, and guarantees of more time than there is cannot all be kept.

use vcuda_manager_api::v1::{Container, ContainerDevice};
use vcuda_quota::{CoreShare, MemorySize, Quota};

use super::Finding;
use crate::config::Environment;
use crate::inventory::{Gpu, Inventory};

const LINK: &str = "quotas";

struct OfTenant {
    gpu_uuid: String,
    quota: Quota,
    is_suspendable: bool,
}

/// Findings for the GPUs whose UUID is wanted.
pub(super) fn findings(
    is_simulated: bool,
    environment: &Environment,
    tenants: &[Container],
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let gpus =
        Inventory::find(environment, is_simulated).and_then(|inventory| inventory.gpus()).unwrap_or_default();
    let of_tenant = |tenant: &Container| {
        let is_suspendable = tenant.grant.as_ref().is_some_and(|grant| grant.suspendable);
        let of_device = move |device: &ContainerDevice| {
            let quota = Quota::from(&device.amounts.unwrap_or_default());
            OfTenant { gpu_uuid: device.gpu_uuid.clone(), quota, is_suspendable }
        };
        tenant.devices.iter().map(of_device).collect::<Vec<_>>()
    };
    let quotas: Vec<OfTenant> = tenants.iter().flat_map(of_tenant).collect();
    let of_gpu = |gpu: &Gpu| {
        let of_this: Vec<&OfTenant> =
            quotas.iter().filter(|one| one.gpu_uuid == gpu.uuid.to_string()).collect();
        [too_much_memory(gpu, &of_this), too_much_time(gpu, &of_this)]
    };
    gpus.iter().filter(|gpu| is_wanted(&gpu.uuid.to_string())).flat_map(of_gpu).flatten().collect()
}

fn too_much_memory(gpu: &Gpu, quotas: &[&OfTenant]) -> Option<Finding> {
    let bytes = |is_suspendable: bool| {
        let quotas = quotas.iter().filter(move |one| one.is_suspendable == is_suspendable);
        quotas.filter_map(|one| one.quota.memory_bytes)
    };
    let usable = gpu.usable_bytes();
    let others = bytes(false).fold(0, u64::saturating_add);
    let all = bytes(true).fold(others, u64::saturating_add);
    let largest = bytes(true).max();
    let at_once = others.saturating_add(largest.unwrap_or(0));
    let seen = |which: &str, bytes: u64| {
        format!(
            "{}: the quotas of its tenants{which} {} of {}",
            gpu.uuid,
            MemorySize(bytes),
            MemorySize(usable)
        )
    };
    if at_once > usable {
        let which = match largest {
            None => " add up to",
            Some(_) => " that are not suspendable, and the largest other one, add up to",
        };
        let remedy = "the GPU may be full before a quota is; vcuda set NAME --memory SIZE lowers one";
        return Some(Finding::note(LINK, seen(which, at_once), remedy));
    }
    (all > usable).then(|| {
        let seen = seen(" add up to", all);
        Finding::ok(LINK, format!("{seen}; those of suspendable tenants need not fit at once"))
    })
}

fn too_much_time(gpu: &Gpu, quotas: &[&OfTenant]) -> Option<Finding> {
    let permille = quotas.iter().map(|one| one.quota.reserved_permille()).fold(0_u32, u32::saturating_add);
    (permille > CoreShare::WHOLE.0).then(|| {
        Finding::note(
            LINK,
            format!(
                "{}: the guarantees of its tenants add up to {} of its time",
                gpu.uuid,
                CoreShare(permille)
            ),
            "if all want their time, each gets less in proportion; vcuda set NAME --cores PERCENT lowers one",
        )
    })
}

#[cfg(test)]
mod tests {
    use vcuda_region::GpuUuid;

    use super::*;
    use crate::doctor::Health;

    #[test]
    fn suspendable_tenants_need_not_fit_at_once() {
        let uuid = GpuUuid::from_bytes([1; 16]);
        let gpu = Gpu {
            uuid,
            name: String::new(),
            memory_total_bytes: 24 << 30,
            memory_used_bytes: 0,
            memory_reserved_bytes: 0,
            cuda_number: None,
        };
        let found = |gib: &[(u64, bool)]| {
            let of_tenant = |(gib, is_suspendable): &(u64, bool)| OfTenant {
                gpu_uuid: uuid.to_string(),
                quota: Quota::fixed(Some(gib << 30), 100),
                is_suspendable: *is_suspendable,
            };
            let quotas: Vec<OfTenant> = gib.iter().map(of_tenant).collect();
            too_much_memory(&gpu, &quotas.iter().collect::<Vec<_>>())
        };
        assert_eq!(found(&[(12, false), (12, true)]), None);
        let turns = found(&[(4, false), (20, true), (20, true)]).unwrap();
        assert_eq!(turns.health, Health::Ok);
        assert!(turns.seen.contains("add up to 44 GiB of 24 GiB; those of suspendable"), "{}", turns.seen);
        for (gib, which) in [
            (&[(16, false), (16, false)][..], "its tenants add up to 32 GiB of 24 GiB"),
            (
                &[(16, false), (10, true), (4, true)],
                "not suspendable, and the largest other one, add up to 26 GiB of 24 GiB",
            ),
        ] {
            let full = found(gib).unwrap();
            assert_eq!(full.health, Health::Note);
            assert!(full.seen.ends_with(which), "{}", full.seen);
        }
    }
}
