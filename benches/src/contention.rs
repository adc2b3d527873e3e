//! Scaling of concurrent allocations by many threads of two processes, with and without the shim.
//!
//! ```text
//! cargo build --release && cargo run --release -p vcuda-benches --bin contention [-- --check] [--brief]
//! ```
//!
//! 8 threads in each of 2 processes of one tenant allocate and free for half a second, then 1 thread of 1 process. The
//! output is allocations (each with its free) per second, and the ratio of many to one: the scaling of the driver alone and
//! under the shim. Bare and hooked runs alternate; the goal applies to the median ratio of five pairs. There are two
//! drivers: one that only counts addresses in an atomic word (`apps/noop.c`), and the simulated one, which takes a
//! process-wide lock as NVIDIA's does.

use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use vcuda_benches::{Driver, Options, Stage, median, printed};
use vcuda_region::clock::now_ns;

/// Duration of a measurement, and of the start before it (s).
#[derive(Clone, Copy)]
struct Span {
    lead: f64,
    measured: f64,
    /// Latest end of a process (s).
    late: f64,
}

/// Allocations per second of `processes` with `threads` each.
fn rate(
    stage: &Stage,
    span: Span,
    driver: Driver,
    hooked: bool,
    (processes, threads): (usize, usize),
) -> Result<f64> {
    let quota: Option<&[&str]> = hooked.then_some(&["--memory", "8GiB"]);
    #[expect(clippy::cast_precision_loss, reason = "seconds of a clock")]
    let start = now_ns() as f64 / 1e9 + span.lead;
    // One tenant: a shell that starts all of its processes.
    let one = format!(
        "'{}' {start} {threads} {} {}",
        stage.program("contention").display(),
        span.measured,
        span.late
    );
    let script = format!("{} wait", format!("{one} & ").repeat(processes));
    let mut command = stage.command(driver, quota);
    command.args(["sh", "-c", &script]).stdin(Stdio::null());
    let text = printed(&mut command)?;
    let rates: Vec<f64> =
        text.split_ascii_whitespace().map(|rate| rate.parse().context("no number")).collect::<Result<_>>()?;
    ensure!(rates.len() == processes, "{} of {processes} finished", rates.len());
    Ok(rates.iter().sum())
}

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn main() -> Result<ExitCode> {
    let mut options = Options::from_arguments()?;
    let stage = Stage::new(&["contention"])?;
    let span = if options.brief {
        Span {
            lead: 0.3,
            measured: 0.02,
            // Even on a busy machine, as the figures are not used.
            late: 1e6,
        }
    } else {
        Span { lead: 1.0, measured: 0.5, late: 1.0 }
    };
    let mut table = comfy_table::Table::new();
    table.set_header(["driver", "", "1 thread, 1/s", "8 threads x 2, 1/s", "many to one"]);
    for (name, driver) in [("does nothing", Driver::Noop), ("simulated", Driver::Simulated)] {
        // Indices: bare or hooked, one or many.
        let mut rates = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
        let mut ratios = Vec::new();
        for _ in 0..options.rounds(5) {
            let mut scales = [0.0; 2];
            for ((hooked, rates), scale) in [false, true].into_iter().zip(&mut rates).zip(&mut scales) {
                let one = rate(&stage, span, driver, hooked, (1, 1))?;
                let many = rate(&stage, span, driver, hooked, (2, 8))?;
                let [ones, manies] = rates;
                ones.push(one);
                manies.push(many);
                *scale = many / one;
            }
            let [bare, hooked] = scales;
            ratios.push(hooked / bare);
        }
        for (who, rates) in ["bare", "shim"].into_iter().zip(rates) {
            let [one, many] = rates.map(median);
            table.add_row([
                name.to_owned(),
                who.to_owned(),
                format!("{one:.0}"),
                format!("{many:.0}"),
                format!("{:.2}", many / one),
            ]);
        }
        let ratio = median(ratios);
        println!(
            "{name}: with the shim allocating scales {ratio:.2} times as well as without (goal: 1 or more)"
        );
        options.at_least(&format!("{name}: scaling with the shim to without"), ratio, 1.0);
    }
    println!("{table}");
    Ok(options.verdict())
}
