//! A program of many short launches (`apps/step.c`) before a driver that takes an H200's times (`apps/timed.c`): what it feels of a
//! limit that it does not reach. Bare and limited runs alternate; the least of each counts, as other load only adds.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use vcuda_benches::{Driver, Options, Stage, least, printed};

/// A step of the program: its arguments after the number of steps, and how many steps a run has.
#[derive(Clone, Copy)]
struct Program {
    title: &'static str,
    arguments: &'static [&'static str],
    steps: u32,
}

/// The host works 33 us before each launch, as PyTorch's does: a fifth of the GPU.
const TORCH: Program = Program { title: "PyTorch's pace", arguments: &[], steps: 900 };
/// The host does nothing but launch kernels of a microsecond.
const LAUNCHES: Program = Program { title: "only launches", arguments: &["0", "400"], steps: 6000 };

/// A limit that is compared with none, beside the same neighbour.
struct Case {
    program: Program,
    quota: &'static [&'static str],
    neighbour: Option<&'static [&'static str]>,
    /// Most time of a step, times the bare one: wall time, and processors' time. Lowered with each improvement.
    most: (f64, f64),
}

const CAPPED: Option<&[&str]> = Some(&["--cores", "30"]);
const CASES: [Case; 7] = [
    Case { program: TORCH, quota: &["--cores", "95"], neighbour: None, most: (1.03, 1.035) },
    Case { program: TORCH, quota: &["--cores", "50"], neighbour: None, most: (1.03, 1.035) },
    Case { program: TORCH, quota: &["--cores", "30"], neighbour: None, most: (1.03, 1.035) },
    Case { program: TORCH, quota: &["--cores", "50"], neighbour: CAPPED, most: (1.06, 1.07) },
    Case { program: TORCH, quota: &["--memory", "8GiB"], neighbour: CAPPED, most: (1.06, 1.07) },
    // A hundredth is what the share allows less.
    Case { program: LAUNCHES, quota: &["--cores", "99"], neighbour: None, most: (1.07, 1.07) },
    Case { program: LAUNCHES, quota: &["--memory", "8GiB"], neighbour: CAPPED, most: (1.12, 1.10) },
];

/// Times of a step, in each of several runs (us).
#[derive(Default)]
struct Runs {
    wall: Vec<f64>,
    processors: Vec<f64>,
}

impl Runs {
    fn add(&mut self, (wall, processors): (f64, f64)) {
        self.wall.push(wall);
        self.processors.push(processors);
    }
}

/// A tenant that uses half of its GPU until this is dropped.
struct Neighbour(Child);

impl Neighbour {
    fn start(mut command: Command, stage: &Stage) -> Result<Self> {
        command.arg(stage.program("step")).arg("neighbour").stdout(Stdio::null()).stderr(Stdio::null());
        let started = Self(command.spawn()?);
        // Until it has launched, and the arbiter has seen it.
        std::thread::sleep(Duration::from_millis(300));
        Ok(started)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Wall and processors' time of a step (us), with the limit or without one.
fn step_us(stage: &Stage, case: &Case, is_limited: bool, is_brief: bool) -> Result<(f64, f64)> {
    let command = |quota: &'static [&'static str]| stage.command(Driver::Timed, is_limited.then_some(quota));
    let _neighbour = case.neighbour.map(|quota| Neighbour::start(command(quota), stage)).transpose()?;
    let steps = if is_brief { 30 } else { case.program.steps };
    let mut program = command(case.quota);
    program.arg(stage.program("step")).arg(steps.to_string()).args(case.program.arguments);
    let text = printed(&mut program)?;
    let mut words = text.split_whitespace().map(str::parse);
    let mut next = || words.next()?.ok();
    next().zip(next()).with_context(|| format!("step printed {text:?}"))
}

/// Adds a row for each case, and notes the goals.
pub(crate) fn measure(stage: &Stage, options: &mut Options) -> Result<comfy_table::Table> {
    let mut table = comfy_table::Table::new();
    table.set_header(["57 launches", "bare wall us", "times bare", "processors' us", "times bare"]);
    for case in &CASES {
        let (mut bare, mut limited) = (Runs::default(), Runs::default());
        for _ in 0..options.rounds(5) {
            bare.add(step_us(stage, case, false, options.brief)?);
            limited.add(step_us(stage, case, true, options.brief)?);
        }
        let beside = if case.neighbour.is_some() { " beside a capped neighbour" } else { "" };
        let title = format!("{}, {}{beside}", case.program.title, case.quota.join(" "));
        let times = least(&limited.wall) / least(&bare.wall);
        let processors_times = least(&limited.processors) / least(&bare.processors);
        table.add_row([
            title.clone(),
            format!("{:.0}", least(&bare.wall)),
            format!("{times:.3}"),
            format!("{:.0}", least(&bare.processors)),
            format!("{processors_times:.3}"),
        ]);
        if !options.brief {
            options.at_most(&format!("{title}: times the bare wall time"), times, case.most.0);
            options.at_most(
                &format!("{title}: times the bare processors' time"),
                processors_times,
                case.most.1,
            );
        }
    }
    Ok(table)
}
