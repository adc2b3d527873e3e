//! Cost of the shim when many GPU programs start at once.
//!
//! ```text
//! cargo build --release && cargo run --release -p vcuda-benches --bin starts [-- PROCESSES PAIRS] [--check]
//! ```
//!
//! PROCESSES (default 300) wait at a gate. When it opens, each becomes a program that makes a context, allocates 1 MiB and
//! ends (`apps/starts.c`, `apps/start.c`): in turn as processes of one tenant under the shim, and without it. The output is
//! median and 99th percentile of the time from the gate to the end of each process, and the median over PAIRS (default 7)
//! of the shim's addition. There are two drivers: one that does nothing, so that only the shim remains, and the simulated
//! one. The shim asks NVML for the processes once at each start. On the simulated driver, programs without the shim do the
//! same, so that the simulator's cost of it is in both. It serves 256 processes, so 200 are started. `--brief` only shows
//! that it works.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use vcuda_benches::{Driver, Options, Stage, median, printed};

/// Maximum for the simulated machine, which serves 256 processes.
const MOST_SIMULATED: usize = 200;
/// Maximum that the shim may add at the 99th percentile (ms).
const GOAL_MS: f64 = 20.0;

/// Times from the gate to the end of each process (ms), sorted.
fn times(stage: &Stage, driver: Driver, hooked: bool, processes: usize) -> Result<Vec<f64>> {
    let quota: Option<&[&str]> = hooked.then_some(&["--memory", "70GiB"]);
    let mut command = stage.command(driver, quota);
    command.arg(stage.program("starts")).arg(processes.to_string()).arg(stage.program("start"));
    if driver == Driver::Simulated && !hooked {
        command.arg("nvml");
    }
    let text = printed(&mut command)?;
    let mut times: Vec<f64> =
        text.split_ascii_whitespace().map(|time| time.parse().context("no number")).collect::<Result<_>>()?;
    ensure!(times.len() == processes, "{} of {processes} ended", times.len());
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Value that `percent` of the times do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = sorted.len().saturating_sub(1) * percent / 100;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn main() -> Result<ExitCode> {
    let mut options = Options::from_arguments()?;
    let usual = if options.brief { 8 } else { 300 };
    let processes = options.numbers.first().copied().unwrap_or(usual);
    let pairs = options.rounds(options.numbers.get(1).copied().unwrap_or(7));
    let stage = Stage::new(&["start", "starts"])?;
    let mut table = comfy_table::Table::new();
    table.set_header(["driver", "of the processes", "bare ms", "shim ms", "added ms", "goal ms"]);
    for (name, driver) in [("does nothing", Driver::Noop), ("simulated", Driver::Simulated)] {
        let processes = match driver {
            Driver::Noop | Driver::Timed => processes,
            Driver::Simulated => processes.min(MOST_SIMULATED),
        };
        let mut seen: Vec<[Vec<f64>; 2]> = Vec::new();
        for _ in 0..pairs {
            let bare = times(&stage, driver, false, processes)?;
            seen.push([bare, times(&stage, driver, true, processes)?]);
        }
        for percent in [50, 99] {
            let of = |which: usize| -> Vec<f64> {
                let each = seen.iter().filter_map(|pair| pair.get(which));
                each.map(|times| percentile(times, percent)).collect()
            };
            let pairs = of(0).into_iter().zip(of(1));
            let added = median(pairs.map(|(bare, hooked)| hooked - bare).collect());
            let is_goal = percent == 99;
            if is_goal {
                options.at_most(&format!("{name}, 99th percentile"), added, GOAL_MS);
            }
            table.add_row([
                name.to_owned(),
                format!("{percent} % of {processes}"),
                format!("{:.1}", median(of(0))),
                format!("{:.1}", median(of(1))),
                format!("{added:.1}"),
                if is_goal { format!("{GOAL_MS:.0}") } else { String::new() },
            ]);
        }
    }
    println!("{table}");
    Ok(options.verdict())
}
