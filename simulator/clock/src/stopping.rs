//! Processes stopped by a signal: their threads keep their entries, and get no turn until they are continued.

use core::sync::atomic::Ordering::Relaxed;
use std::io;
use std::time::Duration;

use crate::kernel;
use crate::schedule::Thread;
use crate::table::{Table, state};
use crate::world::World;

/// Maximum real time until the kernel reports a process as stopped.
const STOPS_WITHIN: Duration = Duration::from_secs(10);
/// Interval between two checks of that.
const STEP: Duration = Duration::from_millis(1);

impl Table {
    /// Marks the threads of process `pid` as stopped, or as continued.
    fn mark(&self, pid: u32, is_stopped: bool) {
        let own = |entry: &&crate::table::Entry| {
            entry.state.load(Relaxed) != state::FREE && entry.pid.load(Relaxed) == pid
        };
        for entry in self.entries.iter().filter(own) {
            entry.stopped.store(u32::from(is_stopped), Relaxed);
        }
    }

    fn is_marked(&self, pid: u32) -> bool {
        let _locked = self.lock();
        let is_it = |entry: &crate::table::Entry| {
            entry.state.load(Relaxed) != state::FREE
                && entry.pid.load(Relaxed) == pid
                && entry.stopped.load(Relaxed) == 1
        };
        self.entries.iter().any(is_it)
    }

    /// Lets the running `thread` stop its process by `stop`, which returns when the process is continued.
    pub fn stop_self(&self, thread: Thread, pid: u32, stop: impl FnOnce()) {
        self.await_turn(thread);
        {
            let locked = self.lock();
            self.mark(pid, true);
            self.wait_again(&locked, thread);
        }
        stop();
        self.await_turn(thread);
    }
}

impl World {
    /// Stops process `pid` (SIGSTOP), which takes part, while the world is paused. Its work on the GPU goes on. Fails
    /// if there is no such process.
    pub fn stop(&self, pid: u32) -> io::Result<()> {
        let table = self.table();
        {
            let _locked = table.lock();
            table.mark(pid, true);
        }
        kernel::signal(pid, libc::SIGSTOP)
    }

    /// Whether process `pid` is stopped, by [`World::stop`] or by itself.
    pub fn is_stopped(&self, pid: u32) -> bool {
        self.table().is_marked(pid)
    }

    /// Continues (SIGCONT) process `pid` while the world is paused. Fails if there is no such process, or if the kernel
    /// does not stop it within ten seconds of real time.
    pub fn resume(&self, pid: u32) -> io::Result<()> {
        let mut left = STOPS_WITHIN;
        // A process that stops itself announces it shortly before.
        while !is_stopped(pid)? {
            left = left.checked_sub(STEP).ok_or(io::ErrorKind::TimedOut)?;
            std::thread::sleep(STEP);
        }
        let table = self.table();
        {
            let _locked = table.lock();
            table.mark(pid, false);
        }
        kernel::signal(pid, libc::SIGCONT)
    }
}

/// Whether a signal has stopped the process (proc_pid_stat(5)).
fn is_stopped(pid: u32) -> io::Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    Ok(state == Some('T'))
}
