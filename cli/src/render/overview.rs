//! The table of `vcuda smi`: heading, GPUs, tenants, processes, in a frame of the given width.

use vcuda_quota::CoreShare;

use super::columns::{Cell, Column, Load, Table};
use super::words::{clipped, known, mib, mib_of, now, percent_of, tenths, watts, width};
use super::{GpuView, Look, ProcessView, Snapshot, TenantView};

/// Tenant in the row of a process that belongs to none.
const OUTSIDE: &str = "outside vcuda";
/// Width of the frame on both sides.
const FRAME: usize = 4;

pub(crate) fn overview(snapshot: &Snapshot, look: Look) -> String {
    let inner = look.width.saturating_sub(FRAME);
    let sections = [
        vec![heading(snapshot, inner)],
        gpus(snapshot, look.has_uuids).lines(inner, look.is_colored),
        tenants(snapshot).lines(inner, look.is_colored),
        processes(snapshot).lines(inner, look.is_colored),
    ];
    let rule = format!("+{}+\n", "-".repeat(look.width.saturating_sub(2)));
    let mut text = format!("{}\n{rule}", clipped(&now(), look.width));
    for section in sections {
        for line in section {
            // Colours have no width.
            let columns = visible(&line);
            text.push_str(&format!("| {line}{} |\n", " ".repeat(inner.saturating_sub(columns))));
        }
        text.push_str(&rule);
    }
    text
}

/// Width of a line without its colours (columns).
fn visible(line: &str) -> usize {
    let mut pieces = line.split("\x1b[");
    let first = pieces.next().map_or(0, width);
    let after = pieces.map(|piece| piece.split_once('m').map_or(0, |(_, rest)| width(rest)));
    first + after.sum::<usize>()
}

/// Versions of vcuda, driver and CUDA, spread over the width.
fn heading(snapshot: &Snapshot, inner: usize) -> String {
    let unknown = || super::words::UNKNOWN.to_owned();
    let driver = snapshot.driver_version.clone().unwrap_or_else(unknown);
    let cuda = snapshot.cuda_version.clone().unwrap_or_else(unknown);
    let own = concat!("vcuda ", env!("CARGO_PKG_VERSION"));
    let long = [format!("Driver Version: {driver}"), format!("CUDA Version: {cuda}")];
    let short = [driver, format!("CUDA {cuda}")];
    let needed = |[driver, cuda]: &[String; 2]| width(own) + width(driver) + width(cuda) + 4;
    let [driver, cuda] = if needed(&long) <= inner { long } else { short };
    let spare = inner.saturating_sub(width(own) + width(&driver) + width(&cuda)).max(2);
    let (left, right) = (" ".repeat(spare / 2), " ".repeat(spare - spare / 2));
    clipped(&format!("{own}{left}{driver}{right}{cuda}"), inner)
}

fn gpus(snapshot: &Snapshot, has_uuids: bool) -> Table {
    let mut table = Table::new(&[
        Column::figure("GPU", 0),
        Column::figure("UTIL", 1),
        Column::figure("TEMP", 4),
        Column::figure("POWER", 5),
        Column::figure("MEMORY", 0),
        Column::figure("GRANTED", 2),
        Column::figure("TIME", 3),
    ]);
    for gpu in &snapshot.gpus {
        table.text(0, format!("{:>3}  {}", gpu.index, gpu.name));
        if has_uuids {
            table.text(5, gpu.uuid.as_str());
        }
        let percent = percent_of(gpu.memory_used_bytes, gpu.memory_total_bytes);
        let busy = gpu.utilization_percent.map(|percent| Load::of(percent.into()));
        table.row([
            "".into(),
            Cell::loaded(known(gpu.utilization_percent, |percent| format!("{percent}%")), busy),
            known(gpu.temperature_celsius, |celsius| format!("{celsius}C")).into(),
            power(gpu).into(),
            Cell::loaded(mib_of(gpu.memory_used_bytes, gpu.memory_total_bytes), Some(Load::of(percent))),
            mib(gpu.memory_granted_bytes).into(),
            format!("{}%", CoreShare(gpu.cores_granted_permille).percent()).into(),
        ]);
        if let Some(closed) = &gpu.closed {
            table.text(5, closed.as_str());
        }
    }
    table
}

/// Power draw and limit, such as `258W / 700W`.
fn power(gpu: &GpuView) -> String {
    match (gpu.power_draw_mw, gpu.power_limit_mw) {
        (None, None) => known(None, watts),
        (draw, limit) => format!("{} / {}", known(draw, watts), known(limit, watts)),
    }
}

fn tenants(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(&[
        Column::figure("GPU", 2),
        Column::telling("TENANT", 0, 8),
        Column::figure("MEMORY", 0),
        Column::figure("USED", 3),
        Column::figure("GPU TIME", 1),
        Column::words("POLICY", 4, 11),
        Column::figure("DENIED", 5),
    ]);
    let all = snapshot.gpus.iter().flat_map(|gpu| gpu.tenants.iter().map(move |tenant| (gpu, tenant)));
    let mut is_empty = true;
    for (gpu, tenant) in all {
        is_empty = false;
        tenant_rows(&mut table, gpu.index, tenant);
    }
    if is_empty {
        let words = if snapshot.is_manager_down {
            "no tenants are seen from here; the manager, which knows all, is not running"
        } else {
            "no tenants; start one with: vcuda run --memory 4GiB --cores 30 -- CMD"
        };
        table.text(2, words);
    }
    table
}

fn tenant_rows(table: &mut Table, index: usize, tenant: &TenantView) {
    let used = percent_of(tenant.memory_used_bytes, tenant.memory_limit_bytes);
    table.row([
        index.to_string().into(),
        tenant.name.as_str().into(),
        mib_of(tenant.memory_used_bytes, tenant.memory_limit_bytes).into(),
        Cell::loaded(format!("{used}%"), Some(Load::of(used))),
        time(tenant).into(),
        tenant.policy.as_str().into(),
        tenant.memory_denied.to_string().into(),
    ]);
    if let Some(holder) = &tenant.holder {
        table.text(5, holder.as_str());
    }
    if tenant.held_by_driver {
        table.text(5, "the driver holds its memory, too");
    }
    if let Some(suspension) = tenant.suspension() {
        table.text(5, suspension);
    }
    if let Some(temporary) = &tenant.temporary {
        table.text(5, temporary.words());
    }
    if tenant.is_ranked {
        table.text(5, format!("{} priority, weight {}", tenant.priority, tenant.weight));
    }
}

/// Used share of GPU time, and its guarantee and maximum, such as `29.8 / 30 %` or `31.0 / 30-100 %`.
pub(crate) fn time(tenant: &TenantView) -> String {
    let used = tenths(tenant.core_used_permille);
    let limit = CoreShare(tenant.core_limit_permille);
    if (1..tenant.core_limit_permille).contains(&tenant.core_guarantee_permille) {
        let guarantee = CoreShare(tenant.core_guarantee_permille).percent();
        format!("{used} / {guarantee}-{limit}")
    } else {
        format!("{used} / {limit}")
    }
}

fn processes(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(&[
        Column::figure("GPU", 2),
        Column::figure("    PID", 0),
        Column::words("USER", 4, 8),
        Column::telling("TENANT", 3, 8),
        Column::words("COMMAND", 0, 8),
        Column::figure("MEMORY", 1),
    ]);
    let mut count = 0_usize;
    let mut row = |index: usize, tenant: &str, process: &ProcessView| {
        count += 1;
        table.row([
            index.to_string().into(),
            process.pid.to_string().into(),
            process.user.clone().unwrap_or_else(|| "-".to_owned()).into(),
            tenant.into(),
            command(process).into(),
            known(process.memory_used_bytes, mib).into(),
        ]);
    };
    for gpu in &snapshot.gpus {
        for tenant in &gpu.tenants {
            tenant.processes.iter().for_each(|process| row(gpu.index, &tenant.name, process));
        }
        gpu.outside_processes.iter().for_each(|process| row(gpu.index, OUTSIDE, process));
    }
    if count == 0 {
        table.text(2, "no process holds memory of a GPU");
    }
    table
}

/// Command line of a process, else its name. A PID that is only known inside a container is marked.
pub(crate) fn command(process: &ProcessView) -> String {
    let command = process.command.as_ref().unwrap_or(&process.name);
    if process.is_in_container { format!("(in container) {command}") } else { command.clone() }
}
