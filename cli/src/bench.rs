//! `vcuda bench` and `vcuda demo` are the program `vcuda-bench`, which stands beside `vcuda`.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::failure::Failure;
use crate::installation;

const PROGRAM: &str = "vcuda-bench";

/// Replaces this process by `vcuda-bench`, with the arguments of this one. Returns only if that failed.
///
/// # Errors
/// The program is not there ([`Failure::Unavailable`]) or cannot be executed.
pub(crate) fn become_bench() -> Failure {
    let program = match installation::program(PROGRAM) {
        Ok(program) => program,
        Err(failure) => return failure,
    };
    let error = Command::new(&program).args(env::args_os().skip(1)).exec();
    Failure::access("execute", &program, &error)
}
