//! A program of many short launches (`apps/step.c`) before a driver that takes an H200's times (`apps/timed.c`): what it feels of a
//! share that it does not use up. Bare and limited runs alternate; the least of each counts, as other load only adds.

use anyhow::{Context as _, Result};
use vcuda_benches::{Driver, Options, Stage, least, printed};

/// Shares of which the program uses a fifth of a GPU.
const SHARES: [&str; 3] = ["95", "50", "30"];
/// Most time of a step in the limited run, of the bare one: wall time, and processors' time.
const MOST: (f64, f64) = (1.03, 1.05);

/// Time of a step, in each of several runs (us).
#[derive(Debug, Default, Clone)]
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

/// Wall and processors' time of a step (us).
fn step_us(stage: &Stage, quota: Option<&[&str]>, steps: u32) -> Result<(f64, f64)> {
    let mut command = stage.command(Driver::Timed, quota);
    let text = printed(command.arg(stage.program("step")).arg(steps.to_string()))?;
    let mut words = text.split_whitespace().map(str::parse);
    let mut next = || words.next()?.ok();
    next().zip(next()).with_context(|| format!("step printed {text:?}"))
}

/// Adds a row for each share, and notes the goals.
pub(crate) fn measure(stage: &Stage, options: &mut Options) -> Result<comfy_table::Table> {
    let steps = if options.brief { 30 } else { 900 };
    let (mut bare, mut limited) = (Runs::default(), SHARES.map(|_| Runs::default()));
    for _ in 0..options.rounds(5) {
        bare.add(step_us(stage, None, steps)?);
        for (share, runs) in SHARES.iter().zip(&mut limited) {
            runs.add(step_us(stage, Some(&["--cores", share]), steps)?);
        }
    }
    let mut table = comfy_table::Table::new();
    table.set_header(["57 launches", "wall us", "times bare", "processors' us", "times bare"]);
    for (share, runs) in core::iter::once((None, &bare)).chain(SHARES.iter().map(Some).zip(&limited)) {
        let (wall, processors) = (least(&runs.wall), least(&runs.processors));
        let (times, processors_times) = (wall / least(&bare.wall), processors / least(&bare.processors));
        let title = share.map_or_else(|| "bare".to_owned(), |share| format!("share of {share} %"));
        table.add_row([
            title.clone(),
            format!("{wall:.0}"),
            format!("{times:.3}"),
            format!("{processors:.0}"),
            format!("{processors_times:.3}"),
        ]);
        if !options.brief {
            options.at_most(&format!("{title}: times the bare wall time"), times, MOST.0);
            options.at_most(&format!("{title}: times the bare processors' time"), processors_times, MOST.1);
        }
    }
    Ok(table)
}
