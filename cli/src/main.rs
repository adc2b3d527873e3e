//! The program `vcuda`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match vcuda_cli::completion::answer() {
        Ok(false) => vcuda_cli::program::run(vcuda_cli::carry_out),
        answered => vcuda_cli::program::ending(answered.map(drop)),
    }
}
