//! The environment that a process was started with, also while it starts.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::clock::now_ns;

/// How long a process is given to start its program: page faults of a loaded machine, not more.
const START_TIME_NS: u64 = 1_000_000_000;

/// The variables of the process that `folder` of `/proc` tells of, each ended by a zero byte.
///
/// In the middle of `execve` a process has its new memory already, and the kernel notes only then where the variables lie:
/// until it has, `environ` and `cmdline` are both empty (Linux, `fs/exec.c` and `fs/proc/base.c`). posix_spawn returns within
/// that moment. So what is empty is read again until the program is started, for at most a second.
///
/// # Errors
/// The process has ended, or is another user's.
pub fn environment(folder: &Path) -> io::Result<Vec<u8>> {
    let deadline_ns = now_ns() + START_TIME_NS;
    loop {
        // Asked first: what has started by then has its variables.
        let is_starting = is_starting(folder);
        let variables = fs::read(folder.join("environ"))?;
        if !variables.is_empty() || !is_starting || now_ns() > deadline_ns {
            return Ok(variables);
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// A thread of the kernel and a process that has ended have no program; a program without variables has a name.
fn is_starting(folder: &Path) -> bool {
    fs::read_link(folder.join("exe")).is_ok()
        && fs::read(folder.join("cmdline")).is_ok_and(|line| line.is_empty())
}
