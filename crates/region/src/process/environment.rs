//! The environment that a process was started with, even while it starts.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::clock::now_ns;
use crate::sys;

/// Longest wait for a process to start its program (ns): for page faults on a loaded machine.
const START_TIME_NS: u64 = 1_000_000_000;
/// The most variables that the kernel takes (bytes): a quarter of the largest stack (execve(2)).
const VARIABLES_MAX: usize = 6 << 20;

/// The variables of the process that `folder` of `/proc` describes, each ended by a zero byte.
///
/// In the middle of `execve` a process already has its new memory, but the kernel notes only then where the variables
/// lie, their end last (Linux, `create_elf_tables` in `fs/binfmt_elf.c`). Until then `environ` is empty, and posix_spawn
/// returns within that moment. So an empty file is read again until the program is started, for at most a second.
///
/// Before its `execve` a child of posix_spawn shows its parent's variables, whose memory it shares. That does no harm: the
/// parent, which waits meanwhile, says the same, and the child has no context and no slot yet.
pub fn environment(folder: &Path) -> io::Result<Vec<u8>> {
    let deadline_ns = now_ns() + START_TIME_NS;
    loop {
        // Asked first: a process that has started by then has its variables.
        let is_starting = is_starting(folder);
        let variables = environment_now(folder)?;
        if !variables.is_empty() || !is_starting || now_ns() > deadline_ns {
            return Ok(variables);
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// As [`environment`], without waiting: for a process that may have emptied both files itself.
///
/// Only its owner may read the file, whatever `CAP_SYS_PTRACE` permits; the memory that it shows is not so closed.
///
/// # Errors
/// Fails if the process has ended, or is another user's and the rights of ptrace(2) over it are missing.
pub fn environment_now(folder: &Path) -> io::Result<Vec<u8>> {
    match fs::read(folder.join("environ")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => from_memory(folder).ok_or(error),
        variables => variables,
    }
}

/// The variables from the process's memory: fields 50 and 51 of its `stat` say where they lie (proc_pid_stat(5)).
fn from_memory(folder: &Path) -> Option<Vec<u8>> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let (from, to) = place(folder)?;
    let size = to.checked_sub(from).filter(|size| (1..=VARIABLES_MAX).contains(size))?;
    sys::memory_of(pid, from, size).ok()
}

/// Where the variables lie in the process's memory: their beginning and their end.
fn place(folder: &Path) -> Option<(usize, usize)> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // The name may have any letters. Field 3 follows it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut addresses = fields.split_ascii_whitespace().skip(50 - 3);
    let mut address = || addresses.next()?.parse::<usize>().ok();
    Some((address()?, address()?))
}

/// Whether a process has not started its program yet. Kernel threads and ended processes have none.
fn is_starting(folder: &Path) -> bool {
    fs::read_link(folder.join("exe")).is_ok() && place(folder).is_some_and(|(_, end)| end == 0)
}
