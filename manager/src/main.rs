//! vcuda-manager: see [`vcuda_manager`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use vcuda_daemon::life::{self, RunError};
use vcuda_daemon::logging::Logging;
use vcuda_manager::config::{Config, Flags};
use vcuda_manager::run::run;
use vcuda_manager::standby;

fn main() -> ExitCode {
    vcuda_region::clock::follow_host();
    life::main("vcuda-manager", |flags: Flags| {
        // A standby ignores the configuration, which may have changed since.
        if let Some(root) = flags.root.as_ref().filter(|_| flags.standby) {
            return standby::run(root)
                .map_err(|error| RunError::Failed(format!("{}: {error}", root.display())));
        }
        let config = Config::load(&flags)?;
        match flags.check {
            true => Ok(()),
            false => run(config.clone(), &flags, &Logging::start(&config.log)),
        }
    })
}
