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
    // Also after a failure, nothing is left behind.
    fixture.clear();
    played?;
    checks.summary()
}
