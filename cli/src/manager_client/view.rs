//! Conversion of the manager's answers to the views of `smi` and `top`.

use std::collections::HashMap;

use vcuda_manager_api::v1::{self, Container, ContainerDevice, Holder};
use vcuda_quota::Quota;

use super::ManagerClient;
use crate::failure::Failure;
use crate::process_facts::{self, Seen};
use crate::render::temporary::Temporary;
use crate::render::{GpuView, ProcessView, Snapshot, TenantView, seconds_of, state_name};

/// Snapshot of the node with all its tenants.
pub fn snapshot(node: &ManagerClient) -> Result<Snapshot, Failure> {
    let gpus = node.gpus_with_processes()?;
    if gpus.gpus.is_empty() {
        return Err(Failure::Unavailable(format!(
            "the manager has no GPU: {}",
            if gpus.problem.is_empty() { "NVML shows none" } else { &gpus.problem }
        )));
    }
    let containers = node.containers()?.containers;
    let of_gpu = tenants(&containers);
    let whole = |mut tenant: TenantView, gpu: &v1::Gpu| {
        if tenant.memory_limit_bytes == 0 {
            tenant.memory_limit_bytes = gpu.memory_total_bytes;
        }
        tenant
    };
    let is_known = |text: &String| !text.is_empty();
    let driver = gpus.gpus.first().map(|gpu| gpu.driver_version.clone());
    let view = |(index, gpu): (usize, v1::Gpu)| GpuView {
        index,
        memory_granted_bytes: gpu.memory_granted_bytes,
        cores_granted_permille: gpu.cores_granted_permille,
        utilization_percent: gpu.utilization_percent,
        temperature_celsius: gpu.temperature_celsius,
        power_draw_mw: gpu.power_draw_mw,
        power_limit_mw: gpu.power_limit_mw,
        memory_utilization_percent: gpu.memory_utilization_percent,
        compute_capability: Some(gpu.compute_capability.clone()).filter(is_known),
        // The manager has the kernel's form, with four digits of the domain where those suffice.
        pci_bus_id: Some(format!("{:0>16}", gpu.pci_bus_id.to_uppercase()))
            .filter(|_| !gpu.pci_bus_id.is_empty()),
        closed: closed(&gpu),
        outside_processes: gpu.outside_processes.iter().map(outside).collect(),
        tenants: of_gpu
            .get(gpu.uuid.as_str())
            .into_iter()
            .flatten()
            .map(|tenant| whole(tenant.clone(), &gpu))
            .collect(),
        uuid: gpu.uuid,
        name: gpu.name,
        memory_total_bytes: gpu.memory_total_bytes,
        memory_used_bytes: gpu.memory_used_bytes,
    };
    Ok(Snapshot {
        driver_version: driver.filter(is_known),
        cuda_version: Some(gpus.cuda_version).filter(is_known),
        ..Snapshot::of(gpus.gpus.into_iter().enumerate().map(view).collect())
    })
}

/// Why a GPU gets no new tenants.
fn closed(gpu: &v1::Gpu) -> Option<String> {
    let cordoned = gpu.cordoned.then(|| "cordoned".to_owned());
    let unhealthy = (!gpu.healthy).then(|| format!("unhealthy: {}", gpu.health_reason));
    let reasons: Vec<String> = cordoned.into_iter().chain(unhealthy).collect();
    (!reasons.is_empty()).then(|| format!("no new tenants: {}", reasons.join("; ")))
}

/// A process of no tenant, by its PID on the host.
fn outside(process: &v1::Process) -> ProcessView {
    let seen = Seen::Here(process.host_pid);
    process_facts::view(&seen, &process.name, process.memory_used_bytes.first().copied())
}

/// Tenants by the UUID of their GPU.
fn tenants(containers: &[Container]) -> HashMap<&str, Vec<TenantView>> {
    let mut of_gpu: HashMap<&str, Vec<TenantView>> = HashMap::new();
    for container in containers {
        for (position, device) in container.devices.iter().enumerate() {
            of_gpu.entry(device.gpu_uuid.as_str()).or_default().push(tenant(container, position, device));
        }
    }
    of_gpu
}

fn tenant(container: &Container, position: usize, device: &ContainerDevice) -> TenantView {
    let quota = Quota::from(&device.amounts.unwrap_or_default());
    let process = |process: &v1::Process| {
        let used = process.memory_used_bytes.get(position).copied().unwrap_or(0);
        (used > 0).then(|| {
            let seen = Seen::reported(process.host_pid, process.pid);
            process_facts::view(&seen, &process.name, Some(used))
        })
    };
    TenantView {
        holder: container.grant.as_ref().and_then(|grant| grant.holder.as_ref()).and_then(words),
        temporary: container.grant.as_ref().and_then(Temporary::of),
        memory_used_bytes: device.memory_used_bytes,
        state: state_name(container.state()),
        suspended_bytes: device.suspended_bytes,
        memory_denied: device.denied,
        room_denied: container.room_denied,
        held_by_driver: container.held_by_driver,
        core_used_permille: device.cores_used_permille.min(1000),
        gpu_seconds: seconds_of(device.served_ns),
        host_copies: device.host_copies,
        host_copied_bytes: device.host_copied_bytes,
        processes: container.processes.iter().filter_map(process).collect(),
        ..TenantView::unused(&container.id, &quota, device.memory_limit_bytes)
    }
}

/// Holder as `namespace/pod/container`, without unknown parts.
pub(crate) fn words(holder: &Holder) -> Option<String> {
    let known = [&holder.namespace, &holder.pod, &holder.container];
    let known: Vec<&str> = known.into_iter().map(String::as_str).filter(|one| !one.is_empty()).collect();
    (!known.is_empty()).then(|| known.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_shown_on_each_of_its_gpus() {
        let device = |uuid: &str| ContainerDevice {
            gpu_uuid: uuid.to_owned(),
            amounts: Some(v1::Amounts {
                cores_permille: 300,
                policy: v1::Policy::Burst.into(),
                ..v1::Amounts::default()
            }),
            ..ContainerDevice::default()
        };
        let container = Container {
            id: "job-1".to_owned(),
            grant: Some(v1::Grant {
                holder: Some(Holder {
                    namespace: "ml".to_owned(),
                    pod: "train-0".to_owned(),
                    ..Holder::default()
                }),
                ..v1::Grant::default()
            }),
            devices: vec![device("a"), device("b")],
            processes: vec![v1::Process {
                host_pid: 70,
                pid: 7,
                memory_used_bytes: vec![0, 5],
                ..v1::Process::default()
            }],
            ..Container::default()
        };
        let containers = [container];
        let of_gpu = tenants(&containers);
        let [a, b] = ["a", "b"].map(|gpu| &of_gpu[gpu][0]);
        assert_eq!(a.holder.as_deref(), Some("ml/train-0"));
        assert_eq!((a.core_guarantee_permille, a.core_limit_permille), (300, 1000));
        assert!(a.processes.is_empty() && !a.is_ranked);
        assert_eq!((b.processes[0].pid, b.processes[0].memory_used_bytes), (70, Some(5)));
    }
}
