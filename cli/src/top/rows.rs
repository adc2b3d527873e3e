//! Lines of `vcuda top`: for each GPU a title, its load, and its tenants with their processes. No text is cut without an
//! ellipsis.

use std::collections::{HashMap, VecDeque};

use crate::args::SortKey;
use crate::render::columns::{Column, Load, Table};
use crate::render::words::{clipped, known, mib, mib_of, natural, percent_of, watts};
use crate::render::{GpuView, ProcessView, Snapshot, TenantView, command, time};

/// Heights of a graph's cell, the lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width of a bar of used memory (columns).
const BAR_WIDTH: usize = 16;
/// Width of a row without its graph, and the least width of a graph (columns).
const ROW_WIDTH: usize = 84;
const LEAST_GRAPH: usize = 8;

/// GPU time of each tenant on each GPU (thousandths) by UUID and name, the newest last.
pub(super) type History = HashMap<(String, String), VecDeque<u64>>;

/// Looks of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Title of a GPU.
    Title,
    /// Heading of columns.
    Heading,
    /// Figures with a load.
    Figures(Load),
    /// A process, or another text of less weight.
    Detail,
}

/// Object of a line, which a key may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// A tenant, by name.
    Tenant(String),
    /// A process, by PID and name; without a PID on this machine it cannot be ended from here.
    Process(Option<u32>, String),
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) kind: Kind,
    /// Object, if the line can be selected.
    pub(super) object: Option<Object>,
}

/// What is shown, and in which order.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    pub(super) sort: SortKey,
    /// Part of the name of a tenant, pod or process, in lower case; empty: all.
    pub(super) filter: String,
    pub(super) has_processes: bool,
}

/// Sorts tenants; equal ones by name, so that rows do not jump.
fn sorted<'a>(tenants: &'a [TenantView], key: SortKey) -> Vec<&'a TenantView> {
    let mut sorted: Vec<&'a TenantView> = tenants.iter().collect();
    let quota = |tenant: &TenantView| percent_of(tenant.memory_used_bytes, tenant.memory_limit_bytes);
    sorted.sort_by(|a, b| {
        let by_key = match key {
            SortKey::Cores => b.core_used_permille.cmp(&a.core_used_permille),
            SortKey::Memory => b.memory_used_bytes.cmp(&a.memory_used_bytes),
            SortKey::Quota => quota(b).cmp(&quota(a)),
            SortKey::Denied => b.memory_denied.cmp(&a.memory_denied),
            SortKey::Name => std::cmp::Ordering::Equal,
        };
        by_key.then_with(|| natural(&a.name, &b.name))
    });
    sorted
}

/// All lines of a snapshot, each at most `width` columns wide.
pub(super) fn rows(snapshot: &Snapshot, history: &History, selection: &Selection, width: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for gpu in &snapshot.gpus {
        if !rows.is_empty() {
            rows.push(plain(String::new(), Kind::Detail));
        }
        let title = format!("GPU {}  {}  {}", gpu.index, gpu.name, gpu.uuid);
        rows.push(plain(clipped(&title, width), Kind::Title));
        let load = Load::of(percent_of(gpu.memory_used_bytes, gpu.memory_total_bytes));
        rows.push(plain(clipped(&load_line(gpu), width), Kind::Figures(load)));
        let closed = gpu.closed.iter().map(|words| clipped(words, width));
        rows.extend(closed.map(|words| plain(words, Kind::Figures(Load::Full))));
        rows.extend(tenant_rows(gpu, history, selection, width));
        if selection.has_processes {
            let outside = gpu.outside_processes.iter().filter(|one| fits(one, selection));
            rows.extend(outside.map(|process| process_row(process, "outside vcuda  ", width)));
        }
    }
    rows
}

fn plain(text: String, kind: Kind) -> Row {
    Row { text, kind, object: None }
}

fn load_line(gpu: &GpuView) -> String {
    let filled = percent_of(gpu.memory_used_bytes, gpu.memory_total_bytes).min(100) * BAR_WIDTH as u64 / 100;
    let filled = usize::try_from(filled).unwrap_or(BAR_WIDTH);
    format!(
        "{}{} {}  util {}  {}  {}",
        "█".repeat(filled),
        "░".repeat(BAR_WIDTH - filled),
        mib_of(gpu.memory_used_bytes, gpu.memory_total_bytes),
        known(gpu.utilization_percent, |percent| format!("{percent}%")),
        known(gpu.temperature_celsius, |celsius| format!("{celsius}C")),
        known(gpu.power_draw_mw, watts)
    )
}

fn fits(process: &ProcessView, selection: &Selection) -> bool {
    command(process).to_lowercase().contains(&selection.filter)
}

/// Whether a tenant is meant by the filter, by itself or by one of its processes.
fn is_meant(tenant: &TenantView, selection: &Selection) -> bool {
    let names = [Some(&tenant.name), tenant.holder.as_ref()];
    let mut names = names.into_iter().flatten();
    names.any(|name| name.to_lowercase().contains(&selection.filter))
        || tenant.processes.iter().any(|process| fits(process, selection))
}

fn tenant_rows(gpu: &GpuView, history: &History, selection: &Selection, width: usize) -> Vec<Row> {
    let graph_width = width.saturating_sub(ROW_WIDTH).min(super::HISTORY);
    let mut columns = vec![
        Column::telling("TENANT", 0, 8),
        Column::figure("MEMORY", 0),
        Column::figure("USED", 2),
        Column::figure("GPU TIME", 1),
        Column::words("POLICY", 3, 11),
        Column::figure("DENIED", 4),
    ];
    if graph_width >= LEAST_GRAPH {
        columns.push(Column::words("OVER TIME", 5, graph_width));
    }
    let mut table = Table::new(&columns);
    let tenants: Vec<&TenantView> = sorted(&gpu.tenants, selection.sort)
        .into_iter()
        .filter(|tenant| is_meant(tenant, selection))
        .collect();
    for tenant in &tenants {
        let past = history.get(&(gpu.uuid.clone(), tenant.name.clone()));
        let used = percent_of(tenant.memory_used_bytes, tenant.memory_limit_bytes);
        table.row([
            tenant.holder.as_ref().unwrap_or(&tenant.name).as_str().into(),
            mib_of(tenant.memory_used_bytes, tenant.memory_limit_bytes).into(),
            format!("{used}%").into(),
            time(tenant).into(),
            tenant.policy.as_str().into(),
            tenant.memory_denied.to_string().into(),
            graph(past, graph_width).into(),
        ]);
    }
    let mut lines = table.lines(width, false).into_iter();
    let mut rows: Vec<Row> = lines.next().map(|line| plain(line, Kind::Heading)).into_iter().collect();
    for (line, tenant) in lines.zip(&tenants) {
        let used = percent_of(tenant.memory_used_bytes, tenant.memory_limit_bytes);
        rows.push(Row {
            text: line,
            kind: Kind::Figures(Load::of(used)),
            object: Some(Object::Tenant(tenant.name.clone())),
        });
        rows.extend(
            tenant.suspension().map(|text| plain(clipped(&format!("  {text}"), width), Kind::Detail)),
        );
        if selection.has_processes {
            rows.extend(tenant.processes.iter().map(|process| process_row(process, "", width)));
        }
    }
    rows
}

fn process_row(process: &ProcessView, whose: &str, width: usize) -> Row {
    let pid = (!process.is_in_container).then_some(process.pid);
    let text = format!(
        "  {:>8} {:<8} {:>10}  {whose}{}",
        process.pid,
        clipped(process.user.as_deref().unwrap_or("-"), 8),
        known(process.memory_used_bytes, mib),
        command(process)
    );
    Row {
        text: clipped(&text, width),
        kind: Kind::Detail,
        object: Some(Object::Process(pid, process.name.clone())),
    }
}

/// Graph of the last shares, as many as fit.
fn graph(past: Option<&VecDeque<u64>>, width: usize) -> String {
    let shares: Vec<u64> = past.into_iter().flatten().copied().collect();
    let shown = shares.iter().skip(shares.len().saturating_sub(width));
    shown.map(|permille| bar(*permille)).collect()
}

fn bar(permille: u64) -> char {
    let place = usize::try_from(permille.min(1000) * 7 / 1000).unwrap_or(0);
    BARS.get(place).copied().unwrap_or('█')
}

#[cfg(test)]
mod tests {
    use vcuda_quota::Quota;

    use super::*;
    use crate::render::words::width;

    fn snapshot() -> Snapshot {
        let tenant = |name: &str, share, used_bytes, denied| TenantView {
            core_used_permille: share,
            memory_used_bytes: used_bytes,
            memory_denied: denied,
            processes: vec![ProcessView {
                pid: 7,
                name: "python".to_owned(),
                user: None,
                command: Some(format!("python {name}.py")),
                is_in_container: name == "b",
                memory_used_bytes: Some(used_bytes),
            }],
            ..TenantView::unused(name, &Quota::fixed(None, 500), 4 << 30)
        };
        Snapshot::of(vec![GpuView {
            tenants: vec![tenant("a", 100, 3 << 30, 0), tenant("b", 300, 1 << 30, 9)],
            ..GpuView::new(0, "GPU-0", "Simulated")
        }])
    }

    fn shown(sort: SortKey, filter: &str, width: usize) -> Vec<Row> {
        let selection = Selection { sort, filter: filter.to_owned(), has_processes: true };
        rows(&snapshot(), &History::new(), &selection, width)
    }

    fn tenants(rows: &[Row]) -> String {
        let names = rows.iter().filter_map(|row| match &row.object {
            Some(Object::Tenant(name)) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }

    #[test]
    fn each_key_has_its_order_and_the_filter_its_rows() {
        for (key, order) in [
            (SortKey::Cores, "ba"),
            (SortKey::Memory, "ab"),
            (SortKey::Quota, "ab"),
            (SortKey::Denied, "ba"),
            (SortKey::Name, "ab"),
        ] {
            assert_eq!(tenants(&shown(key, "", 120)), order, "{key:?}");
        }
        assert_eq!(tenants(&shown(SortKey::Name, "b.py", 120)), "b");
        assert_eq!(tenants(&shown(SortKey::Name, "nothing", 120)), "");
    }

    #[test]
    fn a_line_fits_and_what_is_cut_shows_it() {
        for columns in 20..200 {
            for row in shown(SortKey::Name, "", columns) {
                assert!(width(&row.text) <= columns, "{columns}: {}", row.text);
            }
        }
        let narrow = shown(SortKey::Name, "", 30);
        assert!(narrow.iter().any(|row| row.text.ends_with('…')), "{narrow:#?}");
    }

    #[test]
    fn a_tenant_that_does_not_run_says_so() {
        let mut snapshot = snapshot();
        let tenant = &mut snapshot.gpus[0].tenants[0];
        (tenant.state, tenant.suspended_bytes) = ("suspended", 3 << 30);
        let selection = Selection { sort: SortKey::Name, filter: String::new(), has_processes: false };
        for columns in 40..200 {
            let rows = rows(&snapshot, &History::new(), &selection, columns);
            let place = rows.iter().position(|row| row.text == "  suspended: 3072MiB in host memory");
            let place = place.unwrap_or_else(|| panic!("{columns}: {rows:#?}"));
            assert_eq!(rows[place].object, None);
            assert_eq!(rows[place - 1].object, Some(Object::Tenant("a".to_owned())));
        }
    }

    #[test]
    fn a_process_in_a_container_has_no_pid_here() {
        let all = shown(SortKey::Name, "", 120);
        let pids: Vec<_> = all.iter().filter_map(|row| row.object.clone()).collect();
        assert!(pids.contains(&Object::Process(Some(7), "python".to_owned())));
        assert!(pids.contains(&Object::Process(None, "python".to_owned())));
    }

    #[test]
    fn the_graph_shows_the_newest_shares() {
        let past = VecDeque::from([1000, 0, 300]);
        assert_eq!(graph(Some(&past), 2), "▁▃");
        assert_eq!(graph(None, 2), "");
    }
}
