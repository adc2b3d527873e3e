//! kubectl-vcuda: see [`vcuda_cluster::kubectl`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use vcuda_cluster::kubectl::{Flags, run};
use vcuda_daemon::life;

fn main() -> ExitCode {
    life::main("kubectl-vcuda", |flags: Flags| run(&flags))
}
