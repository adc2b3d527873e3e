//! The environment that a process was started with, even while it starts.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::clock::now_ns;

/// Longest wait for a process to start its program (ns): for page faults on a loaded machine.
const START_TIME_NS: u64 = 1_000_000_000;

/// The variables of the process that `folder` of `/proc` describes, each ended by a zero byte.
///
/// In the middle of `execve` a process already has its new memory, but the kernel notes only then where the variables
/// lie. Until then `environ` and `cmdline` are both empty (Linux, `fs/exec.c` and `fs/proc/base.c`), and posix_spawn
/// returns within that moment. So an empty file is read again until the program is started, for at most a second.
///
/// # Errors
/// Fails if the process has ended, or is another user's.
pub fn environment(folder: &Path) -> io::Result<Vec<u8>> {
    let deadline_ns = now_ns() + START_TIME_NS;
    loop {
        // Asked first: a process that has started by then has its variables.
        let is_starting = is_starting(folder);
        let variables = fs::read(folder.join("environ"))?;
        if !variables.is_empty() || !is_starting || now_ns() > deadline_ns {
            return Ok(variables);
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Whether a process has not started its program yet. Kernel threads and ended processes have none; each program has
/// a name.
fn is_starting(folder: &Path) -> bool {
    fs::read_link(folder.join("exe")).is_ok()
        && fs::read(folder.join("cmdline")).is_ok_and(|line| line.is_empty())
}
