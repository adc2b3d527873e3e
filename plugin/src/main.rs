//! vcuda-device-plugin: see [`vcuda_plugin`].
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use vcuda_plugin::config::{Config, Flags};
use vcuda_plugin::logging;
use vcuda_plugin::run::{RunError, run};

/// Wrong use or configuration (`EX_USAGE`, sysexits.h).
const USAGE: u8 = 64;
/// Something that it needs is another's (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
                _ => ExitCode::from(USAGE),
            };
        }
    };
    let config = match Config::load(&flags) {
        Ok(config) => config,
        Err(error) => return ending(&error.to_string(), USAGE),
    };
    if flags.check {
        return ExitCode::SUCCESS;
    }
    logging::start(&config);
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ RunError::Unavailable(_)) => ending(&error.to_string(), UNAVAILABLE),
        Err(error @ RunError::Failed(_)) => ending(&error.to_string(), 1),
    }
}

/// One line on stderr, also where the log goes elsewhere.
fn ending(message: &str, status: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "vcuda-device-plugin: {message}");
    ExitCode::from(status)
}
