//! What a hooked call costs over calling the driver directly.
//!
//! ```text
//! cargo build --release --workspace && cargo run --release -p vcuda-benches --bin cost [-- --check] [--brief]
//! ```
//!
//! The driver is one that does nothing (`apps/noop.c`), so that only the hook remains. Instructions are counted by
//! callgrind as the difference between two numbers of calls: these repeat, and are what is judged. Nanoseconds depend on the
//! machine and are shown beside them: bare and hooked runs alternate; each figure is the fastest run of its kind, since
//! whatever is slower was disturbed. With `--check` it exits with 1 if a call takes more than it may, with `--brief` it only
//! shows that it works.

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
    /// Most instructions that the hook may add: what it took when this was last lowered, and a little for the shim's own
    /// thread, which works by the clock.
    most: Option<f64>,
}

const MEMORY: &[&str] = &["--memory", "8GiB"];

const fn case(title: &'static str, call: &'static str, most: Option<f64>) -> Case {
    Case {
        title,
        call,
        quota: MEMORY,
        neighbours: 0,
        most,
    }
}

const CASES: [Case; 11] = [
    case("launch, no limit", "launch", Some(11.5)),
    Case {
        quota: &["--cores", "90"],
        ..case("launch within its share", "launch", Some(226.0))
    },
    case("allocate + free", "alloc", Some(1_080.0)),
    Case {
        neighbours: 63,
        ..case("allocate + free, 64 slots", "alloc", None)
    },
    case("cuMemGetInfo", "info", Some(435.0)),
    case("cuMemGetInfo, a pool in use", "pooled-info", Some(442.0)),
    case("cuMemAllocAsync + cuMemFreeAsync", "pool", Some(1_463.0)),
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

    /// Instructions per call that the hook adds, or `None` where valgrind is not installed.
    fn added_instructions(&self, case: &Case) -> Result<Option<f64>> {
        let hooked = self.instructions(case, true)?;
        Ok(hooked
            .zip(self.instructions(case, false)?)
            .map(|(hooked, bare)| hooked - bare))
    }

    /// Instructions per call, or `None` where valgrind is not installed.
    fn instructions(&self, case: &Case, hooked: bool) -> Result<Option<f64>> {
        if case.neighbours > 0 {
            return Ok(None);
        }
        let mut totals = [f64::INFINITY; 2];
        // A run that another program disturbs takes more: launches then come after pauses.
        for _ in 0..3 {
            for (total, calls) in totals.iter_mut().zip([20_000, 40_000]) {
                let Some(counted) = self.counted(case, hooked, calls)? else {
                    return Ok(None);
                };
                *total = total.min(counted);
            }
        }
        let [few, many] = totals;
        Ok(Some((many - few) / 20_000.0))
    }

    /// Instructions of a whole run of so many calls, or `None` where valgrind is not installed.
    fn counted(&self, case: &Case, hooked: bool, calls: u64) -> Result<Option<f64>> {
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
            .find_map(|line| line.strip_prefix("summary:").or(line.strip_prefix("totals:")));
        Ok(Some(line.context("callgrind wrote no total")?.trim().parse()?))
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
    table.set_header(["call", "driver ns", "added ns", "added instructions", "at most"]);
    for case in &CASES {
        let (mut bare, mut hooked) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds(7) {
            bare.push(bench.ns(case, false, calls)?);
            hooked.push(bench.ns(case, true, calls)?);
        }
        let added_ns = least(&hooked) - least(&bare);
        let added = if options.brief {
            None
        } else {
            bench.added_instructions(case)?
        };
        if let (Some(most), false) = (case.most, options.brief) {
            // Where callgrind is missing nothing is known, and so nothing is kept.
            options.at_most(case.title, added.unwrap_or(f64::NAN), most);
        }
        let shown = |figure: Option<f64>, without: &str| {
            figure.map_or_else(|| without.to_owned(), |figure| format!("{figure:.0}"))
        };
        table.add_row([
            case.title.to_owned(),
            format!("{:.1}", least(&bare)),
            format!("{added_ns:.1}"),
            shown(added, "not counted"),
            shown(case.most, "any"),
        ]);
    }
    println!("{table}");
    let preload = preload_us(&bench.stage.shim(), options.rounds(300))?;
    println!("preloaded into `true`: {preload:.0} us more (goal 300)");
    options.at_most("preloaded into `true`, us", preload, 300.0);
    Ok(options.verdict())
}
