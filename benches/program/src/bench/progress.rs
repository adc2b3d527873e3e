//! Progress bar on stderr, only on a terminal.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::changes;
use super::overhead::SUBJECTS;
use super::plan::Plan;
use super::running;

/// The bar, which disappears on drop.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar for the steps of the plan.
    pub(super) fn new(plan: &Plan) -> Progress {
        let overhead = if plan.has_overhead { SUBJECTS.len() + 1 + running::ROWS.len() } else { 0 };
        let changes = if plan.changes > 0 { changes::ROWS } else { 0 };
        // One more for the calibration.
        let bar = ProgressBar::new((1 + plan.rows.len() + changes + overhead) as u64);
        let style = ProgressStyle::with_template("{spinner} {pos}/{len} {wide_bar} {eta} left  {msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// Completes the present step, and begins the next one.
    pub(super) fn step(&self, what: impl Into<Cow<'static, str>>) {
        if !self.0.message().is_empty() {
            self.0.inc(1);
        }
        self.0.set_message(what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
