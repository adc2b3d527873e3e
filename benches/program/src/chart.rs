//! Charts over time, as SVG: panels with a line for each tenant, and the line's limit dashed beside it.

use std::fs::{self, OpenOptions};
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use vcuda_cli::failure::{Failure, failed};

/// Colours that are distinct for people with any colour vision (Okabe and Ito).
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];
/// Size of a panel (pixels), and the panels in a row.
const PANEL: (u32, u32) = (440, 260);
const COLUMNS: usize = 2;
const FONT: &str = "sans-serif";
/// Place of the legend's first entry, size of its coloured square, width of an entry (pixels).
const LEGEND: (i32, i32) = (56, 34);
const SQUARE: i32 = 9;
const ENTRY: i32 = 96;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A figure over time and its limit, as points (second, figure).
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) limit: Vec<(f64, f64)>,
    /// Text at the end of the limit.
    pub(crate) limit_label: String,
}

/// One chart. Before second 0 it is grey: what is there is not measured.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) y: &'static str,
    /// First and last second.
    pub(crate) seconds: (f64, f64),
    /// Top of the figures, which begin at 0.
    pub(crate) top: f64,
    pub(crate) lines: Vec<Line>,
}

/// Checks that the file can be written, before time is spent on measuring. Fails if it cannot.
pub(crate) fn can_write(place: &Path) -> Result<(), Failure> {
    // An existing file stays until there is a chart.
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(place);
    opened.map(drop).map_err(|error| Failure::access("write", place, &error))
}

/// Draws the panels into a file. Fails if the file cannot be written.
pub(crate) fn write(panels: &[Panel], place: &Path) -> Result<(), Failure> {
    fs::write(place, svg(panels)?).map_err(|error| Failure::access("write", place, &error))
}

/// The SVG document.
fn svg(panels: &[Panel]) -> Result<String, Failure> {
    let columns = panels.len().clamp(1, COLUMNS);
    let rows = panels.len().div_ceil(columns).max(1);
    let size = |panels: usize, pixels: u32| pixels * u32::try_from(panels).unwrap_or(1);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (size(columns, PANEL.0), size(rows, PANEL.1)))
            .into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        for (panel, place) in panels.iter().zip(area.split_evenly((rows, columns))) {
            panel.draw(&place)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

impl Panel {
    fn draw(&self, place: &Area<'_>) -> Result<(), Failure> {
        let centred = (FONT, 16).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
        let middle = i32::try_from(PANEL.0 / 2).unwrap_or(0);
        let title = Text::new(self.title.clone(), (middle, 10), centred);
        place.draw(&title).map_err(failed)?;
        let mut chart = self.axes(place)?;
        let (from, until) = self.seconds;
        if from < 0.0 {
            let unmeasured = Rectangle::new([(from, 0.0), (0.0, self.top)], BLACK.mix(0.08).filled());
            chart.draw_series([unmeasured]).map_err(failed)?;
        }
        for (number, (line, colour)) in self.lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let limit = DashedLineSeries::new(line.limit.clone(), 5, 4, colour.stroke_width(1));
            chart.draw_series(limit).map_err(failed)?;
            if let Some((_, at)) = line.limit.last() {
                let style = (FONT, 11).into_font().color(colour).pos(Pos::new(HPos::Right, VPos::Bottom));
                let label = Text::new(line.limit_label.clone(), (until, at + self.top / 100.0), style);
                chart.draw_series([label]).map_err(failed)?;
            }
            let points = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2));
            chart.draw_series(points).map_err(failed)?;
            legend(place, number, &line.label, *colour)?;
        }
        Ok(())
    }

    /// Axes with ticks at whole seconds: for half ones there would have to be more than twice as many as seconds.
    fn axes<'a, 'b>(&self, place: &'a Area<'b>) -> Result<Chart<'a, 'b>, Failure> {
        let (from, until) = self.seconds;
        let mut chart: Chart<'_, '_> = ChartBuilder::on(place)
            .margin(10)
            .margin_top(56)
            .x_label_area_size(34)
            .y_label_area_size(44)
            .build_cartesian_2d(from..until, 0.0..self.top)
            .map_err(failed)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of ticks, bounded"
        )]
        let ticks = (2.0 * (until - from)).clamp(2.0, 12.0) as usize;
        let whole = |at: &f64| format!("{at:.0}");
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.1))
            .x_desc("seconds")
            .y_desc(self.y)
            .y_labels(6)
            .x_labels(ticks)
            .x_label_formatter(&whole)
            .y_label_formatter(&whole)
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 13))
            .draw()
            .map_err(failed)?;
        Ok(chart)
    }
}

/// One entry of the legend, below the title.
fn legend(place: &Area<'_>, number: usize, label: &str, colour: RGBColor) -> Result<(), Failure> {
    let (x, y) = (LEGEND.0 + ENTRY * i32::try_from(number).unwrap_or(0), LEGEND.1);
    let square = Rectangle::new([(x, y), (x + SQUARE, y + SQUARE)], colour.filled());
    place.draw(&square).map_err(failed)?;
    let style = (FONT, 12).into_font().color(&BLACK);
    let text = Text::new(label.to_owned(), (x + SQUARE + 5, y - 2), style);
    place.draw(&text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_lines_limits_and_whole_seconds() {
        let line = |label: &str, cap: f64| Line {
            label: label.to_owned(),
            points: vec![(-0.5, 0.0), (0.5, cap), (1.5, cap - 0.4)],
            limit: vec![(-1.0, cap), (3.0, cap)],
            limit_label: format!("cap {cap} %"),
        };
        let panel = Panel {
            title: "two tenants".to_owned(),
            y: "% of the GPU",
            seconds: (-1.0, 3.0),
            top: 100.0,
            lines: vec![line("a", 30.0), line("b", 60.0)],
        };
        let text = svg(&[panel]).unwrap();
        let thick = |line: &&str| line.contains("<polyline") && line.contains("stroke-width=\"2\"");
        assert_eq!(text.lines().filter(thick).count(), 2, "{text}");
        let mut words: Vec<&str> = text.lines().filter(|line| !line.starts_with('<')).collect();
        words.retain(|word| !word.is_empty());
        for word in ["two tenants", "a", "b", "cap 30 %", "cap 60 %", "-1", "0", "1", "2", "3"] {
            assert!(words.contains(&word), "{word}: {words:?}");
        }
        assert!(!text.contains("0.5\n"), "{text}");
    }
}
