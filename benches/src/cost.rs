//! What a hooked call costs over calling the driver directly.
//!
//! ```text
//! cargo build --release --workspace && cargo run --release -p vcuda-benches --bin cost [-- --check] [--brief]
//! ```
//!
//! The driver is one that does nothing (`apps/noop.c`), so that only the hook remains. Bare and hooked runs alternate;
//! each figure is the fastest run of its kind, since whatever is slower was disturbed. Instructions are counted by
//! callgrind as the difference between two numbers of calls. With `--check` it exits with 1 if a goal is missed, with
//! `--brief` it only shows that it works.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use vcuda_benches::{Driver, Options, Stage, least, median, printed};

/// One measured situation: what the program calls, under which quota, and what the project promises.
struct Case {
    title: &'static str,
    call: &'static str,
    quota: &'static [&'static str],
    /// Other processes of the tenant that hold slots.
    neighbours: u32,
    goal_ns: Option<f64>,
}

const MEMORY: &[&str] = &["--memory", "8GiB"];

const fn case(title: &'static str, call: &'static str, goal_ns: Option<f64>) -> Case {
    Case {
        title,
        call,
        quota: MEMORY,
        neighbours: 0,
        goal_ns,
    }
}

const CASES: [Case; 11] = [
    case("launch, no limit", "launch", Some(5.0)),
    Case {
        quota: &["--cores", "90"],
        ..case("launch within its share", "launch", Some(25.0))
    },
    case("allocate + free", "alloc", Some(150.0)),
    Case {
        neighbours: 63,
        ..case("allocate + free, 64 slots", "alloc", Some(300.0))
    },
    case("cuMemGetInfo", "info", Some(40.0)),
    case("cuMemGetInfo, a pool in use", "pooled-info", Some(40.0)),
    case("cuMemAllocAsync + cuMemFreeAsync", "pool", Some(150.0)),
    case("cuMemAllocManaged + cuMemFree", "managed", None),
    case("cuMemCreate, map, unmap, release", "vmm", None),
    case("cuArrayCreate + cuArrayDestroy", "array", None),
    case("open + close another container's memory", "ipc", None),
];

/// The stage, and a program that holds slots of the tenant.
struct Bench {
    stage: Stage,
}

impl Bench {
    /// The program bare, or as a tenant whose "simulated" driver is replaced by the no-op one, beside so many processes
    /// of the tenant that have used the GPU and wait.
    fn command(&self, case: &Case, hooked: bool, tool: &[&str], calls: u64) -> Command {
        let quota = hooked.then_some(case.quota);
        let mut command = self.stage.command(Driver::Noop, quota);
        let program = self.stage.program("cost");
        if quota.is_some() && case.neighbours > 0 {
            let script = format!(
                "'{0}' crowd {1} '{0}' {2} {calls}",
                program.display(),
                case.neighbours,
                case.call
            );
            command.args(["sh", "-c", &script]);
            return command;
        }
        command
            .args(tool)
            .arg(program)
            .args([case.call, &calls.to_string()]);
        command
    }

    /// Nanoseconds per call.
    fn ns(&self, case: &Case, hooked: bool, calls: u64) -> Result<f64> {
        let text = printed(&mut self.command(case, hooked, &[], calls))?;
        text.trim()
            .parse()
            .with_context(|| format!("{}: {text:?} is no number", case.title))
    }

    /// Instructions per call, or `None` where valgrind is not installed.
    fn instructions(&self, case: &Case, hooked: bool) -> Result<Option<f64>> {
        if case.neighbours > 0 {
            return Ok(None);
        }
        let mut totals = [0.0; 2];
        let calls = [20_000, 40_000];
        for (total, calls) in totals.iter_mut().zip(calls) {
            let out = self.stage.dir().join("callgrind.out");
            let flag = format!("--callgrind-out-file={}", out.display());
            let tool = [
                "valgrind",
                "-q",
                "--tool=callgrind",
                "--trace-children=yes",
                flag.as_str(),
            ];
            let Ok(output) = self.command(case, hooked, &tool, calls).output() else {
                return Ok(None);
            };
            if !output.status.success() {
                return Ok(None);
            }
            let report = std::fs::read_to_string(&out)?;
            let line = report
                .lines()
                .find_map(|l| l.strip_prefix("summary:").or(l.strip_prefix("totals:")));
            *total = line.context("callgrind wrote no total")?.trim().parse()?;
        }
        Ok(Some((totals[1] - totals[0]) / 20_000.0))
    }
}

/// What preloading the shim adds to a program that never touches CUDA: the median difference of paired runs of `true`, in
/// microseconds.
fn preload_us(shim: &Path, pairs: usize) -> Result<f64> {
    let run = |preload: bool| -> Result<f64> {
        let mut command = Command::new("true");
        command.env_remove("LD_PRELOAD");
        if preload {
            command.env("LD_PRELOAD", shim);
        }
        let start = vcuda_region::clock::now_ns();
        ensure!(command.status()?.success(), "`true` failed");
        #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
        let us = (vcuda_region::clock::now_ns() - start) as f64 / 1e3;
        Ok(us)
    };
    let differences: Result<Vec<f64>> = (0..pairs).map(|_| Ok(-run(false)? + run(true)?)).collect();
    Ok(median(differences?))
}

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn main() -> Result<ExitCode> {
    let mut options = Options::from_arguments()?;
    let bench = Bench {
        stage: Stage::new(&["cost"])?,
    };
    let calls = if options.brief { 2_000 } else { 1_000_000 };
    let mut table = comfy_table::Table::new();
    table.set_header(["call", "driver ns", "added ns", "goal ns", "added instructions"]);
    for case in &CASES {
        let (mut bare, mut hooked) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds(7) {
            bare.push(bench.ns(case, false, calls)?);
            hooked.push(bench.ns(case, true, calls)?);
        }
        let added = least(&hooked) - least(&bare);
        let instructions = if options.brief {
            None
        } else {
            bench
                .instructions(case, true)?
                .zip(bench.instructions(case, false)?)
        };
        if let Some(goal) = case.goal_ns {
            options.at_most(case.title, added, goal);
        }
        table.add_row([
            case.title.to_owned(),
            format!("{:.1}", least(&bare)),
            format!("{added:.1}"),
            case.goal_ns
                .map_or_else(|| "none".to_owned(), |goal| format!("{goal:.0}")),
            instructions.map_or_else(
                || "not counted".to_owned(),
                |(hooked, driver)| format!("{:.0}", hooked - driver),
            ),
        ]);
    }
    println!("{table}");
    let preload = preload_us(&bench.stage.shim(), options.rounds(300))?;
    println!("preloaded into `true`: {preload:.0} us more (goal 300)");
    options.at_most("preloaded into `true`, us", preload, 300.0);
    Ok(options.verdict())
}
