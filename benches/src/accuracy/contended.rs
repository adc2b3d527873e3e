//! Tenants that compete for one GPU, and changes of limits.

use anyhow::{Context as _, Result};

use vcuda_figures::{STEP_NS, first_there, jain, mean, mean_absolute_error, ratio_error};

use super::cases::{Program, percent};
use super::{Bench, Figure, Goal, Row, SWITCH_NS, WARM_UP_NS};
use crate::lab::{Lab, Load};

/// Step of the measurement of latencies (ms).
const STEP_MS: f64 = 5.0;
/// Time without service after which a program counts as idle, not throttled (ns).
const IDLE_NS: u64 = 300_000_000;

/// Tenants whose caps add up to the whole GPU.
#[derive(Debug, Clone, Copy)]
pub struct Split<'a> {
    /// Caps (percent).
    pub caps: &'a [u32],
    /// Program of all tenants.
    pub program: &'a Program,
    /// Duration of a context switch (ns).
    pub switch_ns: u64,
}

/// Part of the GPU's time that context switches leave if contexts take turns all the time. No tenant can have the rest.
fn left_by_switches(bench: &Bench, switch_ns: u64) -> f64 {
    percent(bench.slice_ns, bench.slice_ns + switch_ns) / 100.0
}

/// Concurrent tenants. Goals apply at the default switch cost; for others the figures are only reported.
pub fn splits(bench: &Bench, split: &Split<'_>) -> Result<Row> {
    let Split { caps, program, switch_ns } = *split;
    let texts: Vec<String> = caps.iter().map(ToString::to_string).collect();
    let quotas: Vec<[&str; 2]> = texts.iter().map(|cap| ["--cores", cap.as_str()]).collect();
    let loads: Vec<Load<'_>> =
        quotas.iter().map(|quota| Load { quota, program: program.arguments, processes: 1 }).collect();
    let windows = bench.shares(switch_ns, &loads)?;
    let got: Vec<f64> = windows.iter().map(|windows| mean(windows)).collect();
    let shares: Vec<f64> = caps.iter().map(|cap| f64::from(*cap) / 100.0).collect();
    let errors: Vec<f64> =
        windows.iter().zip(&shares).map(|(w, share)| mean_absolute_error(w, *share) * 100.0).collect();
    let of_shares: Vec<f64> = got.iter().zip(&shares).map(|(got, share)| got / share).collect();
    let is_default = switch_ns == SWITCH_NS;
    let goal = |goal| if is_default { goal } else { Goal::None };
    let allowed = shares.iter().sum::<f64>() * left_by_switches(bench, switch_ns);
    let worst = worst_error(&got, &shares) * 100.0;
    Ok(Row {
        case: format!("{} at {} us a switch: {}", texts.join(":"), switch_ns / 1000, program.name),
        shares: got.iter().map(|share| share * 100.0).collect(),
        figures: vec![
            Figure::new("worst error, points", worst, goal(Goal::AtMost(1.0))),
            Figure::new("ratio error, %", ratio_error(&of_shares) * 100.0, Goal::None),
            Figure::new("weighted Jain", jain(&of_shares), goal(Goal::AtLeast(0.995))),
            Figure::new(
                "used of what caps and switches allow",
                got.iter().sum::<f64>() / allowed,
                goal(Goal::AtLeast(0.98)),
            ),
            Figure::new("MAE, points", mean(&errors), Goal::None),
        ],
    })
}

/// Distance of the worst tenant from its part of the used time (1 is the whole GPU). Context switches count for no tenant.
pub fn worst_error(got: &[f64], shares: &[f64]) -> f64 {
    let whole = got.iter().sum::<f64>() / shares.iter().sum::<f64>();
    let off = got.iter().zip(shares).map(|(got, share)| (got / whole - share).abs());
    off.fold(0.0, f64::max)
}

fn alone<'a>(quota: &'a [&'a str], program: &'a [&'a str]) -> Load<'a> {
    Load { quota, program, processes: 1 }
}

/// Waits until `tenant`, whose program is idle at times, is idle and begins again. Returns the duration of its idleness
/// (ns).
fn until_it_begins(lab: &Lab, tenant: usize) -> Result<u64> {
    let is_idle = || -> Result<bool> {
        let step = lab.windows(1, STEP_NS)?;
        let own = step.get(tenant).context("no such tenant")?;
        Ok(own.iter().all(|share| *share == 0.0))
    };
    let mut idle_ns = 0;
    loop {
        if is_idle()? {
            idle_ns += STEP_NS;
        } else if idle_ns >= IDLE_NS {
            break;
        } else {
            idle_ns = 0;
        }
    }
    Ok(idle_ns)
}

/// Time until the mean of four steps of `tenant` satisfies `is_there` (ms); NaN if it does not within a second.
fn ms_until(lab: &Lab, tenant: usize, is_there: impl Fn(f64) -> bool) -> Result<f64> {
    let steps = lab.windows(200, STEP_NS)?;
    let steps = steps.get(tenant).context("no such tenant")?;
    let first = first_there(steps, is_there);
    Ok(first.map_or(f64::NAN, |first| percent(first as u64 * STEP_NS, 100_000_000)))
}

/// `burst`: the guarantee holds beside a tenant that takes all it can get, and is reached soon after idleness.
pub fn bursts(bench: &Bench) -> Result<Vec<Row>> {
    let guaranteed = ["--cores", "30", "--policy", "burst"];
    let mut rows = Vec::new();
    for (name, antagonist) in [("10 us", ["kernel", "10000"]), ("5 ms", ["kernel", "5000000"])] {
        let loads = [
            alone(&guaranteed, &["kernel", "500000"]),
            alone(&["--cores", "70", "--policy", "burst"], &antagonist),
        ];
        let windows = bench.shares(SWITCH_NS, &loads)?;
        let got: Vec<f64> = windows.iter().map(|windows| mean(windows)).collect();
        let left = left_by_switches(bench, SWITCH_NS);
        let first = got.first().copied().unwrap_or(f64::NAN);
        let second = got.get(1).copied().unwrap_or(f64::NAN);
        rows.push(Row {
            case: format!("burst 30 % beside an antagonist with kernels of {name}"),
            shares: got.iter().map(|share| share * 100.0).collect(),
            figures: vec![
                Figure::new("of the guarantee", first / (0.30 * left), Goal::AtLeast(0.97)),
                Figure::new("of the antagonist's", second / (0.70 * left), Goal::AtLeast(0.97)),
            ],
        });
    }
    let mut lab = bench.lab(SWITCH_NS)?;
    let idler = lab.start(alone(&guaranteed, &["bursts", "500000", "1000"]))?;
    lab.start(alone(&["--cores", "20", "--policy", "burst"], &["kernel", "500000"]))?;
    lab.run_for(WARM_UP_NS)?;
    let idle_ns = until_it_begins(&lab, idler)?;
    let ms = STEP_MS + ms_until(&lab, idler, |share| share >= 0.9 * 0.30)?;
    rows.push(Row {
        case: format!(
            "burst 30 % comes back after {} ms to a GPU that a neighbour has borrowed",
            idle_ns / 1_000_000
        ),
        shares: Vec::new(),
        figures: vec![Figure::new("floor regained, ms", ms, Goal::AtMost(200.0))],
    });
    Ok(rows)
}

/// Delay from idleness to the full share, and of a live change of a cap.
pub fn changes(bench: &Bench) -> Result<Vec<Row>> {
    let mut lab = bench.lab(SWITCH_NS)?;
    let idler = lab.start(alone(&["--cores", "40"], &["bursts", "100000", "1000"]))?;
    lab.run_for(WARM_UP_NS)?;
    let idle_ns = until_it_begins(&lab, idler)?;
    let ms = STEP_MS + ms_until(&lab, idler, |share| share >= 0.95 * 0.40)?;
    let idle = Row {
        case: format!("40 %, after {} ms of idleness", idle_ns / 1_000_000),
        shares: Vec::new(),
        figures: vec![Figure::new("full share after, ms", ms, Goal::AtMost(20.0))],
    };
    let mut lab = bench.lab(SWITCH_NS)?;
    let tenant = lab.start(alone(&["--cores", "30"], &["kernel", "500000"]))?;
    lab.run_for(WARM_UP_NS)?;
    lab.set(tenant, &["--cores", "70"])?;
    let ms = ms_until(&lab, tenant, |share| (share - 0.70).abs() <= 0.10)?;
    let change = Row {
        case: "30 % changed to 70 %: kernels of 500 us".into(),
        shares: Vec::new(),
        figures: vec![Figure::new("felt after, ms", ms, Goal::AtMost(50.5))],
    };
    Ok(vec![idle, change])
}
