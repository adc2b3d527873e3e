//! vcuda-cluster: see [`vcuda_cluster`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use vcuda_cluster::config::{Config, Flags};
use vcuda_cluster::run::run;
use vcuda_daemon::life;
use vcuda_daemon::logging::Logging;

fn main() -> ExitCode {
    life::main("vcuda-cluster", |flags: Flags| {
        let config = Config::load(&flags)?;
        if flags.check {
            return Ok(());
        }
        let _logging = Logging::start(&config.log);
        run(config)
    })
}
