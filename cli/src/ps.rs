//! `vcuda ps`: prints a line for each process that holds memory of a GPU.

use std::io::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use vcuda_quota::MemorySize;

use crate::args::PsArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::render::{Snapshot, clipped};
use crate::snapshot_source::SnapshotSource;

/// A process on a GPU.
#[derive(Debug, Serialize)]
struct Line<'a> {
    pid: u32,
    name: &'a str,
    tenant: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a str>,
    gpu_uuid: &'a str,
    #[serde(skip)]
    gpu: usize,
    memory_used_bytes: u64,
}

/// Prints the processes.
pub(crate) fn ps(args: &PsArgs, environment: &Environment) -> Result<(), Failure> {
    let snapshot = SnapshotSource::find(environment, args.sim)?.look()?;
    let lines = lines(&snapshot);
    let mut out = std::io::stdout().lock();
    if args.json {
        #[derive(Serialize)]
        struct Document<'a> {
            processes: Vec<Line<'a>>,
        }
        serde_json::to_writer_pretty(&mut out, &Document { processes: lines })?;
        return Ok(writeln!(out)?);
    }
    Ok(write!(out, "{}", table(&lines))?)
}

fn lines(snapshot: &Snapshot) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for (index, gpu) in snapshot.gpus.iter().enumerate() {
        for tenant in &gpu.tenants {
            lines.extend(tenant.processes.iter().map(|process| Line {
                pid: process.pid,
                name: &process.name,
                tenant: &tenant.name,
                holder: tenant.holder.as_deref(),
                gpu_uuid: &gpu.uuid,
                gpu: index,
                memory_used_bytes: process.memory_used_bytes,
            }));
        }
    }
    lines.sort_by_key(|line| (line.pid, line.gpu));
    lines
}

fn table(lines: &[Line<'_>]) -> String {
    let mut table = Table::new();
    table
        .load_preset(NOTHING)
        .set_header(["PID", "COMMAND", "GPU", "MEMORY", "TENANT"]);
    for line in lines {
        let tenant = match line.holder {
            Some(holder) => format!("{} {holder}", line.tenant),
            None => line.tenant.to_owned(),
        };
        table.add_row([
            line.pid.to_string(),
            clipped(line.name, 16),
            line.gpu.to_string(),
            MemorySize(line.memory_used_bytes).to_string(),
            clipped(&tenant, 36),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
        if matches!(column.index, 0 | 2 | 3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use vcuda_quota::Quota;

    use super::*;
    use crate::render::{GpuView, ProcessView, TenantView};

    #[test]
    fn processes_are_sorted_and_fit_80_columns() {
        let process = |pid| ProcessView {
            pid,
            name: "a-long-command-\u{1b}[2J".to_owned(),
            memory_used_bytes: 3 << 29,
        };
        let tenant = TenantView {
            holder: Some("namespace-of-a-team/pod-of-a-deployment-7d9f/main".to_owned()),
            memory_used_bytes: 3 << 30,
            processes: vec![process(4_194_303), process(7)],
            ..TenantView::unused("web", &Quota::UNLIMITED, 4 << 30)
        };
        let snapshot = Snapshot {
            gpus: vec![GpuView {
                uuid: "GPU-0".to_owned(),
                name: "S".to_owned(),
                memory_total_bytes: 80 << 30,
                memory_used_bytes: 3 << 30,
                tenants: vec![tenant],
            }],
        };
        let text = table(&lines(&snapshot));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(
            rows[1].trim_start().starts_with("7 ") && rows[1].contains("1.5 GiB"),
            "{text}"
        );
        for row in rows {
            assert!(
                row.chars().count() <= 80 && !row.chars().any(char::is_control),
                "{row:?}"
            );
        }
    }
}
