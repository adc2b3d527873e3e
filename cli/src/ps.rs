//! `vcuda ps`: prints a line for each process that holds memory of a GPU.

use std::io::Write as _;

use serde::Serialize;

use crate::args::PsArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::columns::{Column, Table};
use crate::render::words::{known, mib};
use crate::render::{GpuView, ProcessView, Snapshot, command};
use crate::snapshot_source::SnapshotSource;

/// A process on a GPU.
#[derive(Debug, Serialize)]
struct Line<'a> {
    pid: u32,
    name: &'a str,
    /// `None`: it belongs to no tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a str>,
    /// The tenant's, as in `vcuda smi --json`.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    gpu_uuid: &'a str,
    #[serde(skip)]
    gpu: usize,
    memory_used_bytes: Option<u64>,
    #[serde(skip)]
    process: &'a ProcessView,
}

pub(crate) fn ps(args: &PsArgs, environment: &Environment) -> Result<(), Failure> {
    let mut source = SnapshotSource::find(environment, args.sim)?;
    source.warn()?;
    let snapshot = source.look()?;
    let lines = lines(&snapshot);
    let mut out = std::io::stdout().lock();
    if args.json {
        #[derive(Serialize)]
        struct Document<'a> {
            processes: Vec<Line<'a>>,
            /// Those of no tenant.
            outside_processes: Vec<Line<'a>>,
        }
        let (processes, outside_processes) = lines.into_iter().partition(|line| line.tenant.is_some());
        let document = Document { processes, outside_processes };
        serde_json::to_writer_pretty(&mut out, &document)?;
        return Ok(writeln!(out)?);
    }
    Ok(write!(out, "{}", table(&lines, &Output::find(environment)))?)
}

impl<'a> Line<'a> {
    /// A process of no tenant.
    fn of(process: &'a ProcessView, gpu: &'a GpuView) -> Line<'a> {
        Line {
            pid: process.pid,
            name: &process.name,
            tenant: None,
            holder: None,
            state: None,
            gpu_uuid: &gpu.uuid,
            gpu: gpu.index,
            memory_used_bytes: process.memory_used_bytes,
            process,
        }
    }
}

fn lines(snapshot: &Snapshot) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for gpu in &snapshot.gpus {
        let line = |process| Line::of(process, gpu);
        lines.extend(gpu.outside_processes.iter().map(line));
        for tenant in &gpu.tenants {
            lines.extend(tenant.processes.iter().map(|process| Line {
                tenant: Some(&tenant.name),
                holder: tenant.holder.as_deref(),
                state: Some(tenant.state),
                ..line(process)
            }));
        }
    }
    lines.sort_by_key(|line| (line.pid, line.gpu));
    lines
}

pub(crate) fn text(snapshot: &Snapshot, output: &Output) -> String {
    table(&lines(snapshot), output)
}

fn table(lines: &[Line<'_>], output: &Output) -> String {
    let mut table = Table::new(&[
        Column::figure("    PID", 0),
        Column::words("USER", 3, 8),
        Column::words("COMMAND", 0, 8),
        Column::figure("GPU", 2),
        Column::figure("MEMORY", 0),
        Column::telling("TENANT", 1, 8),
    ]);
    for line in lines {
        let words = [line.tenant, line.holder].into_iter().flatten();
        let state = line.state.filter(|state| *state != "running").map(|state| format!("({state})"));
        let words: Vec<&str> = words.chain(state.as_deref()).collect();
        let tenant = if line.tenant.is_some() { words.join(" ") } else { "outside vcuda".to_owned() };
        table.row([
            line.pid.to_string().into(),
            line.process.user.as_deref().unwrap_or("-").into(),
            command(line.process).into(),
            line.gpu.to_string().into(),
            known(line.process.memory_used_bytes, mib).into(),
            tenant.into(),
        ]);
    }
    let lines = table.lines(output.width, output.is_colored);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use vcuda_quota::Quota;

    use super::*;
    use crate::render::TenantView;

    #[test]
    fn processes_are_sorted_and_fit_each_width() {
        let process = |pid| ProcessView {
            pid,
            name: "a-long-command-\u{1b}[2J".to_owned(),
            user: None,
            command: None,
            is_in_container: false,
            memory_used_bytes: Some(3 << 29),
        };
        let tenant = TenantView {
            holder: Some("namespace-of-a-team/pod-of-a-deployment-7d9f/main".to_owned()),
            processes: vec![process(4_194_303), process(7)],
            ..TenantView::unused("web", &Quota::UNLIMITED, 4 << 30)
        };
        let snapshot = Snapshot::of(vec![GpuView {
            tenants: vec![tenant],
            outside_processes: vec![process(9)],
            ..GpuView::new(0, "GPU-0", "S")
        }]);
        for width in [40, 80, 160] {
            let output = Output { is_terminal: false, width, is_colored: false };
            let text = table(&lines(&snapshot), &output);
            let rows: Vec<&str> = text.lines().collect();
            assert_eq!(rows.len(), 4, "{text}");
            assert!(rows[1].trim_start().starts_with("7 ") && rows[1].contains("1536MiB"), "{text}");
            assert!(rows[2].contains("outside vcuda") || width == 40, "{text}");
            for row in rows {
                assert!(row.chars().count() <= width && !row.chars().any(char::is_control), "{row:?}");
            }
        }
    }
}
