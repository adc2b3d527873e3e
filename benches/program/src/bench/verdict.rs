//! The report in one sentence.

use super::report::{Report, SharesReport, TenantReport};
use vcuda_figures::mean;

/// The sentence, in lines of at most 80 columns; empty if no shares were measured under caps.
pub(super) fn verdict(report: &Report) -> String {
    let all = || {
        let rows = report.shares.iter();
        rows.flat_map(|row| row.tenants.iter().map(move |tenant| (row, tenant)))
    };
    let off: Vec<f64> = all().map(|(_, tenant)| off_points(tenant)).collect();
    let worst = all().max_by(|(_, one), (_, other)| off_points(one).total_cmp(&off_points(other)));
    match worst {
        Some((row, tenant)) if report.with_shim => format!(
            "Shares are off their caps by {:.1} points in the mean; the worst is {:.1} of {} %\n({}).\n",
            mean(&off),
            tenant.share_percent,
            tenant.cap_percent,
            case(row)
        ),
        _ => String::new(),
    }
}

/// Distance of a share from its cap (percentage points).
fn off_points(tenant: &TenantReport) -> f64 {
    (tenant.share_percent - tenant.cap_percent).abs()
}

/// Work and caps of a row, such as `1 ms, 30/70`.
fn case(row: &SharesReport) -> String {
    let caps: Vec<String> = row.tenants.iter().map(|tenant| tenant.cap_percent.to_string()).collect();
    format!("{}, {}", row.work, caps.join("/"))
}
