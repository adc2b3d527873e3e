//! vcuda-manager: see [`vcuda_manager`].
#![forbid(unsafe_code)]

use std::ops::ControlFlow;
use std::process::ExitCode;

use vcuda_daemon::life::{self, RunError};
use vcuda_daemon::logging::Logging;
use vcuda_manager::arbiter::Runner;
use vcuda_manager::config::{Config, Flags, Stage};
use vcuda_manager::keeper;
use vcuda_manager::run::run;

fn main() -> ExitCode {
    vcuda_region::clock::follow_host();
    life::main("vcuda-manager", |flags: Flags| {
        if let Some(root) = flags.root.as_ref().filter(|_| flags.only_divide) {
            let runner = Runner::new(root).map_err(|error| RunError::Failed(error.to_string()))?;
            runner.with_short_pauses().run(&mut |_| ControlFlow::Continue(()));
            return Ok(());
        }
        if let (Some(stage @ (Stage::Start | Stage::Keep)), Some(root)) = (flags.own, &flags.root) {
            let kept = if stage == Stage::Start { keeper::start() } else { keeper::keep(root) };
            return kept.map_err(|error| RunError::Failed(format!("{}: {error}", root.display())));
        }
        let config = Config::load(&flags)?;
        match flags.check {
            true => Ok(config.check_files()?),
            false => run(config.clone(), &flags, &Logging::start(&config.log)),
        }
    })
}
