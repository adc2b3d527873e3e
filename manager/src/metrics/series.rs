//! All series with name, meaning and labels, and the value that each subject has in them: encoding, documentation and tests use these
//! tables.

mod definition;

use super::rows::{DeviceRow, OnGpu, TenantRow};
use crate::observe::DriverLimit;
use Kind::{Counter, Gauge, Histogram, Info};
use SeriesUnit::{Bytes, Count, Ratio, Seconds};
pub use definition::{Kind, Series, SeriesUnit};
pub(super) use definition::{Value, ratio, seconds, truth, whole};
use definition::{real, series};

const GPU: &[&str] = &["gpu_uuid"];
const ON_GPU: &[&str] = &["gpu_uuid", "namespace", "pod", "container"];
const CONTAINER: &[&str] = &["namespace", "pod", "container"];

/// The manager at a scrape.
pub(super) struct OfManager {
    pub(super) has_inventory_problem: bool,
    pub(super) has_ledger_problem: bool,
    pub(super) snapshot_age_seconds: Option<f64>,
    pub(super) arbiter_age_seconds: Option<f64>,
}

/// A series, and the function of its value; `None`: a subject has none now.
pub(super) struct Row<F> {
    pub(super) series: Series,
    pub(super) value: F,
}

/// A table with a row for each series of the same subjects and labels.
macro_rules! table {
    ($name:ident of $subject:ty, $labels:expr;
     $($kind:ident $stem:literal $unit:ident $help:literal => $value:expr;)*) => {
        pub(super) const $name: &[Row<fn(&$subject) -> Option<Value>>] =
            &[$(Row { series: series($stem, $kind, $unit, $labels, $help), value: $value }),*];
    };
}

pub(super) const GPU_INFO: Series = series(
    "vcuda_gpu",
    Info,
    Count,
    &["gpu_uuid", "name", "driver_version", "pci_bus_id"],
    "The GPU's name, its driver's release and its PCI address",
);
table! { GPUS of OnGpu<'_>, GPU;
    Gauge "vcuda_gpu_memory_total" Bytes "All memory of the GPU" => |of| whole(of.gpu.memory_total_bytes);
    Gauge "vcuda_gpu_memory_used" Bytes "Memory in use by all processes of the host, by NVML"
        => |of| whole(of.gpu.memory_used_bytes);
    Gauge "vcuda_gpu_memory_granted" Bytes
        "Memory granted to tenants; a tenant without a limit counts with all of the GPU" => |of| whole(of.granted.bytes);
    Gauge "vcuda_gpu_cores_granted" Ratio "GPU time guaranteed to tenants; above 1 if more than all is guaranteed"
        => |of| ratio(of.granted.permille);
    Gauge "vcuda_gpu_utilization" Ratio "Part of NVML's last sample in which a kernel ran; absent if NVML does not tell"
        => |of| ratio(of.gpu.utilization_percent?.saturating_mul(10));
    Gauge "vcuda_gpu_shares" Count "Tenants that have the GPU" => |of| whole(of.granted.shares);
    Gauge "vcuda_gpu_healthy" Count "1: new tenants may have the GPU; 0: not, `vcuda events` tells why"
        => |of| truth(of.gpu.health == crate::gpu::Health::Healthy);
    Gauge "vcuda_gpu_cordoned" Count "1: `vcuda gpu cordon` keeps new tenants from the GPU" => |of| truth(of.is_cordoned);
    Gauge "vcuda_audit_unregistered" Bytes "Memory of processes on the GPU that belong to no known tenant"
        => |of| whole(of.unregistered_bytes);
}
pub(super) const XID: Series = series(
    "vcuda_gpu_xid",
    Counter,
    Count,
    &["gpu_uuid", "xid"],
    "Errors that the driver reported, by NVIDIA's number, since the manager started",
);

table! { DEVICES of DeviceRow, ON_GPU;
    Gauge "vcuda_container_memory_limit" Bytes "Memory that the tenant may use; without a limit, all of the GPU"
        => |of| whole(of.limit_bytes);
    Gauge "vcuda_container_memory_used" Bytes "Memory that the tenant uses, contexts included"
        => |of| whole(of.used.used_bytes);
    Gauge "vcuda_container_memory_peak" Bytes "Most memory that the tenant used at once" => |of| whole(of.used.peak_bytes);
    Gauge "vcuda_container_memory_context" Bytes
        "Part of the used memory that the driver itself takes for contexts and modules"
        => |of| whole(of.used.overhead_bytes);
    Gauge "vcuda_container_memory_buffer" Bytes "Part of the used memory that the application asked for"
        => |of| whole(of.used.used_bytes.saturating_sub(of.used.overhead_bytes));
    Gauge "vcuda_container_memory_suspended" Bytes
        "Part of the used memory that is in host memory, as the tenant is suspended" => |of| whole(of.away_bytes);
    Gauge "vcuda_container_cores_limit" Ratio "Part of the GPU's time that the tenant never exceeds"
        => |of| ratio(of.quota.cores_max_permille);
    Gauge "vcuda_container_cores_guarantee" Ratio
        "Part of the GPU's time that the tenant has for sure while it has work; 0: what others leave"
        => |of| ratio(of.quota.reserved_permille());
    Gauge "vcuda_container_cores_used" Ratio "Part of the GPU's time that the tenant had in the last second"
        => |of| ratio(of.used.cores_used_permille);
    Counter "vcuda_container_denied" Count "Allocations refused because of the limit" => |of| whole(of.used.denied);
    Counter "vcuda_container_launches" Count "Kernels and graphs launched" => |of| whole(of.used.launches);
    Counter "vcuda_container_gpu" Seconds "GPU time that the tenant has had" => |of| seconds(of.used.served_ns);
    Counter "vcuda_container_held" Seconds "Time that launches waited for tokens, for their turn or for work to end"
        => |of| seconds(of.used.held_ns);
    Counter "vcuda_container_launches_on_debt" Count
        "Launches that proceeded on debt at the bound of their wait: 1 s, 250 ms for work to end or for several GPUs, \
         less beside work that waits for the host" => |of| whole(of.used.debt_admits);
    Counter "vcuda_container_forgiven" Seconds "GPU time beyond the share that was forgiven, as a debt has a limit"
        => |of| seconds(of.used.forgiven_ns);
    Gauge "vcuda_container_limits_generation" Count "Number of times that the tenant's limits were written"
        => |of| whole(of.limits_generation);
    Gauge "vcuda_audit_over" Bytes "Memory that NVML shows beyond the tenant's limit" => |of| whole(of.over_bytes);
}
pub(super) const QUOTA: Series = series(
    "vcuda_container_quota",
    Info,
    Count,
    &["gpu_uuid", "namespace", "pod", "container", "policy", "priority"],
    "The tenant's policy and priority",
);

table! { TENANTS of TenantRow<'_>, CONTAINER;
    Gauge "vcuda_shim_attached" Count "1: a process of the tenant has registered and sees its limits"
        => |of| truth(of.seen.is_some_and(|tenant| tenant.attached));
    Gauge "vcuda_audit_findings" Count "Findings of the audit that hold now; `vcuda doctor` names them"
        => |of| whole(of.seen.map_or(0, |tenant| tenant.findings.len() as u64));
    Gauge "vcuda_driver_limit" Count "1: the driver itself holds all processes of the tenant to its memory quotas, too"
        => |of| truth(of.seen.is_some_and(|tenant| tenant.driver_limit == DriverLimit::Set));
    Gauge "vcuda_container_processes" Count "Processes of the tenant that use a GPU or have registered"
        => |of| whole(of.seen.map_or(0, |tenant| tenant.processes.len() as u64));
}
pub(super) const STATE: Series = series(
    "vcuda_container_state",
    Gauge,
    Count,
    &["namespace", "pod", "container", "state"],
    "1 for the tenant's state: running, suspending, suspended, resuming, or failed (a process lost its GPU state)",
);

pub(super) const REGISTRATIONS: Series =
    series("vcuda_registrations", Counter, Count, &["result"], "Registrations of processes, by result");
pub(super) const KILLED: Series = series(
    "vcuda_audit_killed",
    Counter,
    Count,
    &[],
    "Processes ended because they used a GPU without their container's limits",
);
pub(super) const SUSPENSIONS: Series = series(
    "vcuda_suspensions",
    Counter,
    Count,
    &["result"],
    "Attempts to suspend a tenant: done, refused (it goes on as before), failed (a process lost its GPU state)",
);
pub(super) const RESUMPTIONS: Series = series(
    "vcuda_resumptions",
    Counter,
    Count,
    &["result"],
    "Attempts to bring a tenant back: done, refused (it stays suspended), failed (a process lost its GPU state)",
);
pub(super) const MADE_ROOM: Series = series(
    "vcuda_suspensions_for_room",
    Counter,
    Count,
    &[],
    "Tenants suspended to make room for others where quotas exceed a GPU's memory",
);
pub(super) const API: Series = series(
    "vcuda_api_duration",
    Histogram,
    Seconds,
    &["method", "code"],
    "Time from a call of the API to its answer",
);
table! { MANAGER of OfManager, &[];
    Gauge "vcuda_inventory_problem" Count
        "1: NVML cannot be used, or not all GPUs can be seen; `vcuda doctor` tells why"
        => |of| truth(of.has_inventory_problem);
    Gauge "vcuda_ledger_problem" Count
        "1: the ledger cannot be written, so that no grant can be made or changed; `vcuda doctor` tells why"
        => |of| truth(of.has_ledger_problem);
    Gauge "vcuda_snapshot_age" Seconds "Time since the last look at the tenants; absent before the first"
        => |of| real(of.snapshot_age_seconds);
    Gauge "vcuda_arbiter_age" Seconds
        "Time since GPU time was last divided among tenants; absent before the first time"
        => |of| real(of.arbiter_age_seconds);
}
pub(super) const BUILD: Series = series(
    "vcuda_build",
    Info,
    Count,
    &["version", "layout"],
    "The manager's version, and that of the layout of limits and usage",
);

/// All series by subject, as docs/generated/metrics.md shows them.
pub fn all() -> [(&'static str, Vec<Series>); 4] {
    fn of<F>(before: &[Series], table: &[Row<F>], after: Series) -> Vec<Series> {
        let rows = table.iter().map(|row| row.series);
        before.iter().copied().chain(rows).chain([after]).collect()
    }
    let counted = [REGISTRATIONS, KILLED, SUSPENSIONS, RESUMPTIONS, MADE_ROOM, API];
    [
        ("GPUs", of(&[GPU_INFO], GPUS, XID)),
        ("Tenants, by GPU", of(&[], DEVICES, QUOTA)),
        ("Tenants", of(&[], TENANTS, STATE)),
        ("The manager", of(&counted, MANAGER, BUILD)),
    ]
}
