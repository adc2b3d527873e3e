//! Processes that may have to be ended. Each is held by a pidfd from the look that found it first. So NVML's later
//! entry for its PID means this process, and no other one that got the PID meanwhile.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Those that are held, by PID.
#[derive(Debug, Default)]
pub(super) struct Ends {
    held: HashMap<u32, Held>,
}

#[derive(Debug)]
struct Held {
    process: OwnedFd,
    is_ended: bool,
}

impl Ends {
    /// Holds the process; whether it was held since an earlier look.
    pub(super) fn hold(&mut self, host_pid: u32) -> bool {
        if self.held.contains_key(&host_pid) {
            return true;
        }
        let pid = i32::try_from(host_pid).ok().and_then(Pid::from_raw);
        // One that has just ended cannot be held, and need not.
        if let Some(process) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) {
            let is_ended = false;
            self.held.insert(host_pid, Held { process, is_ended });
        }
        false
    }

    /// Lets all others go.
    pub(super) fn keep(&mut self, found: &HashSet<u32>) {
        self.held.retain(|host_pid, _| found.contains(host_pid));
    }

    /// Ends a process that is held. Whether it was this that ended it.
    ///
    /// # Errors
    /// The kernel does not let us.
    pub(super) fn end(&mut self, host_pid: u32) -> io::Result<bool> {
        let Some(held) = self.held.get_mut(&host_pid).filter(|held| !held.is_ended) else {
            return Ok(false);
        };
        match pidfd_send_signal(&held.process, Signal::KILL) {
            Ok(()) => {
                held.is_ended = true;
                Ok(true)
            }
            // It has ended by itself.
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
        let mut ends = Ends::default();
        assert!(!ends.end(child.id()).unwrap(), "no descriptor holds it");
        assert!(!ends.hold(child.id()), "from now on");
        assert!(ends.hold(child.id()));
        assert!(ends.end(child.id()).unwrap());
        assert!(!ends.end(child.id()).unwrap(), "once");
        assert_eq!(child.wait().unwrap().signal(), Some(libc_sigkill()));
        // Its PID may be another's now: the pidfd is not.
        let mut gone = Command::new("true").spawn().unwrap();
        ends.hold(gone.id());
        gone.wait().unwrap();
        assert!(!ends.end(gone.id()).unwrap());
        ends.keep(&HashSet::new());
        assert!(ends.held.is_empty());
    }

    fn libc_sigkill() -> i32 {
        Signal::KILL.as_raw()
    }
}
