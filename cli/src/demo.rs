//! `vcuda demo`: two tenants on one GPU, held to their quotas before the user's eyes; every claim is a check that can
//! fail. The tenants are this program again, under `vcuda run` like any other.

mod acts;
mod checks;
mod live;
mod node;
mod voice;

use crate::args::DemoArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::stage::interrupt::Interrupt;
use crate::stage::{Ground, Stage};
use checks::Checks;
use voice::Voice;

/// Plays the demo on the real GPU, or on a fresh simulated one. Fails if a check does.
pub(crate) fn demo(args: &DemoArgs, environment: &Environment) -> Result<(), Failure> {
    let interrupt = Interrupt::catch()?;
    let stage = Stage::set_up(Ground::asked(args.sim, Ground::Any), None, environment)?;
    let voice = Voice::new(args.json);
    voice.say(format_args!("vcuda demo on {}", stage.description()))?;
    let mut checks = Checks::new(voice);
    let played = acts::play(&stage, &interrupt, voice, &mut checks)
        .and_then(|()| node::play(&stage, &interrupt, voice, &mut checks));
    // Whatever happened: nothing is left behind.
    stage.clear();
    played?;
    checks.summary()
}
