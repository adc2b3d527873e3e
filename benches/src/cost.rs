//! Cost of a hooked call compared with calling the driver directly.
//!
//! ```text
//! cargo build --release && cargo run --release -p vcuda-benches --bin cost [-- --check] [--brief]
//! ```
//!
//! The driver does nothing (`apps/noop.c`), so that only the hook remains. Callgrind counts the executions of each
//! instruction by the calling thread, in a short and a long run. The judged figure counts what nearly every call executes:
//! for each instruction the additional executions per call of the long run, as a whole number. Work that occurs
//! once in many calls is thus excluded, as its frequency depends on time; the mean, shown beside it, includes it. The
//! program has a clock of its own then (`apps/counted.c`), so that the figures repeat, also on a busy machine. Nanoseconds
//! depend on the machine: bare and hooked runs alternate, and each figure is the fastest run. With `--check` it exits with 1
//! if a call costs too much; `--brief` only shows that it works. Both together judge the instructions alone
//! (`scripts/check-cost.sh`). Last comes a program of many short launches ([`steps`]).

#[path = "cost/callgrind.rs"]
mod callgrind;
#[path = "cost/steps.rs"]
mod steps;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use callgrind::{Counts, Instructions};
use vcuda_benches::{Driver, Options, Stage, least, median, printed};

/// A measured situation: the program's call, its quota, and the limit.
struct Case {
    title: &'static str,
    call: &'static str,
    quota: &'static [&'static str],
    /// Number of other processes of the tenant that hold slots.
    neighbours: u32,
    /// Maximum number of added instructions per call, lowered with each improvement.
    most: Option<f64>,
}

/// Number of counts of a call that seems to cost too much.
const ATTEMPTS: usize = 5;

const MEMORY: &[&str] = &["--memory", "8GiB"];
const SHARE: &[&str] = &["--cores", "90"];

const fn case(title: &'static str, call: &'static str, most: Option<f64>) -> Case {
    Case { title, call, quota: MEMORY, neighbours: 0, most }
}

const CASES: [Case; 20] = [
    case("launch, no limit", "launch", Some(12.0)),
    Case { quota: SHARE, ..case("launch within its share", "launch", Some(226.0)) },
    Case {
        quota: &["--memory", "8GiB", "--suspendable"],
        ..case("launch, no limit, suspendable", "launch", Some(164.0))
    },
    Case {
        quota: &["--cores", "90", "--suspendable"],
        ..case("launch within its share, suspendable", "launch", Some(345.0))
    },
    case("allocate + free", "alloc", Some(769.0)),
    Case { neighbours: 63, ..case("allocate + free, 64 slots", "alloc", None) },
    case("cuMemGetInfo", "info", Some(281.0)),
    case("cuMemGetInfo, a pool in use", "pooled-info", Some(288.0)),
    case("cuMemAllocAsync + cuMemFreeAsync", "pool", Some(1_278.0)),
    case("cuMemAllocManaged + cuMemFree", "managed", None),
    case("cuMemCreate, map, unmap, release", "vmm", None),
    case("cuArrayCreate + cuArrayDestroy", "array", None),
    case("open + close another container's memory", "ipc", None),
    Case {
        quota: SHARE,
        ..case("launch + cuStreamSynchronize within a share", "launch-sync", Some(1_342.0))
    },
    Case { quota: SHARE, ..case("cuStreamSynchronize within a share", "sync", Some(466.0)) },
    Case { quota: SHARE, ..case("cuMemsetD8Async within a share", "memset", Some(480.0)) },
    Case { quota: SHARE, ..case("cuMemcpyHtoDAsync within a share", "copy", Some(260.0)) },
    case("cuModuleLoadData + cuModuleUnload", "module", Some(12_672.0)),
    case("nvmlDeviceGetMemoryInfo", "nvml-memory", Some(1_080.0)),
    case("nvmlDeviceGetUtilizationRates", "nvml-rates", Some(1_514.0)),
];

/// The fixture, and a program that holds slots of the tenant.
struct Bench {
    stage: Stage,
}

impl Bench {
    /// Command for the program bare, or as a tenant whose "simulated" driver is replaced by the no-op one, beside idle
    /// processes of the tenant that have used the GPU.
    fn command(&self, case: &Case, hooked: bool, tool: &[&str], calls: u64) -> Command {
        let quota = hooked.then_some(case.quota);
        let mut command = self.stage.command(Driver::Noop, quota);
        let program = self.stage.program(if tool.is_empty() { "cost" } else { "counted" });
        if quota.is_some() && case.neighbours > 0 {
            let script =
                format!("'{0}' crowd {1} '{0}' {2} {calls}", program.display(), case.neighbours, case.call);
            command.args(["sh", "-c", &script]);
            return command;
        }
        command.args(tool).arg(program).args([case.call, &calls.to_string()]);
        command
    }

    /// Nanoseconds per call.
    fn ns(&self, case: &Case, hooked: bool, calls: u64) -> Result<f64> {
        let text = printed(&mut self.command(case, hooked, &[], calls))?;
        text.trim().parse().with_context(|| format!("{}: {text:?} is no number", case.title))
    }

    /// Number of instructions that the hook adds to a call; `None` without valgrind. Where the shim's worker gets no processor, the
    /// calling thread does some of its work: what is more than the limit is counted again.
    fn added_instructions(&self, case: &Case) -> Result<Option<Instructions>> {
        let mut least = self.added_once(case)?;
        for _ in 1..ATTEMPTS {
            if least.is_none_or(|least| case.most.is_none_or(|most| least.usual <= most)) {
                break;
            }
            let again = self.added_once(case)?.into_iter().chain(least);
            least = again.min_by(|one, other| one.usual.total_cmp(&other.usual));
        }
        Ok(least)
    }

    fn added_once(&self, case: &Case) -> Result<Option<Instructions>> {
        let hooked = self.instructions(case, true)?;
        Ok(hooked.zip(self.instructions(case, false)?).map(|(hooked, bare)| Instructions {
            usual: hooked.usual - bare.usual,
            mean: hooked.mean - bare.mean,
        }))
    }

    /// Number of instructions of a call; `None` without valgrind.
    fn instructions(&self, case: &Case, hooked: bool) -> Result<Option<Instructions>> {
        if case.neighbours > 0 {
            return Ok(None);
        }
        let few = self.counted(case, hooked, 5_000)?;
        let many = self.counted(case, hooked, 15_000)?;
        Ok(few.zip(many).map(|(few, many)| callgrind::per_call(&few, &many, 10_000)))
    }

    /// Executions of each instruction by the first thread of a run with `calls` calls; `None` without valgrind.
    fn counted(&self, case: &Case, hooked: bool, calls: u64) -> Result<Option<Counts>> {
        let out = self.stage.dir().join("callgrind.out");
        let flag = format!("--callgrind-out-file={}", out.display());
        let tool = [
            "valgrind",
            "-q",
            "--tool=callgrind",
            "--trace-children=yes",
            "--dump-instr=yes",
            "--separate-threads=yes",
            flag.as_str(),
        ];
        let Ok(output) = self.command(case, hooked, &tool, calls).output() else {
            return Ok(None);
        };
        if !output.status.success() {
            return Ok(None);
        }
        let report = std::fs::read_to_string(out.with_extension("out-01"))?;
        let mut counts = callgrind::counts(&report)?;
        // What the program's clock takes is no cost of the shim; its loop is the same with and without it.
        let program = self.stage.program("counted");
        counts.retain(|(object, _), _| Path::new(object) != program);
        Ok(Some(counts))
    }
}

/// Cost of preloading the shim into a program without CUDA: the median difference of paired runs of `true` (us).
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
    let bench = Bench { stage: Stage::new(&["cost", "counted", "step"])? };
    let calls = if options.brief { 2_000 } else { 1_000_000 };
    let mut table = comfy_table::Table::new();
    table.set_header(["call", "driver ns", "added ns", "added instructions", "at most", "on average"]);
    for case in &CASES {
        let (mut bare, mut hooked) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds(7) {
            bare.push(bench.ns(case, false, calls)?);
            hooked.push(bench.ns(case, true, calls)?);
        }
        let added_ns = least(&hooked) - least(&bare);
        let is_counted = !options.brief || options.check;
        let added = if is_counted { bench.added_instructions(case)? } else { None };
        if let (Some(most), true) = (case.most, is_counted) {
            // Without callgrind the cost is unknown, and the goal counts as missed.
            options.at_most(case.title, added.map_or(f64::NAN, |added| added.usual), most);
        }
        let shown = |figure: Option<f64>, without: &str| {
            figure.map_or_else(|| without.to_owned(), |figure| format!("{figure:.0}"))
        };
        table.add_row([
            case.title.to_owned(),
            format!("{:.1}", least(&bare)),
            format!("{added_ns:.1}"),
            shown(added.map(|added| added.usual), "not counted"),
            shown(case.most, "any"),
            shown(added.map(|added| added.mean), "not counted"),
        ]);
    }
    println!("{table}");
    println!("{}", steps::measure(&bench.stage, &mut options)?);
    let preload = preload_us(&bench.stage.shim(), options.rounds(300))?;
    println!("preloaded into `true`: {preload:.0} us more (goal 300)");
    if !options.brief {
        options.at_most("preloaded into `true`, us", preload, 300.0);
    }
    Ok(options.verdict())
}
