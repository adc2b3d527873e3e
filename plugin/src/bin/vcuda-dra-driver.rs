//! The program `vcuda-dra-driver`: see [`vcuda_plugin::dra`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use vcuda_daemon::life;
use vcuda_daemon::logging::Logging;
use vcuda_plugin::config::{Config, Flags};
use vcuda_plugin::dra;

const EXAMPLES: &str = "\
Examples:
  vcuda-dra-driver                                 as /etc/vcuda/device-plugin.toml says
  vcuda-dra-driver --check                         is that file right?
  vcuda-dra-driver --node gpu-1 --metrics off";

/// Gives shares of the node's GPUs to claims that Kubernetes' scheduler allocates.
#[derive(Debug, Parser)]
#[command(name = "vcuda-dra-driver", version, before_help = EXAMPLES)]
struct DriverFlags {
    #[command(flatten)]
    flags: Flags,
}

fn main() -> ExitCode {
    life::main("vcuda-dra-driver", |DriverFlags { flags }| {
        let config = Config::load(&flags)?;
        if flags.check {
            return Ok(());
        }
        let _logging = Logging::start(&config.log);
        dra::run::run(config)
    })
}
