//! `vcuda bench` and `vcuda demo`: carried out by the program `vcuda-bench`, which is installed beside `vcuda`.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::failure::Failure;
use crate::installation;

const PROGRAM: &str = "vcuda-bench";

/// Replaces this process by `vcuda-bench` with the same arguments. Returns only on failure.
pub(crate) fn become_bench() -> Failure {
    let program = match installation::program(PROGRAM) {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    let error = Command::new(&program).args(env::args_os().skip(1)).exec();
    Failure::access("execute", &program, &error)
}
