//! What the demo has shown so far, and its picture: shares of GPU time over time, and memory beside the quotas.

use std::path::Path;

use vcuda_cli::failure::Failure;
use vcuda_cli::render::{Snapshot, TenantView};
use vcuda_region::clock;

use crate::chart::{self, Line, Panel};

/// Figures of the tenants since the demo's first table.
#[derive(Debug, Default)]
pub(super) struct History {
    begun_ns: Option<u64>,
    tenants: Vec<Tenant>,
}

/// Points (second, figure) of one tenant.
#[derive(Debug)]
struct Tenant {
    name: String,
    /// Share and cap (percent).
    shares: [Vec<(f64, f64)>; 2],
    /// Memory and quota (GiB).
    memory: [Vec<(f64, f64)>; 2],
}

impl History {
    /// Notes the memory of the tenants in a snapshot, and their shares if the snapshot is of a whole second.
    pub(super) fn note(&mut self, snapshot: &Snapshot, is_of_a_second: bool) {
        let now_ns = clock::now_ns();
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a minute")]
        let second = now_ns.saturating_sub(begun_ns) as f64 / 1e9;
        for view in snapshot.gpus.iter().flat_map(|gpu| &gpu.tenants) {
            self.tenant(&view.name).note(view, second, is_of_a_second);
        }
        let is_here = |name: &str| {
            snapshot
                .gpus
                .iter()
                .flat_map(|gpu| &gpu.tenants)
                .any(|view| view.name == name)
        };
        for gone in self.tenants.iter_mut().filter(|tenant| !is_here(&tenant.name)) {
            step(&mut gone.memory[0], second, 0.0);
        }
    }

    fn tenant(&mut self, name: &str) -> &mut Tenant {
        let known = self.tenants.iter().position(|tenant| tenant.name == name);
        let place = known.unwrap_or_else(|| {
            self.tenants.push(Tenant {
                name: name.to_owned(),
                shares: Default::default(),
                memory: Default::default(),
            });
            self.tenants.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or just added")]
        &mut self.tenants[place]
    }

    /// Draws both charts into a file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn draw(&self, place: &Path) -> Result<(), Failure> {
        let all = || self.tenants.iter();
        let points = all().flat_map(|tenant| tenant.memory.iter().chain(&tenant.shares).flatten());
        let until = points
            .fold(1.0_f64, |until, (second, _)| until.max(*second))
            .ceil();
        let quotas = all().flat_map(|tenant| tenant.memory.iter().flatten());
        let top = quotas.fold(1.0_f64, |top, (_, gib)| top.max(*gib)) * 1.2;
        let busy = all().filter(|tenant| tenant.shares[0].iter().any(|(_, percent)| *percent >= 1.0));
        let panel = |title: &str, y, top, lines| Panel {
            title: title.to_owned(),
            y,
            seconds: (0.0, until),
            top,
            lines,
        };
        let panels = [
            panel(
                "GPU time, beside the caps",
                "% of the GPU",
                100.0,
                busy.map(|tenant| tenant.line(&tenant.shares, "%")).collect(),
            ),
            panel(
                "memory, beside the quotas",
                "GiB",
                top,
                all().map(|tenant| tenant.line(&tenant.memory, "GiB")).collect(),
            ),
        ];
        chart::write(&panels, place)
    }
}

impl Tenant {
    fn note(&mut self, view: &TenantView, second: f64, is_of_a_second: bool) {
        #[expect(clippy::cast_precision_loss, reason = "a quarter of a MiB is enough")]
        let gib = |bytes: u64| (bytes >> 18) as f64 / 4096.0;
        let percent = |permille: u32| f64::from(permille) / 10.0;
        let [memory, quotas] = &mut self.memory;
        step(memory, second, gib(view.memory_used_bytes));
        step(quotas, second, gib(view.memory_limit_bytes));
        if is_of_a_second {
            let [shares, caps] = &mut self.shares;
            shares.push((second, percent(view.core_used_permille)));
            step(caps, second, percent(view.core_limit_permille));
        }
    }

    fn line(&self, [figures, limits]: &[Vec<(f64, f64)>; 2], unit: &str) -> Line {
        Line {
            label: self.name.clone(),
            points: figures.clone(),
            limit: limits.clone(),
            limit_label: limits
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
