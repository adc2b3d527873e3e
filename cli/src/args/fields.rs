//! Form and fields of the queries, by nvidia-smi's names, with their units.

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use vcuda_quota::CoreShare;

use crate::render::words::{exact_watts, tenths, timestamp};
use crate::render::{GpuView, ProcessView, Snapshot, TenantView};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CsvFormat {
    pub(crate) is_headless: bool,
    pub(crate) is_unitless: bool,
}

impl FromStr for CsvFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut format = CsvFormat::default();
        let mut words = text.split(',').map(str::trim);
        let is_csv = words.next() == Some("csv");
        for word in words {
            match word {
                "noheader" => format.is_headless = true,
                "nounits" => format.is_unitless = true,
                _ => return Err(format!("{word}: write csv, csv,noheader or csv,noheader,nounits")),
            }
        }
        is_csv.then_some(format).ok_or_else(|| "write csv, csv,noheader or csv,noheader,nounits".to_owned())
    }
}

/// What a line of a query tells of.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) gpu: &'a GpuView,
    pub(crate) tenant: Option<&'a TenantView>,
    pub(crate) process: Option<&'a ProcessView>,
}

/// A figure of a query.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    alias: &'static str,
    /// Unit, empty if there is none.
    pub(crate) unit: &'static str,
    help: &'static str,
    /// Its text; `None` if NVML does not tell it.
    pub(crate) text: fn(&Subject<'_>) -> Option<String>,
}

const fn field(
    name: &'static str,
    alias: &'static str,
    unit: &'static str,
    help: &'static str,
    text: fn(&Subject<'_>) -> Option<String>,
) -> Field {
    Field { name, alias, unit, help, text }
}

/// Parser of the name of one of these fields.
pub(super) fn one_of(fields: &'static [Field]) -> impl TypedValueParser<Value = &'static Field> {
    let shown = |field: &Field| PossibleValue::new(field.name).help(field.help).aliases(field.aliases());
    PossibleValuesParser::new(fields.iter().map(shown)).try_map(move |name| {
        let is_it = |field: &&Field| field.name == name || field.aliases() == Some(&*name);
        fields.iter().find(is_it).ok_or("no such field")
    })
}

impl Field {
    fn aliases(&self) -> Option<&'static str> {
        Some(self.alias).filter(|alias| !alias.is_empty())
    }

    /// Whether it needs the share of GPU time of the last second.
    pub(crate) fn needs_share(&self) -> bool {
        ["cores.used", "state"].contains(&self.name)
    }
}

fn mib(bytes: u64) -> Option<String> {
    Some((bytes >> 20).to_string())
}

fn number(number: Option<u32>) -> Option<String> {
    number.map(|number| number.to_string())
}

fn percent(permille: u32) -> Option<String> {
    Some(CoreShare(permille).percent())
}

const TIMESTAMP: Field = field("timestamp", "", "", "Time of the machine", |_| Some(timestamp()));

/// Figures of a GPU.
#[rustfmt::skip]
pub(crate) static GPU: &[Field] = &[
    TIMESTAMP,
    field("index", "", "", "Index, for people", |of| Some(of.gpu.index.to_string())),
    field("count", "", "", "Number of GPUs", |of| Some(of.snapshot.gpus.len().to_string())),
    field("name", "gpu_name", "", "Product name", |of| Some(of.gpu.name.clone())),
    field("uuid", "gpu_uuid", "", "UUID", |of| Some(of.gpu.uuid.clone())),
    field("driver_version", "", "", "Version of the driver", |of| of.snapshot.driver_version.clone()),
    field("pci.bus_id", "gpu_bus_id", "", "PCI address", |of| of.gpu.pci_bus_id.clone()),
    field("compute_cap", "", "", "Compute capability", |of| of.gpu.compute_capability.clone()),
    field("cuda_version", "", "", "Newest CUDA version that the driver supports",
        |of| of.snapshot.cuda_version.clone()),
    field("utilization.gpu", "", "%", "Time in which a kernel ran", |of| number(of.gpu.utilization_percent)),
    field("utilization.memory", "", "%", "Time in which the memory was read or written",
        |of| number(of.gpu.memory_utilization_percent)),
    field("temperature.gpu", "", "", "Temperature in degrees Celsius",
        |of| number(of.gpu.temperature_celsius)),
    field("power.draw", "", "W", "Power draw", |of| of.gpu.power_draw_mw.map(exact_watts)),
    field("power.limit", "", "W", "Power limit", |of| of.gpu.power_limit_mw.map(exact_watts)),
    field("memory.total", "", "MiB", "Total memory", |of| mib(of.gpu.memory_total_bytes)),
    field("memory.used", "", "MiB", "Used memory", |of| mib(of.gpu.memory_used_bytes)),
    field("memory.free", "", "MiB", "Free memory",
        |of| mib(of.gpu.memory_total_bytes.saturating_sub(of.gpu.memory_used_bytes))),
    field("memory.granted", "", "MiB", "Memory granted to tenants", |of| mib(of.gpu.memory_granted_bytes)),
    field("time.granted", "", "%", "GPU time guaranteed to tenants",
        |of| percent(of.gpu.cores_granted_permille)),
];

/// Figures of a process on a GPU.
#[rustfmt::skip]
pub(crate) static PROCESS: &[Field] = &[
    TIMESTAMP,
    field("gpu_name", "", "", "Product name of the GPU", |of| Some(of.gpu.name.clone())),
    field("gpu_uuid", "", "", "UUID of the GPU", |of| Some(of.gpu.uuid.clone())),
    field("pid", "", "", "PID, by the host where it can be seen", |of| Some(of.process?.pid.to_string())),
    field("process_name", "name", "", "Name of the command", |of| Some(of.process?.name.clone())),
    field("used_gpu_memory", "used_memory", "MiB", "Used memory", |of| mib(of.process?.memory_used_bytes?)),
];

/// Figures of a tenant on a GPU.
#[rustfmt::skip]
pub(crate) static TENANT: &[Field] = &[
    TIMESTAMP,
    field("name", "", "", "Name", |of| Some(of.tenant?.name.clone())),
    field("holder", "", "", "Namespace, pod and container", |of| of.tenant?.holder.clone()),
    field("gpu_uuid", "", "", "UUID of the GPU", |of| Some(of.gpu.uuid.clone())),
    field("memory.limit", "", "MiB", "Memory quota", |of| mib(of.tenant?.memory_limit_bytes)),
    field("memory.used", "", "MiB", "Used memory", |of| mib(of.tenant?.memory_used_bytes)),
    field("memory.suspended", "", "MiB", "Part of the used memory that is in host memory, as the tenant is suspended",
        |of| mib(of.tenant?.suspended_bytes)),
    field("cores.limit", "", "%", "Maximum share of GPU time", |of| percent(of.tenant?.core_limit_permille)),
    field("cores.used", "", "%", "Share of GPU time over the last second",
        |of| Some(tenths(of.tenant?.core_used_permille))),
    field("policy", "", "", "Policy", |of| Some(of.tenant?.policy.clone())),
    field("state", "", "", "running, idle (its processes hold memory), empty (no process does), or suspending, suspended, resuming, failed",
        |of| Some(of.tenant?.activity().to_owned())),
    field("processes", "", "", "Number of processes", |of| Some(of.tenant?.processes.len().to_string())),
    field("denied", "", "", "Denied allocations", |of| Some(of.tenant?.memory_denied.to_string())),
];
