//! Selection of measurements, and their duration.

use std::fmt;
use std::time::Duration;

use crate::fixture::protocol::{Shape, Work};
use vcuda_cli::args::bench::{BenchArgs, BenchTable};
use vcuda_cli::failure::Failure;
use vcuda_quota::CoreShare;

/// Window over which a share is measured.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// Time for limiter and manager to learn the tenants' kernels.
pub(super) const WARM_UP: Duration = Duration::from_millis(1500);
const SECONDS: u32 = 3;
const QUICK_SECONDS: u32 = 2;
/// Amount of work waited for at a time (ns), so that waiting does not slow small kernels.
const GROUP_NS: u64 = 500_000;
/// Amount of work in flight (ns), so that the GPU never waits for a delayed program.
const IN_FLIGHT_NS: u64 = 32_000_000;
/// Maximum number of submissions in flight, fewer than the driver queues (about a thousand).
const IN_FLIGHT: u64 = 800;

/// Load of the tenants. The work is fixed, not the time, as each kernel takes longer on a shared GPU.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// Name in the report.
    pub(super) name: &'static str,
    /// Duration of a kernel alone on the GPU (ns).
    pub(super) kernel_ns: u64,
    shape: Shape,
}

const SMALL: Load = Load::launches("10 us", 10_000);
const SHORT: Load = Load::launches("100 us", 100_000);
/// The load shown in the chart.
pub(super) const USUAL: Load = Load::launches("1 ms", 1_000_000);
/// The load of tenants that are idle at times, or whose shares are changed.
pub(super) const CHANGED: Load = Load::launches("500 us", 500_000);
const LONG: Load = Load::launches("20 ms", 20_000_000);
const GRAPH: Load = Load { name: "graph 10x100 us", kernel_ns: 100_000, shape: Shape::Graph { kernels: 10 } };
const SYNCHRONIZED: Load = Load { name: "1 ms + sync", kernel_ns: 1_000_000, shape: Shape::Synchronized };
const LOADS: [&Load; 6] = [&SMALL, &SHORT, &USUAL, &LONG, &GRAPH, &SYNCHRONIZED];

const ALONE: [&[u32]; 4] = [&[100], &[300], &[500], &[900]];
const SPLIT: [&[u32]; 4] = [&[300, 700], &[100, 900], &[500, 500], &[100, 200, 300, 400]];

impl Load {
    const fn launches(name: &'static str, kernel_ns: u64) -> Load {
        Load { name, kernel_ns, shape: Shape::Launches }
    }

    /// The work to submit, on a GPU with this rate.
    pub(super) fn work(&self, iterations_per_ms: u64) -> Work {
        let group = (GROUP_NS / self.submission_ns()).max(1);
        let depth = (IN_FLIGHT_NS / (group * self.submission_ns())).min(IN_FLIGHT / group);
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Work {
            iterations: (self.kernel_ns.saturating_mul(iterations_per_ms) / 1_000_000).max(1),
            shape: self.shape,
            group: small(group),
            depth: small(depth.max(4)),
        }
    }

    /// Duration of a submission, which cannot be interrupted (ns).
    pub(super) fn submission_ns(&self) -> u64 {
        match self.shape {
            Shape::Graph { kernels } => self.kernel_ns.saturating_mul(kernels.into()),
            Shape::Launches | Shape::Synchronized => self.kernel_ns,
        }
    }
}

/// Tenants that run concurrently with the same load.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) load: &'static Load,
    pub(super) caps: Vec<CoreShare>,
}

impl Row {
    fn new(load: &'static Load, caps: &[u32]) -> Row {
        Row { load, caps: caps.iter().copied().map(CoreShare).collect() }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caps: Vec<String> = self.caps.iter().map(|cap| cap.percent()).collect();
        write!(f, "{} %, {}", caps.join("/"), self.load.name)
    }
}

/// All measurements.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) rows: Vec<Row>,
    pub(super) has_overhead: bool,
    /// Number of repetitions of each change; 0: none.
    pub(super) changes: u32,
    /// Whether the tenants have the shim.
    pub(super) has_shim: bool,
    /// Number of windows per row.
    pub(super) windows: u32,
    /// Number of alternations of the two sides of an overhead.
    pub(super) pairs: u32,
    /// Number of measurements of each side per alternation.
    pub(super) parts: u32,
}

impl Plan {
    /// The plan for these options. Fails if the options contradict each other.
    pub(super) fn new(args: &BenchArgs) -> Result<Plan, Failure> {
        refuse_contradictions(args)?;
        let wants = |table| args.only.is_none_or(|only| only == table);
        let mut rows = Vec::new();
        if wants(BenchTable::Alone) {
            rows.extend(if args.quick {
                vec![Row::new(&USUAL, &[300]), Row::new(&GRAPH, &[500])]
            } else {
                all(&ALONE)
            });
        }
        if wants(BenchTable::Split) {
            rows.extend(if args.quick { vec![Row::new(&USUAL, &[300, 700])] } else { all(&SPLIT) });
        }
        Ok(Plan {
            rows,
            has_overhead: wants(BenchTable::Overhead) && !args.without_shim,
            changes: match wants(BenchTable::Changes) && !args.without_shim {
                false => 0,
                true if args.quick => 2,
                true => 8,
            },
            has_shim: !args.without_shim,
            windows: args.seconds.unwrap_or(if args.quick { QUICK_SECONDS } else { SECONDS }),
            pairs: if args.quick { 5 } else { 15 },
            parts: if args.quick { 50 } else { 100 },
        })
    }
}

/// Refuses a pair of options that make each other meaningless.
fn refuse_contradictions(args: &BenchArgs) -> Result<(), Failure> {
    let no_picture = "the picture is of tenants alone and side by side";
    let refused = [
        (
            args.without_shim,
            "--without-shim",
            BenchTable::Overhead,
            "overhead",
            "what the shim adds is measured with and without it",
        ),
        (
            args.without_shim,
            "--without-shim",
            BenchTable::Changes,
            "changes",
            "without it there are no shares to change",
        ),
        (args.svg.is_some(), "--svg", BenchTable::Overhead, "overhead", no_picture),
        (args.svg.is_some(), "--svg", BenchTable::Changes, "changes", no_picture),
    ];
    for (is_given, option, table, name, why) in refused {
        if is_given && args.only == Some(table) {
            let words = format!("{option} --only {name}: {why}; leave one of them out");
            return Err(Failure::Usage(words));
        }
    }
    Ok(())
}

fn all(caps: &[&[u32]]) -> Vec<Row> {
    let of_load = |load: &'static Load| caps.iter().map(move |caps| Row::new(load, caps));
    LOADS.into_iter().flat_map(of_load).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// The options of `bench`, without the command.
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn plan(options: &[&str]) -> Result<Plan, String> {
        let args = Line::parse_from(["vcuda-bench"].iter().chain(options)).args;
        Plan::new(&args).map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_load_alone_and_side_by_side() {
        let whole = plan(&[]).unwrap();
        assert_eq!(whole.rows.len(), LOADS.len() * (ALONE.len() + SPLIT.len()));
        assert!(whole.has_overhead && whole.has_shim);
        assert!(plan(&["--only", "alone"]).unwrap().rows.iter().all(|row| row.caps.len() == 1));
        assert!(plan(&["--only", "split"]).unwrap().rows.iter().all(|row| row.caps.len() > 1));
        assert!(plan(&["--only", "overhead"]).unwrap().rows.is_empty());
        let bare = plan(&["--without-shim"]).unwrap();
        assert!(!bare.has_overhead && bare.changes == 0);
        let changes = plan(&["--only", "changes"]).unwrap();
        assert!(changes.rows.is_empty() && !changes.has_overhead && changes.changes > 0);
        assert_eq!(plan(&["--only", "alone"]).unwrap().changes, 0);
    }

    #[test]
    fn caps_of_a_row_fit_the_gpu() {
        for row in plan(&[]).unwrap().rows {
            assert!(row.caps.iter().map(|cap| cap.0).sum::<u32>() <= 1000, "{row}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for options in [
            ["--without-shim", "--only", "overhead"].as_slice(),
            &["--svg", "x.svg", "--only", "overhead"],
            &["--without-shim", "--only", "changes"],
            &["--svg", "x.svg", "--only", "changes"],
        ] {
            let words = plan(options).unwrap_err();
            assert!(words.starts_with(options[0]) && words.contains("--only"), "{words}");
        }
    }

    #[test]
    fn small_work_is_waited_for_in_groups() {
        let shape = |load: &Load| (load.work(1_000_000).group, load.work(1_000_000).depth);
        assert_eq!(shape(&SMALL), (50, 16));
        assert_eq!(shape(&USUAL), (1, 32));
        assert_eq!(shape(&LONG), (1, 4));
        assert_eq!(shape(&GRAPH), (1, 32));
        assert_eq!(SHORT.work(2_000_000).iterations, 200_000);
    }
}
