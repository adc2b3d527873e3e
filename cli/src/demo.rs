//! `vcuda demo`: two tenants on one GPU, held to their quotas before the user's eyes; every claim is a check that can
//! fail. The tenants are this program again, under `vcuda run` like any other.

mod acts;
mod checks;
mod interrupt;
mod live;
mod protocol;
mod stage;
pub(crate) mod tenant;
mod truth;
mod voice;

use vcuda_region::directory;

use crate::args::DemoArgs;
use crate::config::Environment;
use crate::failure::Failure;
use checks::Checks;
use interrupt::Interrupt;
use stage::Stage;
use voice::Voice;

/// Plays the demo on the real GPU, or on a fresh simulated one. Fails if a check does.
pub(crate) fn demo(args: &DemoArgs, environment: &Environment) -> Result<(), Failure> {
    if let Some(path) = directory::resolve(environment.tenant.as_deref()) {
        let path = path.display();
        return Err(Failure::Usage(format!(
            "this is a tenant ({path}); run the demo outside of it"
        )));
    }
    let interrupt = Interrupt::catch()?;
    let stage = Stage::set_up(args.sim, environment)?;
    let voice = Voice::new(args.json);
    voice.say(format_args!("vcuda demo on {}", stage.description()))?;
    let mut checks = Checks::new(voice);
    let played = acts::play(&stage, &interrupt, voice, &mut checks);
    // Whatever happened: nothing is left behind.
    stage.clear();
    played?;
    checks.summary()
}
