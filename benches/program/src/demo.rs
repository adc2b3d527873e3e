//! `vcuda demo`: shows two tenants on one GPU with their quotas; each claim is a check that can fail. The tenants are this
//! program, under `vcuda run` like any other.

mod bars;
mod checks;
mod history;
mod live;
mod node;
mod output;
mod scenarios;
mod without;

use std::path::Path;

use crate::chart;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::{Fixture, GpuKind};
use checks::Checks;
use output::Output;
use vcuda_cli::args::bench::DemoArgs;
use vcuda_cli::config::Environment;
use vcuda_cli::failure::Failure;

/// Runs the demo on the real GPU, or on a fresh simulated one. Fails if a check fails.
pub(crate) fn demo(args: &DemoArgs, environment: &Environment) -> Result<(), Failure> {
    args.svg.as_deref().map_or(Ok(()), chart::can_write)?;
    let interrupt = Interrupt::catch()?;
    let fixture = Fixture::set_up(GpuKind::asked(args.sim, GpuKind::Any), None, environment)?;
    let output = Output::new(args.json);
    output.say(format_args!("vcuda demo on {}", fixture.description()))?;
    let mut checks = Checks::new(output);
    let played = without::play(&fixture, &interrupt, output, &mut checks)
        .and_then(|()| scenarios::play(&fixture, &interrupt, output, &mut checks, args.svg.as_deref()))
        .and_then(|()| node::play(&fixture, &interrupt, output, &mut checks));
    let next = next_step(&fixture);
    // Also after a failure, nothing is left behind.
    fixture.clear();
    played?;
    checks.summary()?;
    output.say(next)
}

/// What to do after the demo, with a program of one's own.
fn next_step(fixture: &Fixture) -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let folder = program.parent().unwrap_or(Path::new(".")).display();
    let path = format!("\nNext, a program of your own:\n    export PATH={folder}:$PATH");
    if !fixture.is_simulated() {
        return format!("{path}\n    vcuda run --memory 4GiB --cores 30 -- python train.py\n    vcuda smi");
    }
    format!(
        "{path}\n    vcuda run --sim --memory 4GiB --cores 30 -- ./my-program\n\
         On the simulated GPU it is one of the CUDA driver API: kernels take time and compute nothing. Without a driver it is\n\
         linked by `cc my-program.c {}`.",
        vcuda_cli::installation::simulated_cuda()
            .map_or_else(|failure| failure.to_string(), |library| library.display().to_string())
    )
}
