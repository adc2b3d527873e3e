//! Conversion of the node's state to the API's messages.

use std::path::Path;

use vcuda_manager_api::v1;
use vcuda_quota::Quota;
use vcuda_region::process::Identity;
use vcuda_region::suspension::SuspendState;

use crate::accounting::Report;
use crate::admission::{Candidate, Rules};
use crate::audit::DeletedFiles;
use crate::events::{Event, Severity};
use crate::gpu::{Health, Inventory};
use crate::observe::{Device, DriverLimit, Process, Snapshot, Tenant};
use crate::suspend::checks::Check;

pub(super) fn gpu(rules: &Rules, candidate: &Candidate<'_>, inventory: &Inventory) -> v1::Gpu {
    let gpu = candidate.gpu;
    let capacity = rules.memory_capacity_bytes(gpu, candidate.load.sharers.max(1));
    let parts = rules.memory_parts(gpu);
    let health_reason = match &gpu.health {
        Health::Healthy => String::new(),
        Health::Unhealthy(why) => why.clone(),
    };
    v1::Gpu {
        uuid: gpu.uuid.to_string(),
        name: gpu.name.clone(),
        memory_total_bytes: gpu.memory_total_bytes,
        memory_used_bytes: gpu.memory_used_bytes,
        memory_grantable_bytes: capacity,
        memory_granted_bytes: if candidate.load.is_whole { capacity } else { candidate.load.memory_bytes },
        cores_granted_permille: candidate.load.promised_permille,
        sharers: candidate.load.sharers,
        sharers_max: rules.sharers_max,
        utilization_percent: gpu.utilization_percent,
        multiprocessors: gpu.multiprocessors.unwrap_or(0),
        compute_capability: gpu
            .compute_capability
            .map(|(major, minor)| format!("{major}.{minor}"))
            .unwrap_or_default(),
        numa_node: gpu.numa_node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1),
        pci_bus_id: gpu.pci_bus_id.clone(),
        pci_root: gpu.pci_root.clone(),
        nvlink_uuids: gpu.nvlinks.iter().map(ToString::to_string).collect(),
        driver_version: inventory.driver_version.clone(),
        has_driver_limits: inventory.has_memory_limits,
        healthy: gpu.health == Health::Healthy,
        health_reason,
        cordoned: candidate.is_cordoned,
        minor_number: gpu.minor_number,
        memory_alone_bytes: rules.memory_capacity_bytes(gpu, 1),
        memory_shared_bytes: rules.memory_capacity_bytes(gpu, rules.sharers_max),
        memory_common_bytes: parts.map_or(0, |parts| parts.common_bytes),
        memory_suspendable_bytes: parts.map_or(0, |parts| parts.suspendable_bytes),
        memory_suspendable_largest_bytes: parts.map_or(0, |parts| parts.suspendable_largest_bytes),
        cores_grantable_permille: rules.cores_overcommit_permille,
        temperature_celsius: gpu.sensors.temperature_celsius,
        power_draw_mw: gpu.sensors.power_draw_mw,
        power_limit_mw: gpu.sensors.power_limit_mw,
        memory_utilization_percent: gpu.sensors.memory_utilization_percent,
        outside_processes: Vec::new(),
    }
}

pub(super) fn tenant(tenant: &Tenant, grant: Option<v1::Grant>, state: SuspendState) -> v1::Container {
    let mut findings = tenant.findings.clone();
    findings.extend(tenant.problem.clone());
    v1::Container {
        id: tenant.id.clone(),
        grant,
        devices: tenant
            .devices
            .iter()
            .map(|one| v1::ContainerDevice {
                suspended_bytes: if state.is_memory_away() { one.used_bytes } else { 0 },
                ..device(one)
            })
            .collect(),
        processes: tenant.processes.iter().map(process).collect(),
        attached: tenant.attached,
        findings,
        state: state_of(state).into(),
        room_denied: 0,
        held_by_driver: tenant.driver_limit == DriverLimit::Set,
        driver_limit_missing: match &tenant.driver_limit {
            DriverLimit::Missing(why) => why.clone(),
            DriverLimit::None | DriverLimit::Set => String::new(),
        },
    }
}

pub(super) fn suspended(state: SuspendState) -> v1::SuspendResponse {
    v1::SuspendResponse { state: state_of(state).into() }
}

pub(super) fn checks(checks: Vec<Check>) -> v1::CheckSuspendResponse {
    let one = |check: Check| {
        let holds = check.outcome.is_ok();
        let (seen, remedy) = match check.outcome {
            Ok(seen) => (seen, ""),
            Err(refusal) => (refusal.why, refusal.remedy),
        };
        v1::SuspendCheck { name: check.name.to_owned(), holds, seen, remedy: remedy.to_owned() }
    };
    v1::CheckSuspendResponse { checks: checks.into_iter().map(one).collect() }
}

fn state_of(state: SuspendState) -> v1::SuspendState {
    match state {
        SuspendState::Running => v1::SuspendState::Running,
        SuspendState::Suspending => v1::SuspendState::Suspending,
        SuspendState::Suspended => v1::SuspendState::Suspended,
        SuspendState::Resuming => v1::SuspendState::Resuming,
        SuspendState::Failed => v1::SuspendState::Failed,
    }
}

fn device(device: &Device) -> v1::ContainerDevice {
    let amounts = v1::Amounts::from(&Quota::of(&device.config));
    v1::ContainerDevice {
        gpu_uuid: device.gpu.to_string(),
        memory_limit_bytes: amounts.memory_bytes,
        amounts: Some(amounts),
        memory_used_bytes: device.used_bytes,
        memory_peak_bytes: device.peak_bytes,
        memory_overhead_bytes: device.overhead_bytes,
        denied: device.denied,
        launches: device.launches,
        served_ns: device.served_ns,
        held_ns: device.held_ns,
        forgiven_ns: device.forgiven_ns,
        cores_used_permille: device.cores_used_permille,
        host_copies: device.host_copies,
        host_copied_bytes: device.host_copied_bytes,
        suspended_bytes: 0,
    }
}

/// Processes that NVML lists on a GPU, by host PID and bytes, and that no tenant of the snapshot, whose directories lie below `root`, has.
pub(super) fn outside(root: &Path, listed: Vec<(u32, Option<u64>)>, snapshot: &Snapshot) -> Vec<v1::Process> {
    let deleted = DeletedFiles::new(root);
    let processes = || snapshot.tenants.iter().flat_map(|tenant| &tenant.processes);
    let is_tenants = |pid: u32| processes().any(|process| process.host_pid == Some(pid));
    let outside = listed.into_iter().filter(|(pid, _)| !is_tenants(*pid));
    outside
        .map(|(pid, bytes)| v1::Process {
            host_pid: pid,
            pid,
            name: Identity::of(pid).map_or_else(|_| String::new(), |process| process.command()),
            registered: false,
            memory_used_bytes: bytes.into_iter().collect(),
            deleted_tenant: deleted.tenant_of(pid).unwrap_or_default(),
        })
        .collect()
}

fn process(process: &Process) -> v1::Process {
    v1::Process {
        host_pid: process.host_pid.unwrap_or(0),
        pid: process.pid,
        name: process.name.clone(),
        registered: process.registered,
        memory_used_bytes: process.used_bytes.clone(),
        deleted_tenant: String::new(),
    }
}

pub(super) fn usage(report: Report) -> v1::GetUsageResponse {
    let unix_ms = |seconds: u64| i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    let rows = report.rows.into_iter();
    v1::GetUsageResponse {
        from_unix_ms: unix_ms(report.from_s),
        to_unix_ms: unix_ms(report.to_s),
        rows: rows
            .map(|(key, figures)| v1::UsageRow {
                key,
                gpu_ns: figures.gpu_ns,
                memory_requested_bytes: figures.requested_bytes,
                memory_peak_bytes: figures.peak_bytes,
                denials: figures.denials,
                throttled_ns: figures.throttled_ns,
            })
            .collect(),
    }
}

pub(super) fn event(event: Event) -> v1::Event {
    let severity = match event.report.severity {
        Severity::Info => v1::event::Severity::Info,
        Severity::Warning => v1::event::Severity::Warning,
        Severity::Error => v1::event::Severity::Error,
    };
    v1::Event {
        number: event.number,
        unix_ms: event.unix_ms,
        severity: severity.into(),
        reason: event.report.reason.clone().into_owned(),
        message: event.report.message,
        container_id: event.report.tenant.unwrap_or_default(),
        gpu_uuid: event.report.gpu.unwrap_or_default(),
        host_pid: event.report.host_pid.unwrap_or(0),
        count: event.count,
    }
}
