//! Chart of each tenant's share over time, as SVG: a panel for each set of tenants with the usual load.

use std::fs::{self, OpenOptions};
use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::plan::{USUAL, WARM_UP};
use super::report::{Report, SharesReport};
use vcuda_cli::failure::{Failure, failed};

/// Colours that are distinct for people with any colour vision (Okabe and Ito).
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];
const PANEL: (u32, u32) = (400, 240);
const COLUMNS: usize = 2;
const FONT: &str = "sans-serif";

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Checks that the file can be written, before minutes are spent on measuring.
///
/// # Errors
/// Fails if it cannot.
pub(super) fn can_write(place: &Path) -> Result<(), Failure> {
    // An existing file stays until there is a chart.
    let opened = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(place);
    opened
        .map(drop)
        .map_err(|error| Failure::access("write", place, &error))
}

/// Draws the report.
pub(super) fn write(report: &Report, place: &Path) -> Result<(), Failure> {
    fs::write(place, drawn(report)?).map_err(|error| Failure::access("write", place, &error))
}

/// The SVG document.
fn drawn(report: &Report) -> Result<String, Failure> {
    let panels = panels(&report.shares);
    let columns = panels.len().clamp(1, COLUMNS);
    let rows = panels.len().div_ceil(columns).max(1);
    let size = |panels: usize, pixels: u32| pixels * u32::try_from(panels).unwrap_or(1);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (size(columns, PANEL.0), size(rows, PANEL.1)))
            .into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        for (panel, place) in panels.iter().zip(area.split_evenly((rows, columns))) {
            draw(panel, report, &place)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// Rows by panel: tenants alone share one panel, all other rows have one each.
fn panels(rows: &[SharesReport]) -> Vec<Vec<&SharesReport>> {
    let shown = rows.iter().filter(|row| row.work == USUAL.name);
    let (alone, split): (Vec<&SharesReport>, Vec<_>) = shown.partition(|row| row.tenants.len() == 1);
    let alone = (!alone.is_empty()).then_some(alone);
    alone
        .into_iter()
        .chain(split.into_iter().map(|row| vec![row]))
        .collect()
}

fn draw(
    rows: &[&SharesReport],
    report: &Report,
    place: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), Failure> {
    let end = f64::from(report.windows) * report.window_seconds;
    let title = if rows.iter().all(|row| row.tenants.len() == 1) {
        "alone, one after the other".to_owned()
    } else {
        let tenants = rows.iter().flat_map(|row| &row.tenants);
        let caps: Vec<String> = tenants.map(|tenant| format!("{}", tenant.cap_percent)).collect();
        format!("{} % side by side", caps.join(" / "))
    };
    let shim = if report.with_shim {
        ""
    } else {
        ", without the shim"
    };
    let mut chart: Chart<'_, '_> = ChartBuilder::on(place)
        .caption(format!("{title}{shim}, kernels of {}", USUAL.name), (FONT, 17))
        .margin(10)
        .x_label_area_size(34)
        .y_label_area_size(44)
        .build_cartesian_2d(-WARM_UP.as_secs_f64()..end, 0.0..100.0)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("seconds since the first window")
        .y_desc("% of the GPU")
        .y_labels(6)
        .x_labels(6)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 14))
        .draw()
        .map_err(failed)?;
    let tenants = rows.iter().flat_map(|row| &row.tenants);
    for (tenant, colour) in tenants.zip(COLOURS.iter().cycle()) {
        let cap = [
            (-WARM_UP.as_secs_f64(), tenant.cap_percent),
            (end, tenant.cap_percent),
        ];
        let held_to = LineSeries::new(cap, BLACK.mix(0.4).stroke_width(1));
        chart.draw_series(held_to).map_err(failed)?;
        let points = tenant.over_time.iter().map(|at| (at.second, at.share_percent));
        let line = LineSeries::new(points, colour.stroke_width(2));
        chart.draw_series(line).map_err(failed)?;
    }
    Ok(())
}
