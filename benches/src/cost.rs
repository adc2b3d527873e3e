//! What a hooked call costs over calling the driver directly.
//!
//! ```text
//! cargo build --release --workspace && cargo run --release -p vcuda-benches --bin cost
//! ```
//!
//! The driver is one that does nothing (`apps/noop.c`), so that only the hook remains. Bare and hooked runs alternate,
//! and each figure is the smallest difference of paired runs' medians; instructions are counted by callgrind as the
//! difference between two numbers of calls, which is the same on every machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use vcuda_benches::{Driver, Stage, median, printed};

/// One measured situation: what the program calls, under which quota, and what the project promises.
struct Case {
    title: &'static str,
    call: &'static str,
    quota: Option<&'static [&'static str]>,
    /// Other processes of the tenant that hold slots.
    neighbours: u32,
    goal_ns: f64,
}

const CASES: [Case; 5] = [
    Case {
        title: "launch, no limit",
        call: "launch",
        quota: Some(&["--memory", "8GiB"]),
        neighbours: 0,
        goal_ns: 5.0,
    },
    Case {
        title: "launch within its share",
        call: "launch",
        quota: Some(&["--cores", "90"]),
        neighbours: 0,
        goal_ns: 25.0,
    },
    Case {
        title: "allocate + free",
        call: "alloc",
        quota: Some(&["--memory", "8GiB"]),
        neighbours: 0,
        goal_ns: 150.0,
    },
    Case {
        title: "allocate + free, 64 slots",
        call: "alloc",
        quota: Some(&["--memory", "8GiB"]),
        neighbours: 63,
        goal_ns: 300.0,
    },
    Case {
        title: "cuMemGetInfo",
        call: "info",
        quota: Some(&["--memory", "8GiB"]),
        neighbours: 0,
        goal_ns: 40.0,
    },
];

/// The stage, and a program that holds slots of the tenant.
struct Bench {
    stage: Stage,
}

impl Bench {
    /// The program bare, or as a tenant whose "simulated" driver is replaced by the no-op one, beside so many processes
    /// of the tenant that have used the GPU and wait.
    fn command(&self, case: &Case, hooked: bool, tool: &[&str], calls: u64) -> Command {
        let quota = case.quota.filter(|_| hooked);
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
    fn ns(&self, case: &Case, hooked: bool) -> Result<f64> {
        let text = printed(&mut self.command(case, hooked, &[], 1_000_000))?;
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

/// What preloading the shim adds to a program that never touches CUDA: the median difference of 300 paired runs of
/// `true`, in microseconds.
fn preload_us(shim: &Path) -> Result<f64> {
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
    let differences: Result<Vec<f64>> = (0..300).map(|_| Ok(-run(false)? + run(true)?)).collect();
    Ok(median(differences?))
}

#[expect(clippy::print_stdout, reason = "the table is what the program is for")]
fn main() -> Result<()> {
    let bench = Bench {
        stage: Stage::new(&["cost"])?,
    };
    let mut table = comfy_table::Table::new();
    table.set_header(["call", "driver ns", "added ns", "goal ns", "added instructions"]);
    for case in &CASES {
        let (mut bare, mut added) = (Vec::new(), Vec::new());
        for _ in 0..7 {
            let driver = bench.ns(case, false)?;
            added.push(bench.ns(case, true)? - driver);
            bare.push(driver);
        }
        let instructions = match (bench.instructions(case, true)?, bench.instructions(case, false)?) {
            (Some(hooked), Some(driver)) => format!("{:.0}", hooked - driver),
            _ => "not counted".to_owned(),
        };
        table.add_row([
            case.title.to_owned(),
            format!("{:.1}", median(bare)),
            format!("{:.1}", median(added)),
            format!("{:.0}", case.goal_ns),
            instructions,
        ]);
    }
    println!("{table}");
    println!(
        "preloaded into `true`: {:.0} us more (goal 300)",
        preload_us(&bench.stage.shim())?
    );
    Ok(())
}
