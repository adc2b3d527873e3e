//! Snapshots of GPUs, tenants and processes: as JSON, and as a table of the terminal's width.

pub(crate) mod columns;
mod overview;
pub(crate) mod quota;
pub(crate) mod temporary;
pub(crate) mod words;

use serde::Serialize;
use vcuda_driver_open::Readings;
use vcuda_manager_api::v1::SuspendState;
use vcuda_quota::{Priority, Quota};

pub(crate) use overview::{command, overview, time};
pub use words::clipped;

/// Width of tables where nothing tells another one (columns).
pub const WIDTH: usize = 80;

/// Text table of a snapshot, 80 columns wide, with colour if `is_terminal`.
pub fn table(snapshot: &Snapshot, is_terminal: bool) -> String {
    overview(snapshot, Look { width: WIDTH, is_colored: is_terminal, has_uuids: false })
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) width: usize,
    /// Whether load is shown by colour.
    pub(crate) is_colored: bool,
    pub(crate) has_uuids: bool,
}

/// JSON form of `vcuda smi`. The keys are stable for other programs.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Driver version, if NVML tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) driver_version: Option<String>,
    /// The newest CUDA version that the driver supports, if NVML tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cuda_version: Option<String>,
    /// GPUs by index.
    pub gpus: Vec<GpuView>,
    /// Whether a manager that knows all tenants has ended.
    #[serde(skip)]
    pub(crate) is_manager_down: bool,
}

impl Snapshot {
    /// A snapshot of these GPUs, their tenants in natural order.
    pub(crate) fn of(mut gpus: Vec<GpuView>) -> Snapshot {
        for gpu in &mut gpus {
            gpu.tenants.sort_by(|one, other| words::natural(&one.name, &other.name));
            // The two figures are read at different moments.
            for tenant in &mut gpu.tenants {
                let largest = tenant.processes.iter().filter_map(|process| process.memory_used_bytes);
                tenant.memory_used_bytes = tenant.memory_used_bytes.max(largest.max().unwrap_or(0));
            }
        }
        Snapshot { driver_version: None, cuda_version: None, gpus, is_manager_down: false }
    }
}

/// A GPU and the tenants with a quota on it.
#[derive(Clone, Debug, Serialize)]
pub struct GpuView {
    /// Index in NVML's order, for people.
    #[serde(skip)]
    pub(crate) index: usize,
    /// UUID, `GPU-...`.
    pub uuid: String,
    pub(crate) name: String,
    pub(crate) memory_total_bytes: u64,
    pub(crate) memory_used_bytes: u64,
    /// Memory granted to tenants (bytes).
    pub(crate) memory_granted_bytes: u64,
    /// GPU time guaranteed to tenants (thousandths).
    pub(crate) cores_granted_permille: u32,
    /// Readings of its sensors; `null` in JSON if NVML does not tell.
    pub(crate) utilization_percent: Option<u32>,
    pub(crate) memory_utilization_percent: Option<u32>,
    pub(crate) temperature_celsius: Option<u32>,
    pub(crate) power_draw_mw: Option<u32>,
    pub(crate) power_limit_mw: Option<u32>,
    /// Such as `9.0`.
    #[serde(skip)]
    pub(crate) compute_capability: Option<String>,
    /// As nvidia-smi writes it, such as `00000000:3A:00.0`.
    #[serde(skip)]
    pub(crate) pci_bus_id: Option<String>,
    /// Tenants by name.
    pub tenants: Vec<TenantView>,
    /// Why it gets no new tenants, if a manager says so. Programs have this from `vcuda gpu list --json`.
    #[serde(skip)]
    pub(crate) closed: Option<String>,
    /// Processes that use the GPU and belong to no tenant shown here.
    pub(crate) outside_processes: Vec<ProcessView>,
}

impl GpuView {
    pub(crate) fn new(index: usize, uuid: &str, name: &str) -> GpuView {
        GpuView {
            index,
            uuid: uuid.to_owned(),
            name: name.to_owned(),
            memory_total_bytes: 0,
            memory_used_bytes: 0,
            memory_granted_bytes: 0,
            cores_granted_permille: 0,
            utilization_percent: None,
            memory_utilization_percent: None,
            temperature_celsius: None,
            power_draw_mw: None,
            power_limit_mw: None,
            compute_capability: None,
            pci_bus_id: None,
            tenants: Vec::new(),
            closed: None,
            outside_processes: Vec::new(),
        }
    }

    /// Adds a tenant's quota to what is granted. A tenant without a memory limit was promised no memory.
    pub(crate) fn grant(&mut self, quota: &Quota) {
        let (bytes, permille) = (quota.memory_bytes.unwrap_or(0), quota.reserved_permille());
        self.memory_granted_bytes = self.memory_granted_bytes.saturating_add(bytes);
        self.cores_granted_permille = self.cores_granted_permille.saturating_add(permille);
    }

    /// Takes over the readings of the GPU's sensors.
    pub(crate) fn show_readings(&mut self, readings: Readings) {
        self.utilization_percent = readings.utilization_percent;
        self.memory_utilization_percent = readings.memory_utilization_percent;
        self.temperature_celsius = readings.temperature_celsius;
        self.power_draw_mw = readings.power_draw_mw;
        self.power_limit_mw = readings.power_limit_mw;
        self.compute_capability =
            readings.compute_capability.map(|[major, minor]| format!("{major}.{minor}"));
        self.pci_bus_id = readings
            .pci_address
            .map(|[domain, bus, device]| format!("{domain:08X}:{bus:02X}:{device:02X}.0"));
    }
}

/// Quota and use of a tenant on one GPU.
#[derive(Clone, Debug, Serialize)]
pub struct TenantView {
    /// Name given by `vcuda run --name` or by its grant.
    pub name: String,
    /// Owner of a granted tenant, as `namespace/pod/container`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder: Option<String>,
    /// Memory limit (bytes).
    pub memory_limit_bytes: u64,
    /// Memory of all its processes (bytes).
    pub memory_used_bytes: u64,
    /// State: `running`, `suspending`, `suspended`, `resuming` or `failed`.
    pub(crate) state: &'static str,
    /// Part of `memory_used_bytes` that is in host memory, as the tenant is suspended (bytes).
    pub(crate) suspended_bytes: u64,
    /// Number of denied allocations since the tenant began.
    pub(crate) memory_denied: u64,
    /// Number of allocations within the quota that the driver refused, since the tenant began.
    pub(crate) room_denied: u32,
    /// Whether the driver itself holds its processes to the quota, too.
    pub(crate) held_by_driver: bool,
    /// Maximum share of GPU time (thousandths).
    pub core_limit_permille: u32,
    /// Guaranteed share of GPU time (thousandths). `fixed` with all of the time is none: it has what is left.
    pub(crate) core_guarantee_permille: u32,
    /// Share used over the last second (thousandths).
    pub core_used_permille: u32,
    /// GPU time used since the tenant began (s).
    pub(crate) gpu_seconds: f64,
    /// Number of copies between host and GPU since the tenant began, if its GPU time is metered. They are not charged.
    pub(crate) host_copies: u64,
    pub(crate) host_copied_bytes: u64,
    pub(crate) policy: String,
    /// Weight for time beyond the guarantees.
    pub(crate) weight: u32,
    pub(crate) priority: String,
    /// Whether weight or priority was chosen; both are then shown in the table.
    #[serde(skip)]
    pub(crate) is_ranked: bool,
    /// How long the quota holds, if not for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) temporary: Option<temporary::Temporary>,
    pub(crate) processes: Vec<ProcessView>,
}

impl TenantView {
    /// A tenant with this quota and no use; `memory_limit_bytes` is the quota's memory on this GPU.
    pub(crate) fn unused(name: &str, quota: &Quota, memory_limit_bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            holder: None,
            memory_limit_bytes,
            memory_used_bytes: 0,
            state: state_name(SuspendState::Running),
            suspended_bytes: 0,
            memory_denied: 0,
            room_denied: 0,
            held_by_driver: false,
            core_limit_permille: quota.cores_max_permille,
            core_guarantee_permille: quota.reserved_permille(),
            core_used_permille: 0,
            gpu_seconds: 0.0,
            host_copies: 0,
            host_copied_bytes: 0,
            policy: quota.policy.to_string(),
            weight: quota.weight(),
            priority: quota.priority.to_string(),
            is_ranked: quota.weight.is_some_and(|weight| weight != quota.cores_permille)
                || quota.priority != Priority::Normal,
            temporary: None,
            processes: Vec::new(),
        }
    }

    /// What it does, in a word.
    pub(crate) fn activity(&self) -> &'static str {
        if self.suspension().is_some() {
            self.state
        } else if self.core_used_permille > 0 {
            "running"
        } else if self.processes.is_empty() {
            "empty"
        } else {
            "idle"
        }
    }

    /// Text for a tenant that does not run, such as `suspended: 582MiB in host memory`.
    pub(crate) fn suspension(&self) -> Option<String> {
        match self.state {
            "running" => None,
            "failed" => Some("failed: a process lost its GPU state; end its processes".to_owned()),
            state if self.suspended_bytes == 0 => Some(state.to_owned()),
            state => Some(format!("{state}: {} in host memory", words::mib(self.suspended_bytes))),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProcessView {
    pub(crate) pid: u32,
    /// Name of the command, from the kernel.
    pub(crate) name: String,
    /// Owner of the process, if it can be seen from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Command line, if it can be seen from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// Whether `pid` is the one in a container, as the host's is not known.
    #[serde(rename = "in_container", skip_serializing_if = "is_false")]
    pub(crate) is_in_container: bool,
    /// Memory (bytes); `None` if NVML does not tell it.
    pub(crate) memory_used_bytes: Option<u64>,
}

/// Name of a state, as `vcuda smi --json` has it.
pub(crate) fn state_name(state: SuspendState) -> &'static str {
    match state {
        SuspendState::Unspecified | SuspendState::Running => "running",
        SuspendState::Suspending => "suspending",
        SuspendState::Suspended => "suspended",
        SuspendState::Resuming => "resuming",
        SuspendState::Failed => "failed",
    }
}

/// GPU time in seconds with milliseconds.
pub(crate) fn seconds_of(ns: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "2^53 ms are 285,000 years")]
    let ms = (ns / 1_000_000) as f64;
    ms / 1000.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests;
