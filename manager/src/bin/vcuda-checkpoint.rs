//! vcuda-checkpoint: see [`vcuda_manager::checkpoint`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vcuda_manager::checkpoint::program::main()
}
