//! Replacement of this process by another program, after which no process of vcuda is left.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::failure::{Failure, reason};

/// Replaces this process by `command` with the variables of `changes` set. Returns only on failure.
pub(crate) fn become_command(command: &[OsString], changes: &[(&str, OsString)]) -> Failure {
    let Some((program, arguments)) = command.split_first() else {
        return Failure::Usage("no command to run; write it after `--`".to_owned());
    };
    let mut child = Command::new(program);
    child.args(arguments).envs(changes.iter().map(|(name, value)| (name, value)));
    refused(&program.to_string_lossy(), &child.exec())
}

/// Message and exit status of shells for a command that cannot be started.
fn refused(program: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => {
            Failure::NotFound(format!("{program}: no such file (or its interpreter is missing)"))
        }
        io::ErrorKind::NotFound => {
            Failure::NotFound(format!("{program}: command not found; is it spelled right and in PATH?"))
        }
        io::ErrorKind::PermissionDenied => Failure::NotExecutable(format!(
            "{program}: not executable; check it with `ls -l`, set it with `chmod +x`"
        )),
        _ => Failure::NotExecutable(format!("{program}: cannot be executed: {}", reason(error))),
    }
}
