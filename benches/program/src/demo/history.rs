//! What the demo has shown so far, and its picture: shares of GPU time over time, and memory beside the quotas.

use std::collections::BTreeMap;
use std::path::Path;

use vcuda_cli::failure::Failure;
use vcuda_cli::render::{Snapshot, TenantView};
use vcuda_region::clock;

use crate::chart::{self, Line, Panel};

/// Figures of the tenants since the demo's first bars, by name.
#[derive(Debug, Default)]
pub(super) struct History {
    begun_ns: Option<u64>,
    tenants: BTreeMap<String, Tenant>,
}

/// Figures of one tenant.
#[derive(Debug, Default)]
struct Tenant {
    /// Share and cap (percent).
    time: Curve,
    /// Memory and quota (GiB).
    memory: Curve,
}

/// A figure over time and its limit, as points (second, figure).
#[derive(Debug, Default)]
struct Curve {
    figures: Vec<(f64, f64)>,
    limits: Vec<(f64, f64)>,
}

impl History {
    /// Notes the memory of the tenants in a snapshot, and their shares if the snapshot is of a whole second.
    pub(super) fn note(&mut self, snapshot: &Snapshot, is_of_a_second: bool) {
        let now_ns = clock::now_ns();
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a minute")]
        let second = now_ns.saturating_sub(begun_ns) as f64 / 1e9;
        let views: Vec<&TenantView> = snapshot.gpus.iter().flat_map(|gpu| &gpu.tenants).collect();
        for view in &views {
            let tenant = self.tenants.entry(view.name.clone()).or_default();
            tenant.note(view, second, is_of_a_second);
        }
        for (name, tenant) in &mut self.tenants {
            if !views.iter().any(|view| view.name == *name) {
                step(&mut tenant.memory.figures, second, 0.0);
            }
        }
    }

    /// Draws both charts into a file. Fails if the file cannot be written.
    pub(super) fn draw(&self, place: &Path) -> Result<(), Failure> {
        let until = self.largest(1.0, |(second, _)| second).ceil();
        let top = self.largest(1.0, |(_, gib)| gib) * 1.2;
        let is_busy = |tenant: &Tenant| tenant.time.figures.iter().any(|(_, percent)| *percent >= 1.0);
        let busy = self.tenants.iter().filter(|(_, tenant)| is_busy(tenant));
        let times = busy.map(|(name, tenant)| tenant.time.line(name, "%"));
        let memory = self.tenants.iter();
        let memory = memory.map(|(name, tenant)| tenant.memory.line(name, "GiB"));
        let panel = |title: &str, y, top, lines| Panel {
            title: title.to_owned(),
            y,
            seconds: (0.0, until),
            top,
            lines,
        };
        let panels = [
            panel("GPU time, beside the caps", "% of the GPU", 100.0, times.collect()),
            panel("memory, beside the quotas", "GiB", top, memory.collect()),
        ];
        chart::write(&panels, place)
    }

    /// The largest coordinate of the points of memory and quotas, at least `least`.
    fn largest(&self, least: f64, coordinate: impl Fn((f64, f64)) -> f64) -> f64 {
        let curves = self.tenants.values().map(|tenant| &tenant.memory);
        let points = curves.flat_map(|curve| curve.figures.iter().chain(&curve.limits));
        points.copied().map(coordinate).fold(least, f64::max)
    }
}

impl Tenant {
    fn note(&mut self, view: &TenantView, second: f64, is_of_a_second: bool) {
        #[expect(clippy::cast_precision_loss, reason = "a quarter of a MiB is enough")]
        let gib = |bytes: u64| (bytes >> 18) as f64 / 4096.0;
        let percent = |permille: u32| f64::from(permille) / 10.0;
        step(&mut self.memory.figures, second, gib(view.memory_used_bytes));
        step(&mut self.memory.limits, second, gib(view.memory_limit_bytes));
        if is_of_a_second {
            self.time.figures.push((second, percent(view.core_used_permille)));
            step(&mut self.time.limits, second, percent(view.core_limit_permille));
        }
    }
}

impl Curve {
    fn line(&self, name: &str, unit: &str) -> Line {
        Line {
            label: name.to_owned(),
            points: self.figures.clone(),
            limit: self.limits.clone(),
            limit_label: self
                .limits
                .last()
                .map_or_else(String::new, |(_, limit)| format!("{limit:.0} {unit}")),
        }
    }
}

/// Adds a point of a figure that changes at once, not slowly since the last point.
fn step(points: &mut Vec<(f64, f64)>, second: f64, figure: f64) {
    if let Some((_, before)) = points.last() {
        points.push((second, *before));
    }
    points.push((second, figure));
}
