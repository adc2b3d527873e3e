//! The program `vcuda-device-plugin`: see [`vcuda_plugin`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use vcuda_daemon::life;
use vcuda_daemon::logging::Logging;
use vcuda_plugin::config::{Config, Flags};
use vcuda_plugin::run::run;

fn main() -> ExitCode {
    life::main("vcuda-device-plugin", |flags: Flags| {
        let config = Config::load(&flags)?;
        if flags.check {
            return Ok(());
        }
        let _logging = Logging::start(&config.log);
        run(config)
    })
}
