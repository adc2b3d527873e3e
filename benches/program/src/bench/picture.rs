//! The report's charts: each tenant's share over time, a panel for each set of tenants with the usual load.

use super::plan::{USUAL, WARM_UP};
use super::report::{Report, SharesReport, TenantReport};
use crate::chart::{Line, Panel};

/// Panels of a report: tenants alone share one, all other rows have one each.
pub(super) fn panels(report: &Report) -> Vec<Panel> {
    let shown = report.shares.iter().filter(|row| row.work == USUAL.name);
    let (alone, split): (Vec<&SharesReport>, Vec<_>) = shown.partition(|row| row.tenants.len() == 1);
    let alone = (!alone.is_empty()).then_some(alone);
    alone.into_iter().chain(split.into_iter().map(|row| vec![row])).map(|rows| panel(&rows, report)).collect()
}

fn panel(rows: &[&SharesReport], report: &Report) -> Panel {
    let is_alone = rows.iter().all(|row| row.tenants.len() == 1);
    let together = if is_alone { "one after the other" } else { "side by side" };
    let shim = if report.with_shim { "" } else { ", without the shim" };
    let seconds = (-WARM_UP.as_secs_f64(), f64::from(report.windows) * report.window_seconds);
    let tenants = rows.iter().flat_map(|row| &row.tenants);
    Panel {
        title: format!("{together}{shim}, kernels of {}", USUAL.name),
        y: "% of the GPU",
        seconds,
        top: 100.0,
        lines: tenants.map(|tenant| line(tenant, seconds)).collect(),
    }
}

fn line(tenant: &TenantReport, (from, until): (f64, f64)) -> Line {
    let cap = tenant.cap_percent;
    Line {
        label: format!("cap {cap} %"),
        points: tenant.over_time.iter().map(|at| (at.second, at.share_percent)).collect(),
        limit: vec![(from, cap), (until, cap)],
        limit_label: format!("{cap} %"),
    }
}
