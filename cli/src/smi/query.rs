//! `vcuda smi --query-gpu`, `--query-compute-apps` and `--query-tenants`: chosen figures as CSV, with nvidia-smi's names and units.

use vcuda_quota::CoreShare;

use crate::args::fields::{CsvFormat, GpuField, ProcessField, Queried, TenantField};
use crate::render::words::{exact_watts, tenths};
use crate::render::{GpuView, ProcessView, Snapshot, TenantView};

/// A figure's text and unit.
#[derive(Debug)]
enum Figure {
    Text(String),
    Measure(String, &'static str),
    /// NVML does not tell it.
    Unknown,
}

pub(crate) fn gpus(snapshot: &Snapshot, fields: &[GpuField], format: CsvFormat) -> String {
    let rows = snapshot
        .gpus
        .iter()
        .map(|gpu| fields.iter().map(|field| gpu_figure(*field, gpu, snapshot)).collect());
    csv(fields, rows, format)
}

/// CSV of tenants, by GPU.
pub(crate) fn tenants(snapshot: &Snapshot, fields: &[TenantField], format: CsvFormat) -> String {
    let of = |gpu: &GpuView, tenant: &TenantView| {
        fields.iter().map(|field| tenant_figure(*field, gpu, tenant)).collect()
    };
    let rows = snapshot.gpus.iter().flat_map(|gpu| gpu.tenants.iter().map(move |tenant| of(gpu, tenant)));
    csv(fields, rows, format)
}

/// CSV of processes, by GPU: those of tenants, then those of none.
pub(crate) fn processes(snapshot: &Snapshot, fields: &[ProcessField], format: CsvFormat) -> String {
    let rows = snapshot.gpus.iter().flat_map(|gpu| {
        let of_tenants = gpu.tenants.iter().flat_map(|tenant| &tenant.processes);
        let all = of_tenants.chain(&gpu.outside_processes);
        all.map(move |process| fields.iter().map(|field| process_figure(*field, gpu, process)).collect())
    });
    csv(fields, rows, format)
}

fn csv<F: Queried>(fields: &[F], rows: impl Iterator<Item = Vec<Figure>>, format: CsvFormat) -> String {
    let mut text = String::new();
    if !format.is_headless {
        let titles: Vec<String> = fields.iter().map(|field| field.title()).collect();
        text.push_str(&titles.join(", "));
        text.push('\n');
    }
    for row in rows {
        let figures: Vec<String> = row.iter().map(|figure| figure.text(format)).collect();
        text.push_str(&figures.join(", "));
        text.push('\n');
    }
    text
}

impl Figure {
    fn text(&self, format: CsvFormat) -> String {
        match self {
            // Names come from other users: a line stays a line.
            Figure::Text(text) => text.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
            Figure::Measure(value, unit) if !format.is_unitless => format!("{value} {unit}"),
            Figure::Measure(value, _) => value.clone(),
            Figure::Unknown => "[N/A]".to_owned(),
        }
    }
}

fn mib(bytes: u64) -> Figure {
    Figure::Measure((bytes >> 20).to_string(), "MiB")
}

fn text(text: impl Into<String>) -> Figure {
    Figure::Text(text.into())
}

fn percent(text: String) -> Figure {
    Figure::Measure(text, "%")
}

fn share(of_time: Option<u32>) -> Figure {
    of_time.map_or(Figure::Unknown, |of_time| percent(of_time.to_string()))
}

fn watts(milliwatts: Option<u32>) -> Figure {
    milliwatts.map_or(Figure::Unknown, |mw| Figure::Measure(exact_watts(mw), "W"))
}

fn gpu_figure(field: GpuField, gpu: &GpuView, snapshot: &Snapshot) -> Figure {
    let known = |version: &Option<String>| version.clone().map_or(Figure::Unknown, Figure::Text);
    match field {
        GpuField::Timestamp => text(timestamp()),
        GpuField::Index => text(gpu.index.to_string()),
        GpuField::Count => text(snapshot.gpus.len().to_string()),
        GpuField::Name => text(&gpu.name),
        GpuField::Uuid => text(&gpu.uuid),
        GpuField::DriverVersion => known(&snapshot.driver_version),
        GpuField::PciBusId => known(&gpu.pci_bus_id),
        GpuField::ComputeCapability => known(&gpu.compute_capability),
        GpuField::CudaVersion => known(&snapshot.cuda_version),
        GpuField::Utilization => share(gpu.utilization_percent),
        GpuField::MemoryUtilization => share(gpu.memory_utilization_percent),
        GpuField::Temperature => {
            let celsius = gpu.temperature_celsius;
            celsius.map_or(Figure::Unknown, |celsius| text(celsius.to_string()))
        }
        GpuField::PowerDraw => watts(gpu.power_draw_mw),
        GpuField::PowerLimit => watts(gpu.power_limit_mw),
        GpuField::MemoryTotal => mib(gpu.memory_total_bytes),
        GpuField::MemoryUsed => mib(gpu.memory_used_bytes),
        GpuField::MemoryFree => mib(gpu.memory_total_bytes.saturating_sub(gpu.memory_used_bytes)),
        GpuField::MemoryGranted => mib(gpu.memory_granted_bytes),
        GpuField::TimeGranted => percent(CoreShare(gpu.cores_granted_permille).percent()),
    }
}

fn process_figure(field: ProcessField, gpu: &GpuView, process: &ProcessView) -> Figure {
    match field {
        ProcessField::Timestamp => text(timestamp()),
        ProcessField::GpuName => text(&gpu.name),
        ProcessField::GpuUuid => text(&gpu.uuid),
        ProcessField::Pid => text(process.pid.to_string()),
        ProcessField::Name => text(&process.name),
        ProcessField::UsedMemory => process.memory_used_bytes.map_or(Figure::Unknown, mib),
    }
}

fn tenant_figure(field: TenantField, gpu: &GpuView, tenant: &TenantView) -> Figure {
    match field {
        TenantField::Timestamp => text(timestamp()),
        TenantField::Name => text(&tenant.name),
        TenantField::Holder => tenant.holder.clone().map_or(Figure::Unknown, Figure::Text),
        TenantField::GpuUuid => text(&gpu.uuid),
        TenantField::MemoryLimit => mib(tenant.memory_limit_bytes),
        TenantField::MemoryUsed => mib(tenant.memory_used_bytes),
        TenantField::MemorySuspended => mib(tenant.suspended_bytes),
        TenantField::CoresLimit => percent(CoreShare(tenant.core_limit_permille).percent()),
        TenantField::CoresUsed => percent(tenths(tenant.core_used_permille)),
        TenantField::Policy => text(&tenant.policy),
        TenantField::State => text(state(tenant)),
        TenantField::Processes => text(tenant.processes.len().to_string()),
        TenantField::Denied => text(tenant.memory_denied.to_string()),
    }
}

pub(super) fn state(tenant: &TenantView) -> &'static str {
    if tenant.suspension().is_some() {
        tenant.state
    } else if tenant.core_used_permille > 0 {
        "running"
    } else if tenant.processes.is_empty() {
        "empty"
    } else {
        "idle"
    }
}

/// Time of the machine with milliseconds, such as `2026/11/25 21:53:35.123`.
fn timestamp() -> String {
    jiff::Zoned::now().strftime("%Y/%m/%d %H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use vcuda_quota::Quota;

    use super::*;

    fn snapshot() -> Snapshot {
        let tenant = TenantView {
            memory_used_bytes: 1 << 30,
            core_used_permille: 298,
            ..TenantView::unused("web", &Quota::fixed(None, 300), 4 << 30)
        };
        Snapshot::of(vec![GpuView {
            memory_total_bytes: 80 << 30,
            memory_used_bytes: 3 << 30,
            power_draw_mw: Some(258_456),
            tenants: vec![tenant],
            ..GpuView::new(0, "GPU-0", "NVIDIA H200")
        }])
    }

    #[test]
    fn units_and_names_are_those_of_nvidia_smi() {
        let fields = [
            GpuField::Name,
            GpuField::Uuid,
            GpuField::MemoryUsed,
            GpuField::PowerDraw,
            GpuField::Utilization,
            GpuField::MemoryUtilization,
        ];
        let text = |format: &str| gpus(&snapshot(), &fields, format.parse().unwrap());
        assert_eq!(
            text("csv"),
            "name, uuid, memory.used [MiB], power.draw [W], utilization.gpu [%], utilization.memory [%]\n\
             NVIDIA H200, GPU-0, 3072 MiB, 258.45 W, [N/A], [N/A]\n"
        );
        assert_eq!(text("csv,noheader,nounits"), "NVIDIA H200, GPU-0, 3072, 258.45, [N/A], [N/A]\n");
    }

    #[test]
    fn a_tenant_is_a_line_for_each_gpu() {
        let fields = TenantField::value_variants();
        let text = tenants(&snapshot(), fields, CsvFormat::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0]
                .contains("memory.limit [MiB], memory.used [MiB], memory.suspended [MiB], cores.limit [%]")
        );
        assert!(
            lines[1].ends_with(
                "web, [N/A], GPU-0, 4096 MiB, 1024 MiB, 0 MiB, 30 %, 29.8 %, fixed, running, 0, 0"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_tenant_that_does_not_run_shows_its_state() {
        let fields = [TenantField::State, TenantField::MemorySuspended];
        let mut snapshot = snapshot();
        for (state, suspended_bytes, line) in [
            ("running", 0, "running, 0 MiB"),
            ("suspended", 1 << 30, "suspended, 1024 MiB"),
            ("failed", 0, "failed, 0 MiB"),
        ] {
            let tenant = &mut snapshot.gpus[0].tenants[0];
            (tenant.state, tenant.suspended_bytes) = (state, suspended_bytes);
            let text = tenants(&snapshot, &fields, "csv,noheader".parse().unwrap());
            assert_eq!(text.trim(), line);
        }
    }

    #[test]
    fn other_formats_are_refused() {
        for text in ["", "json", "csv,units", "noheader"] {
            assert!(text.parse::<CsvFormat>().is_err(), "{text}");
        }
    }
}
