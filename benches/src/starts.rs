//! What the shim adds to the start of many GPU programs at once.
//!
//! ```text
//! cargo build --release --workspace && cargo run --release -p vcuda-benches --bin starts [-- PROCESSES [PAIRS]]
//! ```
//!
//! PROCESSES (default 300) are started at once, each of which makes a context, allocates 1 MiB on the simulated GPU and
//! ends (`apps/start.c`): as one tenant's under the shim, and without it, in turn. Printed are the median and the 99th
//! percentile of the time from the common start to the end of each process, and the median over the pairs (default 7) of
//! what the shim adds.

use anyhow::{Context as _, Result, ensure};
use vcuda_benches::{Driver, Stage, median, printed};

/// Times from the common start to the end of each process (ms), sorted.
fn times(stage: &Stage, hooked: bool, processes: usize) -> Result<Vec<f64>> {
    let quota: Option<&[&str]> = hooked.then_some(&["--memory", "70GiB"]);
    let mut command = stage.command(Driver::Simulated, quota);
    command
        .arg(stage.program("starts"))
        .arg(processes.to_string())
        .arg(stage.program("start"));
    let text = printed(&mut command)?;
    let mut times: Vec<f64> = text
        .split_ascii_whitespace()
        .map(|time| time.parse().context("no number"))
        .collect::<Result<_>>()?;
    ensure!(times.len() == processes, "{} of {processes} ended", times.len());
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The value below which `percent` of them lie.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<usize>());
    let processes = numbers.next().transpose()?.unwrap_or(300);
    let pairs = numbers.next().transpose()?.unwrap_or(7);
    let stage = Stage::new(&["start", "starts"])?;
    let mut table = comfy_table::Table::new();
    table.set_header(["", "bare ms", "shim ms", "added ms"]);
    let mut seen: Vec<[Vec<f64>; 2]> = Vec::new();
    for _ in 0..pairs {
        seen.push([times(&stage, false, processes)?, times(&stage, true, processes)?]);
    }
    for percent in [50, 99] {
        let of = |which: usize| -> Vec<f64> {
            let each = seen.iter().filter_map(|pair| pair.get(which));
            each.map(|times| percentile(times, percent)).collect()
        };
        let added = of(0)
            .into_iter()
            .zip(of(1))
            .map(|(bare, hooked)| hooked - bare)
            .collect();
        table.add_row([
            format!("{percent}th percentile of {processes}"),
            format!("{:.1}", median(of(0))),
            format!("{:.1}", median(of(1))),
            format!("{:.1}", median(added)),
        ]);
    }
    println!("{table}");
    println!("goal: at most 20 ms added at the 99th percentile");
    Ok(())
}
