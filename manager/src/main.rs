//! vcuda-manager: see [`vcuda_manager`].
#![deny(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use vcuda_manager::caretaker;
use vcuda_manager::config::{Config, Flags};
use vcuda_manager::logging::Logging;
use vcuda_manager::run::{RunError, run};

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
    // Whatever the configuration says by now.
    if let Some(root) = flags.root.as_ref().filter(|_| flags.caretaker) {
        return match caretaker::care(root) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => ending(&error.to_string(), 1),
        };
    }
    let config = match Config::load(&flags) {
        Ok(config) => config,
        Err(error) => return ending(&error.to_string(), USAGE),
    };
    if flags.check {
        return ExitCode::SUCCESS;
    }
    let logging = Logging::start(&config);
    match run(config, &flags, &logging) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ RunError::Unavailable(_)) => ending(&error.to_string(), UNAVAILABLE),
        Err(error @ RunError::Failed(_)) => ending(&error.to_string(), 1),
    }
}

/// One line on stderr, also where the log goes elsewhere.
fn ending(message: &str, status: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "vcuda-manager: {message}");
    ExitCode::from(status)
}
