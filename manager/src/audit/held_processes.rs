//! Processes that may have to be ended, each held by a pidfd from the first look that found it. NVML's later entry for the
//! PID then means this process, not a later one with the same PID.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

#[derive(Debug, Default)]
pub(super) struct HeldProcesses {
    held: HashMap<u32, Held>,
}

#[derive(Debug)]
struct Held {
    process: OwnedFd,
    is_ended: bool,
}

impl HeldProcesses {
    /// Holds the process. Returns whether an earlier look held it already.
    pub(super) fn hold(&mut self, host_pid: u32) -> bool {
        if self.held.contains_key(&host_pid) {
            return true;
        }
        let pid = i32::try_from(host_pid).ok().and_then(Pid::from_raw);
        // A process that has just ended cannot be held, and need not be.
        if let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
            let is_ended = false;
            self.held.insert(host_pid, Held { process, is_ended });
        }
        false
    }

    /// Releases all processes that are not in `found`.
    pub(super) fn retain(&mut self, found: &HashSet<u32>) {
        self.held.retain(|host_pid, _| found.contains(host_pid));
    }

    /// Ends a held process. Returns whether this call ended it.
    pub(super) fn end(&mut self, host_pid: u32) -> io::Result<bool> {
        let Some(held) = self.held.get_mut(&host_pid).filter(|held| !held.is_ended) else {
            return Ok(false);
        };
        match pidfd_send_signal(&held.process, Signal::KILL) {
            Ok(()) => {
                held.is_ended = true;
                Ok(true)
            }
            // The process has ended by itself.
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_the_process_that_was_held_is_ended() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut held = HeldProcesses::default();
        assert!(!held.end(child.id()).unwrap(), "no descriptor holds it");
        assert!(!held.hold(child.id()), "from now on");
        assert!(held.hold(child.id()));
        assert!(held.end(child.id()).unwrap());
        assert!(!held.end(child.id()).unwrap(), "once");
        assert_eq!(child.wait().unwrap().signal(), Some(libc_sigkill()));
        // The PID may be another process's now; the pidfd is not.
        let mut gone = Command::new("true").spawn().unwrap();
        held.hold(gone.id());
        gone.wait().unwrap();
        assert!(!held.end(gone.id()).unwrap());
        held.retain(&HashSet::new());
        assert!(held.held.is_empty());
    }

    fn libc_sigkill() -> i32 {
        Signal::KILL.as_raw()
    }
}
