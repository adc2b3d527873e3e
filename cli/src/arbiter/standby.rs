//! Standby arbiter: a second process, kept by the leader, that takes over when the leader is gone.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use vcuda_arbiter::{Kind, LeaderLock};

use crate::installation;

/// Interval at which the leader checks its standby (ns).
const CHECK_NS: u64 = 500_000_000;
/// Time within which a standby has its lock (ns).
const START_NS: u64 = 10_000_000_000;

/// The leader's view of its standby.
#[derive(Debug, Default)]
pub(super) struct Standby {
    /// The standby's lock, opened when this process leads, as it must not own it then.
    lock: Option<LeaderLock>,
    child: Option<Child>,
    checked_ns: u64,
    /// Time at which the child was started (ns).
    started_ns: u64,
}

impl Standby {
    /// Starts a standby if there is none, and ends a stopped one; at most every [`CHECK_NS`].
    ///
    /// # Errors
    /// Fails if the lock cannot be used, or if the program cannot be started.
    pub(super) fn check(&mut self, root: &Path, now_ns: u64) -> io::Result<()> {
        if now_ns < self.checked_ns.saturating_add(CHECK_NS) && self.checked_ns != 0 {
            return Ok(());
        }
        self.checked_ns = now_ns;
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(None))
        {
            self.child = None;
        }
        let lock = match &mut self.lock {
            Some(lock) => lock,
            none => none.insert(LeaderLock::open(root, Kind::Standby)?),
        };
        if lock.owner()?.is_some() {
            return lock.end_silent_owner();
        }
        // One that was stopped before it took its lock would stand in the way of another for ever.
        if let Some(child) = &mut self.child
            && now_ns > self.started_ns.saturating_add(START_NS)
        {
            child.kill()?;
            child.wait()?;
            self.child = None;
        }
        if self.child.is_none() {
            let program = installation::executable().map_err(io::Error::other)?;
            let child = Command::new(program)
                .args(["arbiter", "--standby"])
                .current_dir("/")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            self.child = Some(child);
            self.started_ns = now_ns;
        }
        Ok(())
    }
}
