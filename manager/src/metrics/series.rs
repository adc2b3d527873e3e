//! Every series: name, meaning, labels. The table is what is encoded, documented, and checked.

use prometheus_client::registry::Unit;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only up, from the making of the container (or of the manager).
    Counter,
    /// A distribution.
    Histogram,
    /// 1, for its labels.
    Info,
}

/// Unit, which ends the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A number.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// 0 to 1.
    Ratio,
}

/// One series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// Without what unit and kind add.
    pub stem: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Of what.
    pub of: Of,
    /// A sentence without a full stop.
    pub help: &'static str,
    /// Beside `node`.
    pub labels: &'static [&'static str],
}

const GPU: &[&str] = &["gpu_uuid"];
const ON_GPU: &[&str] = &["gpu_uuid", "namespace", "pod", "container"];
const CONTAINER: &[&str] = &["namespace", "pod", "container"];

const fn series(
    stem: &'static str,
    kind: Kind,
    of: Of,
    labels: &'static [&'static str],
    help: &'static str,
) -> Series {
    Series {
        stem,
        kind,
        of,
        help,
        labels,
    }
}

use Kind::{Counter, Gauge, Histogram, Info};
use Of::{Bytes, Count, Ratio, Seconds};

pub(super) const GPU_INFO: Series = series(
    "vcuda_gpu",
    Info,
    Count,
    &["gpu_uuid", "name", "driver_version", "pci_bus_id"],
    "The GPU's name, its driver's release and its place",
);
pub(super) const MEMORY_TOTAL: Series = series(
    "vcuda_gpu_memory_total",
    Gauge,
    Bytes,
    GPU,
    "All memory of the GPU",
);
pub(super) const MEMORY_USED: Series = series(
    "vcuda_gpu_memory_used",
    Gauge,
    Bytes,
    GPU,
    "Memory in use by all processes of the host, as NVML says",
);
pub(super) const MEMORY_GRANTED: Series = series(
    "vcuda_gpu_memory_granted",
    Gauge,
    Bytes,
    GPU,
    "Memory promised to containers; a container without a limit counts with all of the GPU",
);
pub(super) const CORES_GRANTED: Series = series(
    "vcuda_gpu_cores_granted",
    Gauge,
    Ratio,
    GPU,
    "GPU time promised to containers; 1 also where more than all is promised",
);
pub(super) const UTILIZATION: Series = series(
    "vcuda_gpu_utilization",
    Gauge,
    Ratio,
    GPU,
    "Part of NVML's last sample in which a kernel ran; absent where NVML does not tell",
);
pub(super) const SHARES: Series = series(
    "vcuda_gpu_shares",
    Gauge,
    Count,
    GPU,
    "Containers that have the GPU",
);
pub(super) const HEALTHY: Series = series(
    "vcuda_gpu_healthy",
    Gauge,
    Count,
    GPU,
    "1: new containers may have the GPU; 0: not, `vcuda events` says why",
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
    "Memory of processes on the GPU that belong to no container known here",
);

pub(super) const LIMIT: Series = series(
    "vcuda_container_memory_limit",
    Gauge,
    Bytes,
    ON_GPU,
    "Memory that the container may use; without a limit, all of the GPU",
);
pub(super) const USED: Series = series(
    "vcuda_container_memory_used",
    Gauge,
    Bytes,
    ON_GPU,
    "Memory that the container uses, contexts included",
);
pub(super) const PEAK: Series = series(
    "vcuda_container_memory_peak",
    Gauge,
    Bytes,
    ON_GPU,
    "Most memory that it used at once",
);
pub(super) const CONTEXT: Series = series(
    "vcuda_container_memory_context",
    Gauge,
    Bytes,
    ON_GPU,
    "Of the memory used, what the driver takes itself for contexts and modules",
);
pub(super) const BUFFER: Series = series(
    "vcuda_container_memory_buffer",
    Gauge,
    Bytes,
    ON_GPU,
    "Of the memory used, what the application asked for",
);
pub(super) const CORES_LIMIT: Series = series(
    "vcuda_container_cores_limit",
    Gauge,
    Ratio,
    ON_GPU,
    "Part of the GPU's time that the container never exceeds",
);
pub(super) const CORES_USED: Series = series(
    "vcuda_container_cores_used",
    Gauge,
    Ratio,
    ON_GPU,
    "Part of the GPU's time that it had in the last second",
);
pub(super) const DENIED: Series = series(
    "vcuda_container_denied",
    Counter,
    Count,
    ON_GPU,
    "Allocations refused because of the limit",
);
pub(super) const LAUNCHES: Series = series(
    "vcuda_container_launches",
    Counter,
    Count,
    ON_GPU,
    "Kernels and graphs launched",
);
pub(super) const GPU_SECONDS: Series = series(
    "vcuda_container_gpu",
    Counter,
    Seconds,
    ON_GPU,
    "GPU time that the container has had",
);
pub(super) const HELD: Series = series(
    "vcuda_container_held",
    Counter,
    Seconds,
    ON_GPU,
    "Time for which launches were held back for the container's share",
);
pub(super) const ON_DEBT: Series = series(
    "vcuda_container_launches_on_debt",
    Counter,
    Count,
    ON_GPU,
    "Launches that went ahead on debt after they had been held for a second",
);
pub(super) const FORGIVEN: Series = series(
    "vcuda_container_forgiven",
    Counter,
    Count,
    ON_GPU,
    "Seconds of GPU time beyond the share that were forgiven, because a debt has a limit",
);
pub(super) const GENERATION: Series = series(
    "vcuda_container_limits_generation",
    Gauge,
    Count,
    ON_GPU,
    "How often the container's limits were written",
);
pub(super) const AUDIT_OVER: Series = series(
    "vcuda_audit_over",
    Gauge,
    Bytes,
    ON_GPU,
    "Memory that NVML shows beyond the container's limit",
);
pub(super) const ATTACHED: Series = series(
    "vcuda_shim_attached",
    Gauge,
    Count,
    CONTAINER,
    "1: a process of the container has registered and sees its limits",
);
pub(super) const FINDINGS: Series = series(
    "vcuda_audit_findings",
    Gauge,
    Count,
    CONTAINER,
    "Findings of the audit that hold now; `vcuda doctor` says which",
);
pub(super) const PROCESSES: Series = series(
    "vcuda_container_processes",
    Gauge,
    Count,
    CONTAINER,
    "Processes of the container that use a GPU or have registered",
);

pub(super) const REGISTRATIONS: Series = series(
    "vcuda_registrations",
    Counter,
    Count,
    &["result"],
    "Registrations of processes by how they ended",
);
pub(super) const KILLED: Series = series(
    "vcuda_audit_killed",
    Counter,
    Count,
    &[],
    "Processes that used a GPU without their container's limits, and were ended for it",
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
    "1: NVML cannot be used, or not all GPUs can be seen; `vcuda doctor` says why",
);
pub(super) const SNAPSHOT_AGE: Series = series(
    "vcuda_snapshot_age",
    Gauge,
    Seconds,
    &[],
    "Time since the containers were looked at; absent before the first look",
);
pub(super) const ARBITER_AGE: Series = series(
    "vcuda_arbiter_age",
    Gauge,
    Seconds,
    &[],
    "Time since GPU time was last divided among containers; absent while another program does that",
);
pub(super) const BUILD: Series = series(
    "vcuda_build",
    Info,
    Count,
    &["version", "layout"],
    "The manager's version, and that of the layout of limits and usage",
);

/// All of them, as docs/metrics.md shows them: what, and the series.
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
        "Containers, by GPU",
        &[
            LIMIT,
            USED,
            PEAK,
            CONTEXT,
            BUFFER,
            CORES_LIMIT,
            CORES_USED,
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
    ("Containers", &[ATTACHED, FINDINGS, PROCESSES]),
    (
        "The manager",
        &[
            REGISTRATIONS,
            KILLED,
            API,
            INVENTORY_PROBLEM,
            SNAPSHOT_AGE,
            ARBITER_AGE,
            BUILD,
        ],
    ),
];

impl Series {
    /// As Prometheus stores it (a histogram: without `_bucket`, `_sum`, `_count`).
    #[must_use]
    pub fn name(&self) -> String {
        let unit = match self.of {
            Count => "",
            Bytes => "_bytes",
            Seconds => "_seconds",
            Ratio => "_ratio",
        };
        let kind = match self.kind {
            Gauge | Histogram => "",
            Counter => "_total",
            Info => "_info",
        };
        format!("{}{unit}{kind}", self.stem)
    }

    /// All names under which it is stored.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let name = self.name();
        match self.kind {
            Histogram => ["_bucket", "_sum", "_count"]
                .iter()
                .map(|end| format!("{name}{end}"))
                .collect(),
            Gauge | Counter | Info => vec![name],
        }
    }

    pub(super) fn unit(&self) -> Option<Unit> {
        match self.of {
            Count => None,
            Bytes => Some(Unit::Bytes),
            Seconds => Some(Unit::Seconds),
            Ratio => Some(Unit::Other("ratio".to_owned())),
        }
    }
}
