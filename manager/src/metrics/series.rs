//! All series with name, meaning and labels. This table is used for encoding, documentation and tests.

mod definition;

use Kind::{Counter, Gauge, Histogram, Info};
use SeriesUnit::{Bytes, Count, Ratio, Seconds};
use definition::series;
pub use definition::{Kind, Series, SeriesUnit};

const GPU: &[&str] = &["gpu_uuid"];
const ON_GPU: &[&str] = &["gpu_uuid", "namespace", "pod", "container"];
const CONTAINER: &[&str] = &["namespace", "pod", "container"];

pub(super) const GPU_INFO: Series = series(
    "vcuda_gpu",
    Info,
    Count,
    &["gpu_uuid", "name", "driver_version", "pci_bus_id"],
    "The GPU's name, its driver's release and its PCI address",
);
pub(super) const MEMORY_TOTAL: Series =
    series("vcuda_gpu_memory_total", Gauge, Bytes, GPU, "All memory of the GPU");
pub(super) const MEMORY_USED: Series =
    series("vcuda_gpu_memory_used", Gauge, Bytes, GPU, "Memory in use by all processes of the host, by NVML");
pub(super) const MEMORY_GRANTED: Series = series(
    "vcuda_gpu_memory_granted",
    Gauge,
    Bytes,
    GPU,
    "Memory granted to tenants; a tenant without a limit counts with all of the GPU",
);
pub(super) const CORES_GRANTED: Series = series(
    "vcuda_gpu_cores_granted",
    Gauge,
    Ratio,
    GPU,
    "GPU time guaranteed to tenants; above 1 if more than all is guaranteed",
);
pub(super) const UTILIZATION: Series = series(
    "vcuda_gpu_utilization",
    Gauge,
    Ratio,
    GPU,
    "Part of NVML's last sample in which a kernel ran; absent if NVML does not tell",
);
pub(super) const SHARES: Series = series("vcuda_gpu_shares", Gauge, Count, GPU, "Tenants that have the GPU");
pub(super) const HEALTHY: Series = series(
    "vcuda_gpu_healthy",
    Gauge,
    Count,
    GPU,
    "1: new tenants may have the GPU; 0: not, `vcuda events` tells why",
);
pub(super) const XID: Series = series(
    "vcuda_gpu_xid",
    Counter,
    Count,
    &["gpu_uuid", "xid"],
    "Errors that the driver reported, by NVIDIA's number, since the manager started",
);
pub(super) const AUDIT_UNREGISTERED: Series = series(
    "vcuda_audit_unregistered",
    Gauge,
    Bytes,
    GPU,
    "Memory of processes on the GPU that belong to no known tenant",
);

pub(super) const LIMIT: Series = series(
    "vcuda_container_memory_limit",
    Gauge,
    Bytes,
    ON_GPU,
    "Memory that the tenant may use; without a limit, all of the GPU",
);
pub(super) const USED: Series = series(
    "vcuda_container_memory_used",
    Gauge,
    Bytes,
    ON_GPU,
    "Memory that the tenant uses, contexts included",
);
pub(super) const PEAK: Series =
    series("vcuda_container_memory_peak", Gauge, Bytes, ON_GPU, "Most memory that the tenant used at once");
pub(super) const CONTEXT: Series = series(
    "vcuda_container_memory_context",
    Gauge,
    Bytes,
    ON_GPU,
    "Part of the used memory that the driver itself takes for contexts and modules",
);
pub(super) const BUFFER: Series = series(
    "vcuda_container_memory_buffer",
    Gauge,
    Bytes,
    ON_GPU,
    "Part of the used memory that the application asked for",
);
pub(super) const SUSPENDED: Series = series(
    "vcuda_container_memory_suspended",
    Gauge,
    Bytes,
    ON_GPU,
    "Part of the used memory that is in host memory, as the tenant is suspended",
);
pub(super) const CORES_LIMIT: Series = series(
    "vcuda_container_cores_limit",
    Gauge,
    Ratio,
    ON_GPU,
    "Part of the GPU's time that the tenant never exceeds",
);
pub(super) const CORES_GUARANTEE: Series = series(
    "vcuda_container_cores_guarantee",
    Gauge,
    Ratio,
    ON_GPU,
    "Part of the GPU's time that the tenant has for sure while it has work; 0: what others leave",
);
pub(super) const QUOTA: Series = series(
    "vcuda_container_quota",
    Info,
    Count,
    &["gpu_uuid", "namespace", "pod", "container", "policy", "priority"],
    "The tenant's policy and priority",
);
pub(super) const CORES_USED: Series = series(
    "vcuda_container_cores_used",
    Gauge,
    Ratio,
    ON_GPU,
    "Part of the GPU's time that the tenant had in the last second",
);
pub(super) const DENIED: Series =
    series("vcuda_container_denied", Counter, Count, ON_GPU, "Allocations refused because of the limit");
pub(super) const LAUNCHES: Series =
    series("vcuda_container_launches", Counter, Count, ON_GPU, "Kernels and graphs launched");
pub(super) const GPU_SECONDS: Series =
    series("vcuda_container_gpu", Counter, Seconds, ON_GPU, "GPU time that the tenant has had");
pub(super) const HELD: Series = series(
    "vcuda_container_held",
    Counter,
    Seconds,
    ON_GPU,
    "Time that launches waited for tokens, for their turn or for work to end",
);
pub(super) const ON_DEBT: Series = series(
    "vcuda_container_launches_on_debt",
    Counter,
    Count,
    ON_GPU,
    "Launches that proceeded on debt at the bound of their wait: 1 s, 250 ms for work to end or for several GPUs, \
     less beside work that waits for the host",
);
pub(super) const FORGIVEN: Series = series(
    "vcuda_container_forgiven",
    Counter,
    Seconds,
    ON_GPU,
    "GPU time beyond the share that was forgiven, as a debt has a limit",
);
pub(super) const GENERATION: Series = series(
    "vcuda_container_limits_generation",
    Gauge,
    Count,
    ON_GPU,
    "Number of times that the tenant's limits were written",
);
pub(super) const AUDIT_OVER: Series =
    series("vcuda_audit_over", Gauge, Bytes, ON_GPU, "Memory that NVML shows beyond the tenant's limit");
pub(super) const ATTACHED: Series = series(
    "vcuda_shim_attached",
    Gauge,
    Count,
    CONTAINER,
    "1: a process of the tenant has registered and sees its limits",
);
pub(super) const FINDINGS: Series = series(
    "vcuda_audit_findings",
    Gauge,
    Count,
    CONTAINER,
    "Findings of the audit that hold now; `vcuda doctor` names them",
);
pub(super) const PROCESSES: Series = series(
    "vcuda_container_processes",
    Gauge,
    Count,
    CONTAINER,
    "Processes of the tenant that use a GPU or have registered",
);

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
pub(super) const INVENTORY_PROBLEM: Series = series(
    "vcuda_inventory_problem",
    Gauge,
    Count,
    &[],
    "1: NVML cannot be used, or not all GPUs can be seen; `vcuda doctor` tells why",
);
pub(super) const LEDGER_PROBLEM: Series = series(
    "vcuda_ledger_problem",
    Gauge,
    Count,
    &[],
    "1: the ledger cannot be written, so that no grant can be made or changed; `vcuda doctor` tells why",
);
pub(super) const SNAPSHOT_AGE: Series = series(
    "vcuda_snapshot_age",
    Gauge,
    Seconds,
    &[],
    "Time since the last look at the tenants; absent before the first",
);
pub(super) const ARBITER_AGE: Series = series(
    "vcuda_arbiter_age",
    Gauge,
    Seconds,
    &[],
    "Time since GPU time was last divided among tenants; absent before the first time",
);
pub(super) const BUILD: Series = series(
    "vcuda_build",
    Info,
    Count,
    &["version", "layout"],
    "The manager's version, and that of the layout of limits and usage",
);

/// All series by subject, as docs/metrics.md shows them.
pub const ALL: &[(&str, &[Series])] = &[
    (
        "GPUs",
        &[
            GPU_INFO,
            MEMORY_TOTAL,
            MEMORY_USED,
            MEMORY_GRANTED,
            CORES_GRANTED,
            UTILIZATION,
            SHARES,
            HEALTHY,
            XID,
            AUDIT_UNREGISTERED,
        ],
    ),
    (
        "Tenants, by GPU",
        &[
            LIMIT,
            USED,
            PEAK,
            CONTEXT,
            BUFFER,
            SUSPENDED,
            CORES_LIMIT,
            CORES_GUARANTEE,
            CORES_USED,
            QUOTA,
            DENIED,
            LAUNCHES,
            GPU_SECONDS,
            HELD,
            ON_DEBT,
            FORGIVEN,
            GENERATION,
            AUDIT_OVER,
        ],
    ),
    ("Tenants", &[ATTACHED, FINDINGS, PROCESSES, STATE]),
    (
        "The manager",
        &[
            REGISTRATIONS,
            KILLED,
            SUSPENSIONS,
            RESUMPTIONS,
            MADE_ROOM,
            API,
            INVENTORY_PROBLEM,
            LEDGER_PROBLEM,
            SNAPSHOT_AGE,
            ARBITER_AGE,
            BUILD,
        ],
    ),
];
