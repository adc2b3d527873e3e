//! The program `vcuda`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    // Its temporary quotas share times with other processes.
    vcuda_region::clock::follow_host();
    match vcuda_cli::complete() {
        Ok(false) => vcuda_cli::program::run(vcuda_cli::carry_out),
        answered => vcuda_cli::program::ending(answered.map(drop)),
    }
}
