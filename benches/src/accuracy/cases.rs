//! Tenants alone on a GPU: every kind of program, every cap, one or many processes.

use anyhow::Result;

use vcuda_figures::{least, mean, mean_absolute_error, most};

use super::{Bench, Figure, Goal, Row, SECOND_NS, SWITCH_NS};
use crate::lab::{Lab, Load};

/// A program that saturates the GPU (`apps/load.c`).
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Name in the report.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// Duration of its longest launch, which cannot be throttled within (ns).
    pub longest_ns: u64,
}

const fn program(name: &'static str, arguments: &'static [&'static str], longest_ns: u64) -> Program {
    Program { name, arguments, longest_ns }
}

/// All kinds of programs.
pub const PROGRAMS: [Program; 11] = [
    program("kernels of 10 us", &["kernel", "10000"], 10_000),
    program("10 us, each waited for", &["sync", "10000"], 10_000),
    program("mix of 8 us to 5 ms", &["mix"], 5_000_000),
    program("heavy tail to 20 ms", &["tail"], 20_000_000),
    program("50 ms, each waited for", &["sync", "50000000"], 50_000_000),
    program("graphs of 1 ms", &["graph", "100000"], 1_000_000),
    program("four streams of 500 us", &["streams", "500000"], 2_000_000),
    program("50 us, then 20 ms, by turns", &["phases"], 20_000_000),
    program("one kernel, 7 of 5 us and one of 40, a wait", &["unlike", "5000", "7", "40000", "1"], 75_000),
    program("1 ms graphs, each captured anew", &["capture", "50000"], 1_000_000),
    program("kernels of 20 ms", &["kernel", "20000000"], 20_000_000),
];

/// A duration in percent of another.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(super) fn percent(part_ns: u64, whole_ns: u64) -> f64 {
    part_ns as f64 / whole_ns as f64 * 100.0
}

/// Mean error and mean absolute error of `windows` of one second against a cap (percent). The rest of a kernel that runs
/// across the end of a measurement cannot be throttled.
fn figures(windows: &[f64], cap: f64, longest_ns: u64) -> Vec<Figure> {
    let got = mean(windows) * 100.0;
    let all_ns = SECOND_NS * windows.len() as u64;
    let floor_percent = percent(longest_ns, all_ns) / cap * 100.0;
    let error = ((got - cap) / cap * 100.0).abs();
    let points = mean_absolute_error(windows, cap / 100.0) * 100.0;
    vec![
        Figure::new("mean error, % of cap", error, Goal::AtMost(1.0 + floor_percent)),
        Figure::new("MAE, points", points, Goal::AtMost(0.3 + percent(longest_ns, SECOND_NS) / 2.0)),
    ]
}

/// A tenant alone under a cap (percent).
fn cap(bench: &Bench, program: &Program, cap: u32) -> Result<Row> {
    let cap_text = cap.to_string();
    let quota = ["--cores", &cap_text];
    let load = Load { quota: &quota, program: program.arguments, processes: 1 };
    let windows = bench.shares(SWITCH_NS, &[load])?.concat();
    Ok(Row {
        case: format!("{cap} %: {}", program.name),
        shares: vec![mean(&windows) * 100.0],
        figures: figures(&windows, cap.into(), program.longest_ns),
    })
}

/// Every program under each cap (percent).
pub fn caps(bench: &Bench, programs: &[Program], caps: &[u32]) -> Result<Vec<Row>> {
    let cases = programs.iter().flat_map(|program| caps.iter().map(move |one| (program, *one)));
    cases.map(|(program, one)| cap(bench, program, one)).collect()
}

/// Several processes of one tenant under a cap of 30 %: the total is the same, and shared fairly.
pub fn processes(bench: &Bench, program: &Program, count: usize) -> Result<Row> {
    let load = Load { quota: &["--cores", "30"], program: program.arguments, processes: count };
    let served_ns = |lab: &Lab| Ok(lab.service_ns()?.concat());
    let all = Served { cap: 30, count, kernel_ns: program.longest_ns };
    fairness(bench, load, &all, program.longest_ns, served_ns).map(|(windows, figures)| Row {
        case: format!("30 %, {count} processes: {}", program.name),
        shares: vec![mean(&windows) * 100.0],
        figures,
    })
}

/// Several threads of one process under a cap (percent), each with kernels of this length (ns) on its own stream.
pub fn threads(bench: &Bench, cap: u32, count: usize, kernel_ns: u64) -> Result<Row> {
    let file = bench.dir.path().join("launched");
    let (cap_text, count_text, ns_text) = (cap.to_string(), count.to_string(), kernel_ns.to_string());
    let load = Load {
        quota: &["--cores", &cap_text],
        program: &["threads", &ns_text, &count_text, &file.to_string_lossy()],
        processes: 1,
    };
    // The simulator's record has processes, not threads, so launches are counted.
    let served_ns = |_: &Lab| {
        let counts = std::fs::read(&file)?;
        let (counts, _) = counts.as_chunks();
        Ok(counts.iter().map(|count| u64::from_le_bytes(*count) * kernel_ns).collect())
    };
    let all = Served { cap, count, kernel_ns };
    let (windows, mut figures) = fairness(bench, load, &all, kernel_ns * count as u64, served_ns)?;
    // The goals for the cap apply to 30 % and are checked elsewhere.
    figures.retain(|figure| figure.name.starts_with("most"));
    Ok(Row {
        case: format!("{cap} %, {count} threads: kernels of {} us", kernel_ns / 1000),
        shares: vec![mean(&windows) * 100.0],
        figures,
    })
}

/// Threads or processes that share a tenant's GPU time.
#[derive(Debug)]
struct Served {
    /// Cap of their tenant (percent).
    cap: u32,
    count: usize,
    /// Longest kernel of each (ns).
    kernel_ns: u64,
}

impl Served {
    /// Allowed ratio of the most served to the least served over `time_ns`: 1.1, or the effect of one kernel more, as half
    /// a kernel cannot be given.
    fn most_to_least(&self, time_ns: u64) -> f64 {
        let part_ns = time_ns * u64::from(self.cap) / 100 / self.count.max(1) as u64;
        (1.0 + percent(self.kernel_ns, part_ns) / 100.0).max(1.1)
    }
}

/// Figures for a tenant's windows under a cap of 30 %, and for the ratio of its most served thread or process to the least
/// served: per second, and in total.
fn fairness(
    bench: &Bench,
    load: Load<'_>,
    all: &Served,
    longest_ns: u64,
    served_ns: impl Fn(&Lab) -> Result<Vec<u64>>,
) -> Result<(Vec<f64>, Vec<Figure>)> {
    let mut lab = bench.lab(SWITCH_NS)?;
    lab.start(load)?;
    lab.run_for(super::WARM_UP_NS)?;
    let ratio = |before: &[u64], after: &[u64]| {
        let served = after.iter().zip(before).map(|(after, before)| after - before);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let served: Vec<f64> = served.map(|ns| ns as f64).collect();
        most(&served) / least(&served)
    };
    let first = served_ns(&lab)?;
    let mut before = first.clone();
    let (mut windows, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..bench.windows {
        windows.extend(lab.windows(1, SECOND_NS)?.concat());
        let after = served_ns(&lab)?;
        ratios.push(ratio(&before, &after));
        before = after;
    }
    let mut figures = figures(&windows, 30.0, longest_ns);
    figures.push(Figure::new(
        "most to least served in 1 s",
        mean(&ratios),
        Goal::AtMost(all.most_to_least(SECOND_NS)),
    ));
    figures.push(Figure::new(
        "most to least served in all",
        ratio(&first, &before),
        Goal::AtMost(all.most_to_least(SECOND_NS * bench.windows as u64)),
    ));
    Ok((windows, figures))
}
