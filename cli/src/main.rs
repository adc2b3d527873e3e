//! The program `vcuda`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vcuda_cli::program::run(vcuda_cli::carry_out)
}
