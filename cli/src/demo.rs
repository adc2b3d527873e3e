//! `vcuda demo`: two tenants on one GPU, held to their quotas before the user's eyes; every claim is a check that can
//! fail. The tenants are this program again, under `vcuda run` like any other.

mod checks;
mod live;
mod node;
mod output;
mod scenarios;

use crate::args::DemoArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::{Fixture, Ground};
use checks::Checks;
use output::Output;

/// Plays the demo on the real GPU, or on a fresh simulated one. Fails if a check does.
pub(crate) fn demo(args: &DemoArgs, environment: &Environment) -> Result<(), Failure> {
    let interrupt = Interrupt::catch()?;
    let fixture = Fixture::set_up(Ground::asked(args.sim, Ground::Any), None, environment)?;
    let output = Output::new(args.json);
    output.say(format_args!("vcuda demo on {}", fixture.description()))?;
    let mut checks = Checks::new(output);
    let played = scenarios::play(&fixture, &interrupt, output, &mut checks)
        .and_then(|()| node::play(&fixture, &interrupt, output, &mut checks));
    // Whatever happened: nothing is left behind.
    fixture.clear();
    played?;
    checks.summary()
}
