//! `vcuda smi --query-gpu`, `--query-compute-apps` and `--query-tenants`: chosen figures as CSV, with nvidia-smi's names and units.

use crate::args::fields::{CsvFormat, Field, Subject};
use crate::render::{GpuView, Snapshot};

pub(crate) fn gpus(snapshot: &Snapshot, fields: &[&Field], format: CsvFormat) -> String {
    csv(fields, snapshot.gpus.iter().map(|gpu| of_gpu(snapshot, gpu)), format)
}

/// CSV of tenants, by GPU.
pub(crate) fn tenants(snapshot: &Snapshot, fields: &[&Field], format: CsvFormat) -> String {
    let subjects = snapshot.gpus.iter().flat_map(|gpu| {
        gpu.tenants.iter().map(move |tenant| Subject { tenant: Some(tenant), ..of_gpu(snapshot, gpu) })
    });
    csv(fields, subjects, format)
}

/// CSV of processes, by GPU: those of tenants, then those of none.
pub(crate) fn processes(snapshot: &Snapshot, fields: &[&Field], format: CsvFormat) -> String {
    let subjects = snapshot.gpus.iter().flat_map(|gpu| {
        let of_tenants = gpu.tenants.iter().flat_map(|tenant| &tenant.processes);
        let all = of_tenants.chain(&gpu.outside_processes);
        all.map(move |process| Subject { process: Some(process), ..of_gpu(snapshot, gpu) })
    });
    csv(fields, subjects, format)
}

fn of_gpu<'a>(snapshot: &'a Snapshot, gpu: &'a GpuView) -> Subject<'a> {
    Subject { snapshot, gpu, tenant: None, process: None }
}

fn csv<'a>(fields: &[&Field], subjects: impl Iterator<Item = Subject<'a>>, format: CsvFormat) -> String {
    let mut lines = Vec::new();
    if !format.is_headless {
        lines.push(joined(fields, |field| match field.unit {
            "" => field.name.to_owned(),
            unit => format!("{} [{unit}]", field.name),
        }));
    }
    let figure = |field: &Field, of: &Subject<'_>| match ((field.text)(of), field.unit) {
        (None, _) => "[N/A]".to_owned(),
        // Names come from other users: a line stays a line.
        (Some(text), "") => text.replace(char::is_control, "?"),
        (Some(value), unit) if !format.is_unitless => format!("{value} {unit}"),
        (Some(value), _) => value,
    };
    lines.extend(subjects.map(|of| joined(fields, |field| figure(field, &of))));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn joined(fields: &[&Field], text: impl Fn(&Field) -> String) -> String {
    fields.iter().map(|field| text(field)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use vcuda_quota::Quota;

    use super::*;
    use crate::args::fields::{GPU, TENANT};
    use crate::render::TenantView;

    fn named(table: &'static [Field], names: &[&str]) -> Vec<&'static Field> {
        names.iter().map(|name| table.iter().find(|field| field.name == *name).unwrap()).collect()
    }

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
        let names = ["name", "uuid", "memory.used", "power.draw", "utilization.gpu", "utilization.memory"];
        let fields = named(GPU, &names);
        let text = |format: &str| gpus(&snapshot(), &fields, format.parse().unwrap());
        assert_eq!(
            text("csv"),
            "name, uuid, memory.used [MiB], power.draw [W], utilization.gpu [%], utilization.memory [%]\n\
             NVIDIA H200, GPU-0, 3072 MiB, 258.45 W, [N/A], [N/A]\n"
        );
        assert_eq!(text("csv,noheader,nounits"), "NVIDIA H200, GPU-0, 3072, 258.45, [N/A], [N/A]\n");
    }

    #[test]
    fn a_tenant_that_does_not_run_shows_its_state() {
        let fields = named(TENANT, &["state", "memory.suspended"]);
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
