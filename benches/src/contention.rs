//! How allocating scales when many threads of two processes do it at once, with the shim and without.
//!
//! ```text
//! cargo build --release --workspace && cargo run --release -p vcuda-benches --bin contention
//! ```
//!
//! 8 threads in each of 2 processes of one tenant allocate and free for half a second; so does 1 thread of 1 process.
//! Printed are allocations (each with its free) per second, and the ratio of many to one: how the driver scales by itself,
//! and how it scales under the shim. Bare and hooked runs alternate, medians of five. Two drivers: one that does nothing
//! but count addresses in an atomic word (`apps/noop.c`), and the simulated one, which takes a lock of its process as
//! NVIDIA's does.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use vcuda_benches::{Driver, Stage, median, printed};
use vcuda_region::clock::now_ns;

const SECONDS: &str = "0.5";
/// From the start of the processes to the start of the measurement.
const LEAD_SECONDS: f64 = 1.0;

/// Allocations per second of `processes` with `threads` each.
fn rate(stage: &Stage, driver: Driver, hooked: bool, processes: usize, threads: usize) -> Result<f64> {
    let quota: Option<&[&str]> = hooked.then_some(&["--memory", "8GiB"]);
    #[expect(clippy::cast_precision_loss, reason = "seconds of a clock")]
    let start = now_ns() as f64 / 1e9 + LEAD_SECONDS;
    // One tenant: a shell that starts all of its processes.
    let one = format!(
        "'{}' {start} {threads} {SECONDS}",
        stage.program("contention").display()
    );
    let script = format!("{} wait", format!("{one} & ").repeat(processes));
    let mut command = stage.command(driver, quota);
    command.args(["sh", "-c", &script]).stdin(Stdio::null());
    let text = printed(&mut command)?;
    let rates: Vec<f64> = text
        .split_ascii_whitespace()
        .map(|rate| rate.parse().context("no number"))
        .collect::<Result<_>>()?;
    ensure!(
        rates.len() == processes,
        "{} of {processes} finished",
        rates.len()
    );
    Ok(rates.iter().sum())
}

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn main() -> Result<()> {
    let stage = Stage::new(&["contention"])?;
    let mut table = comfy_table::Table::new();
    table.set_header(["driver", "", "1 thread, 1/s", "8 threads x 2, 1/s", "many to one"]);
    for (name, driver) in [("does nothing", Driver::Noop), ("simulated", Driver::Simulated)] {
        // [bare, hooked][one, many]
        let mut rates = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
        for _ in 0..5 {
            for (hooked, rates) in [false, true].into_iter().zip(&mut rates) {
                for ((processes, threads), rates) in [(1, 1), (2, 8)].into_iter().zip(rates) {
                    rates.push(rate(&stage, driver, hooked, processes, threads)?);
                }
            }
        }
        let mut scales = Vec::new();
        for (who, rates) in ["bare", "shim"].into_iter().zip(rates) {
            let [one, many] = rates.map(median);
            scales.push(many / one);
            table.add_row([
                name.to_owned(),
                who.to_owned(),
                format!("{one:.0}"),
                format!("{many:.0}"),
                format!("{:.2}", many / one),
            ]);
        }
        if let [bare, hooked] = scales[..] {
            println!(
                "{name}: with the shim allocating scales {:.2} times as well as without (goal: 1 or more)",
                hooked / bare
            );
        }
    }
    println!("{table}");
    Ok(())
}
