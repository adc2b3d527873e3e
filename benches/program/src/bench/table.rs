//! Report as text: tables of 80 columns.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::report::{Report, SharesReport};
use super::verdict::verdict;
use vcuda_cli::render::{WIDTH, clipped};

/// All measured tables, with their meaning.
pub(super) fn text(report: &Report) -> String {
    let title = format!("{}  {}", report.gpu.uuid, report.gpu.name);
    let mut text = format!("{}\n", clipped(&title, WIDTH));
    text.push_str(&format!(
        "{} windows of {} s; a share is {}\n",
        report.windows, report.window_seconds, report.measured_by
    ));
    #[expect(clippy::cast_precision_loss, reason = "processors")]
    if let Some(load) = report.load_before.filter(|load| *load > report.processors as f64) {
        text.push_str(&format!(
            "NOTE: {} processors, load {load:.1}: who waits for one falls short of its share\n",
            report.processors
        ));
    }
    text.push_str(&verdict(report));
    if !report.with_shim {
        text.push_str("WITHOUT the shim: no caps apply\n");
    }
    let (alone, split): (Vec<&SharesReport>, Vec<_>) =
        report.shares.iter().partition(|row| row.tenants.len() == 1);
    if !alone.is_empty() {
        text.push_str("\nOne tenant alone\n");
        text.push_str(&alone_table(&alone));
    }
    if !split.is_empty() {
        text.push_str("\nTenants side by side\n");
        text.push_str(&split_table(&split));
    }
    if !report.changes.is_empty() {
        text.push_str("\nHow soon a share is there (ms; the first of four steps of 5 ms that have it)\n");
        text.push_str(&changes_table(report));
    }
    if !report.overhead.is_empty() {
        text.push_str("\nAdded to a call (ns; to most of them, and to the slowest in a hundred)\n");
        text.push_str(&overhead_table(report));
    }
    if !report.running.is_empty() {
        text.push_str("\nWhile tenants run: % of a processor; us from the end of a hold to the launch\n");
        text.push_str(&running_table(report));
    }
    text.push_str(&summary(report));
    text
}

fn alone_table(rows: &[&SharesReport]) -> String {
    let mut lines = vec![words(&["WORK", "CAP %", "SHARE %", "ERROR %", "MAE pt", "IDEAL pt", "SHARE/CAP"])];
    for row in rows {
        lines.extend(row.tenants.iter().map(|tenant| {
            vec![
                row.work.to_owned(),
                short(tenant.cap_percent),
                format!("{:.2}", tenant.share_percent),
                format!("{:+.2}", tenant.error_percent),
                format!("{:.2}", tenant.mae_points),
                format!("{:.2}", tenant.mae_floor_points),
                format!("{:.3}", tenant.throughput_of_cap),
            ]
        }));
    }
    lined(lines)
}

fn split_table(rows: &[&SharesReport]) -> String {
    let mut lines = vec![words(&["WORK", "CAPS %", "SHARES %", "RATIO %", "MAE pt", "JAIN", "USED"])];
    for row in rows {
        let of = |value: &dyn Fn(f64, f64) -> String| {
            let tenants = row.tenants.iter();
            let all: Vec<String> =
                tenants.map(|tenant| value(tenant.cap_percent, tenant.share_percent)).collect();
            all.join("/")
        };
        let worst_mae = row.tenants.iter().map(|tenant| tenant.mae_points).fold(0.0, f64::max);
        lines.push(vec![
            row.work.to_owned(),
            of(&|cap, _| short(cap)),
            of(&|_, share| format!("{share:.1}")),
            row.ratio_error_percent.map_or_else(|| "-".to_owned(), |error| format!("{error:.1}")),
            format!("{worst_mae:.2}"),
            format!("{:.4}", row.weighted_jain.unwrap_or_default()),
            format!("{:.3}", row.used_of_caps),
        ]);
    }
    lined(lines)
}

fn changes_table(report: &Report) -> String {
    let mut lines = vec![words(&["CHANGE", "WORK", "TIMES", "MEDIAN", "WORST", "GOAL"])];
    let ms = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    for row in &report.changes {
        lines.push(vec![
            row.change.clone(),
            row.work.to_owned(),
            row.times.to_string(),
            ms(row.median_ms),
            match row.never {
                0 => ms(row.worst_ms),
                never => format!("{never} times > 1000"),
            },
            short(row.goal_ms),
        ]);
    }
    lined(lines)
}

fn overhead_table(report: &Report) -> String {
    let mut lines = vec![words(&["CALL", "WITHOUT", "WITH", "ADDED", "P99"])];
    lines.extend(report.overhead.iter().map(|row| {
        vec![
            row.call.to_owned(),
            format!("{:.1}", row.without_shim_ns),
            format!("{:.1}", row.with_shim_ns),
            format!("{:.1}", row.added_ns),
            format!("{:+.0}", row.added_p99_ns),
        ]
    }));
    lined(lines)
}

fn running_table(report: &Report) -> String {
    let mut lines =
        vec![words(&["CAPS %", "WORK", "SHIM", "ARBITER", "HOLDS", "MEDIAN", "P99", "SLEEP", "P99"])];
    let us = |late: Option<f64>| late.map_or_else(|| "-".to_owned(), |late| format!("{late:.0}"));
    for row in &report.running {
        let caps: Vec<String> = row.caps_percent.iter().copied().map(short).collect();
        lines.push(vec![
            caps.join("/"),
            row.work.to_owned(),
            format!("{:.2}", row.shim_cpu_percent),
            format!("{:.2}", row.arbiter_cpu_percent),
            row.holds.to_string(),
            us(row.late_median_us),
            us(row.late_p99_us),
            us(row.sleep_late_median_us),
            us(row.sleep_late_p99_us),
        ]);
    }
    lined(lines)
}

fn summary(report: &Report) -> String {
    let summary = &report.summary;
    let figures = [
        ("alone: mean error", summary.alone_mean_error_percent, "% of the cap"),
        ("alone: mean MAE", summary.alone_mean_mae_points, "points"),
        ("alone: mean share/cap", summary.alone_mean_throughput_of_cap, ""),
        ("side by side: ratio error, mean", summary.split_mean_ratio_error_percent, "%"),
        ("side by side: ratio error, worst", summary.split_worst_ratio_error_percent, "%"),
        ("side by side: weighted Jain, worst", summary.split_worst_weighted_jain, ""),
        ("side by side: used of the caps, least", summary.split_least_used_of_caps, ""),
    ];
    let known = figures.into_iter().filter_map(|(name, figure, unit)| {
        let figure = figure?;
        Some(format!("{name} {figure:.3} {unit}").trim_end().to_owned() + "\n")
    });
    let text: String = known.collect();
    if text.is_empty() { text } else { format!("\n{text}") }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A percentage, with a decimal only if it has one.
fn short(percent: f64) -> String {
    format!("{percent:.1}").trim_end_matches(".0").to_owned()
}

/// Columns with the first one aligned left, the others right.
fn lined(lines: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for line in lines {
        table.add_row(line);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
        if column.index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Plan;
    use crate::bench::report::{ChangeReport, GpuReport, OverheadReport, RunningReport, TenantReport};
    use vcuda_quota::CoreShare;

    /// A report with the most digits and the longest names.
    fn widest(simulated: bool, has_shim: bool) -> Report {
        let tenant = |cap| TenantReport::new(CoreShare(cap), &[0.999, 0.999], 1_000_000, Vec::new());
        let row = |caps: &[u32]| {
            let tenants = caps.iter().copied().map(tenant).collect();
            SharesReport::new("graph 10x100 us", Some(1), tenants)
        };
        let plan = Plan {
            rows: Vec::new(),
            has_overhead: true,
            changes: 0,
            has_shim,
            windows: 3600,
            pairs: 1,
            parts: 1,
        };
        let gpu = GpuReport {
            uuid: "GPU-00000000-0000-4000-8000-000000000000".to_owned(),
            name: "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition".to_owned(),
            simulated,
        };
        let change = || "30 % changed to 70 % and back".to_owned();
        let mut report = Report {
            processors: 128,
            load_before: Some(1234.5),
            shares: vec![row(&[100]), row(&[300, 700]), row(&[100, 200, 300, 400])],
            changes: vec![
                ChangeReport::new(change(), &[Some(999.9); 16], 50.5),
                ChangeReport::new(change(), &[None; 16], 50.5),
            ],
            overhead: vec![widest_overhead()],
            running: vec![widest_running()],
            ..Report::new(&plan, gpu)
        };
        report.sum_up();
        report
    }

    fn widest_overhead() -> OverheadReport {
        OverheadReport {
            call: "allocate + free 4 KiB, memory limit",
            pairs: 1,
            without_shim_ns: 99_999.9,
            with_shim_ns: 99_999.9,
            added_ns: -99_999.9,
            without_shim_p99_ns: 9_999_999.0,
            with_shim_p99_ns: 9_999_999.0,
            added_p99_ns: -9_999_999.0,
        }
    }

    fn widest_running() -> RunningReport {
        RunningReport {
            caps_percent: vec![10.0, 20.0, 30.0, 40.0],
            work: "graph 10x100 us",
            programs_cpu_percent: 100.0,
            shim_cpu_percent: -10.55,
            arbiter_cpu_percent: 10.55,
            holds: 99_999,
            late_median_us: Some(16_384.0),
            late_p99_us: None,
            sleep_late_median_us: Some(16_384.0),
            sleep_late_p99_us: Some(16_384.0),
        }
    }

    #[test]
    fn the_widest_report_fits_80_columns() {
        for (simulated, has_shim) in [(false, false), (true, true)] {
            let text = text(&widest(simulated, has_shim));
            for line in text.lines() {
                let columns = line.chars().count();
                assert!(columns <= WIDTH, "{columns} columns: {line}");
            }
            let first = if has_shim { "the worst is 99.9 of 10 %" } else { "WITHOUT the shim" };
            for words in [
                "NOTE",
                first,
                "One tenant",
                "side by side",
                "How soon",
                "16 times > 1000",
                "Added",
                "ARBITER",
            ] {
                assert!(text.contains(words), "{words} in {text}");
            }
        }
    }
}
