//! Accuracy of today's tools on the same simulated GPU: models of their limiters in virtual time, with the figures that
//! `docs/evidence.md` has for vcuda.
//!
//! ```text
//! cargo run --release -p vcuda-benches --bin peers [-- WINDOWS]
//! ```
//!
//! Each tenant is one saturating process with one stream; slices of 2 ms, a switch of 20 us; shares over windows of 1 s
//! after 30 s of settling. The models follow the tools' publications (`docs/evidence.md` names the sources): they show such
//! an algorithm, not a release of the tool on a GPU.
#![warn(clippy::too_many_lines)]

mod limiter;
mod program;
mod stage;

use anyhow::Result;
use comfy_table::Table;
use vcuda_benches::Options;

use self::limiter::Kind;
use self::program::Program;

/// Number of windows before the measurement, as refill rates begin at zero and NVML's figure is late.
const WARM_UP: usize = 30;
/// Number of measured windows.
const WINDOWS: usize = 8;
const ALONE: [u32; 4] = [10, 30, 50, 80];
const TOGETHER: [&[u32]; 4] = [&[10, 90], &[30, 70], &[50, 50], &[10, 20, 30, 40]];

/// Error of a tenant's share against its cap.
struct Error {
    /// Mean error (percent of the cap).
    mean: f64,
    /// Mean absolute error over the windows (points).
    absolute: f64,
    /// Mean share over the cap.
    used: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a few windows")]
fn error(shares: &[f64], cap: f64) -> Error {
    let count = shares.len().max(1) as f64;
    let mean = shares.iter().sum::<f64>() / count;
    Error {
        mean: (mean / cap - 1.0) * 100.0,
        absolute: shares.iter().map(|share| (share - cap).abs()).sum::<f64>() / count,
        used: mean / cap,
    }
}

/// Jain's index of shares over caps; 1 is perfectly fair.
#[expect(clippy::cast_precision_loss, reason = "a few tenants")]
fn jain(used: &[f64]) -> f64 {
    let sum: f64 = used.iter().sum();
    let squares: f64 = used.iter().map(|one| one * one).sum();
    sum * sum / (used.len() as f64 * squares)
}

#[expect(clippy::print_stdout, reason = "the tables are what the program is for")]
fn main() -> Result<()> {
    let options = Options::from_arguments()?;
    let span = match options.numbers.first() {
        _ if options.brief => (1, 1),
        Some(windows) => (WARM_UP, *windows),
        None => (WARM_UP, WINDOWS),
    };
    println!("{}\n\n{}", alone(span)?, together(span)?);
    Ok(())
}

/// Tenants alone on the GPU, with the numbers of warm-up and of measured windows.
fn alone((warm_up, windows): (usize, usize)) -> Result<Table> {
    let mut table = Table::new();
    table.set_header(["limiter", "program", "cap %", "mean error, % of cap", "MAE, points"]);
    for kind in [Kind::BlockTokens, Kind::Aimd] {
        for program in Program::ALL {
            for cap in ALONE {
                let shares = stage::shares(kind, program, &[cap], warm_up, windows)?;
                let found = error(shares.first().map_or(&[], Vec::as_slice), f64::from(cap));
                table.add_row([
                    kind.name().to_owned(),
                    program.name().to_owned(),
                    cap.to_string(),
                    format!("{:+.1}", found.mean),
                    format!("{:.1}", found.absolute),
                ]);
            }
        }
    }
    Ok(table)
}

/// Concurrent tenants, with the numbers of warm-up and of measured windows.
fn together((warm_up, windows): (usize, usize)) -> Result<Table> {
    let mut table = Table::new();
    table.set_header(["limiter", "program", "caps %", "shares %", "weighted Jain", "total %"]);
    for kind in Kind::ALL {
        for program in [Program::Tiny, Program::Mix] {
            for caps in TOGETHER {
                let shares = stage::shares(kind, program, caps, warm_up, windows)?;
                let used_of = |(shares, cap): (&Vec<f64>, &u32)| error(shares, f64::from(*cap)).used;
                let used: Vec<f64> = shares.iter().zip(caps).map(used_of).collect();
                let percents: Vec<f64> =
                    used.iter().zip(caps).map(|(used, cap)| used * f64::from(*cap)).collect();
                let words = |numbers: Vec<String>| numbers.join(" / ");
                table.add_row([
                    kind.name().to_owned(),
                    program.name().to_owned(),
                    words(caps.iter().map(ToString::to_string).collect()),
                    words(percents.iter().map(|share| format!("{share:.1}")).collect()),
                    format!("{:.3}", jain(&used)),
                    format!("{:.1}", percents.iter().sum::<f64>()),
                ]);
            }
        }
    }
    Ok(table)
}
