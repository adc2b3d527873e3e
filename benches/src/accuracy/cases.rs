//! Tenants alone on a GPU: every kind of program, every cap, one and many processes.

use anyhow::Result;

use super::figures::{mean, mean_absolute_error};
use super::{Bench, Figure, Goal, Row, SECOND_NS};
use crate::lab::Load;

/// A program that wants the whole GPU (`apps/load.c`).
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// For people.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// The longest thing that it launches (ns): nothing can be held within that.
    pub longest_ns: u64,
}

const fn program(name: &'static str, arguments: &'static [&'static str], longest_ns: u64) -> Program {
    Program {
        name,
        arguments,
        longest_ns,
    }
}

/// Every kind.
pub const PROGRAMS: [Program; 10] = [
    program("kernels of 10 us", &["kernel", "10000"], 10_000),
    program("10 us, each waited for", &["sync", "10000"], 10_000),
    program("mix of 8 us to 5 ms", &["mix"], 5_000_000),
    program("heavy tail to 20 ms", &["tail"], 20_000_000),
    program("50 ms, each waited for", &["sync", "50000000"], 50_000_000),
    program("graphs of 1 ms", &["graph", "100000"], 1_000_000),
    program("four streams of 500 us", &["streams", "500000"], 2_000_000),
    program("50 us, then 20 ms, by turns", &["phases"], 20_000_000),
    program(
        "1 ms graphs, each captured anew",
        &["capture", "50000"],
        1_000_000,
    ),
    program("kernels of 20 ms", &["kernel", "20000000"], 20_000_000),
];

/// One nanosecond count in percent of another.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(super) fn percent(part_ns: u64, whole_ns: u64) -> f64 {
    part_ns as f64 / whole_ns as f64 * 100.0
}

/// What `windows` of one second say of a cap (`cap` in percent): mean error and mean absolute error of the windows. Of a
/// kernel that runs across the end of a measurement nobody can hold the rest back.
fn figures(windows: &[f64], cap: f64, longest_ns: u64) -> Vec<Figure> {
    let got = mean(windows) * 100.0;
    let all_ns = SECOND_NS * windows.len() as u64;
    let floor_percent = percent(longest_ns, all_ns) / cap * 100.0;
    let error = ((got - cap) / cap * 100.0).abs();
    let points = mean_absolute_error(windows, cap / 100.0);
    vec![
        Figure::new("mean error, % of cap", error, Goal::AtMost(1.0 + floor_percent)),
        Figure::new(
            "MAE, points",
            points,
            Goal::AtMost(0.3 + percent(longest_ns, SECOND_NS) / 2.0),
        ),
    ]
}

/// One tenant alone under a cap (percent).
///
/// # Errors
/// See [`Bench::shares`].
fn cap(bench: &Bench, program: &Program, cap: u32) -> Result<Row> {
    let cap_text = cap.to_string();
    let quota = ["--cores", &cap_text];
    let load = Load {
        quota: &quota,
        program: program.arguments,
        processes: 1,
    };
    let windows = bench.shares(20_000, &[load])?.concat();
    Ok(Row {
        case: format!("{cap} %: {}", program.name),
        shares: vec![mean(&windows) * 100.0],
        figures: figures(&windows, cap.into(), program.longest_ns),
    })
}

/// Every program under each cap (percent).
///
/// # Errors
/// See [`Bench::shares`].
pub fn caps(bench: &Bench, programs: &[Program], caps: &[u32]) -> Result<Vec<Row>> {
    let cases = programs
        .iter()
        .flat_map(|program| caps.iter().map(move |one| (program, *one)));
    cases.map(|(program, one)| cap(bench, program, one)).collect()
}

/// So many processes of one tenant under a cap of 30 %: the same in all, and shared fairly.
///
/// # Errors
/// See [`Bench::shares`].
pub fn processes(bench: &Bench, program: &Program, count: usize) -> Result<Row> {
    let load = Load {
        quota: &["--cores", "30"],
        program: program.arguments,
        processes: count,
    };
    let mut lab = bench.lab(20_000)?;
    lab.start(load)?;
    lab.run_for(super::WARM_UP_NS)?;
    let before = lab.service_ns()?.concat();
    let windows = lab.windows(bench.windows, SECOND_NS)?.concat();
    let after = lab.service_ns()?.concat();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let served: Vec<f64> = after
        .iter()
        .zip(&before)
        .map(|(after, before)| (after - before) as f64)
        .collect();
    let most = served.iter().copied().fold(f64::NAN, f64::max);
    let mut figures = figures(&windows, 30.0, program.longest_ns);
    figures.push(Figure::new(
        "most to least served",
        most / crate::least(&served),
        Goal::AtMost(1.1),
    ));
    Ok(Row {
        case: format!("30 %, {count} processes: {}", program.name),
        shares: vec![mean(&windows) * 100.0],
        figures,
    })
}
