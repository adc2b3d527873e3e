//! The leader's care for its standby: a second process that takes over when the leader is gone.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use vcuda_arbiter::{Kind, LeaderLock};

use crate::installation;

/// Interval at which the leader looks after its standby (ns).
const TEND_NS: u64 = 500_000_000;

/// The standby, as the leader knows it.
#[derive(Debug, Default)]
pub(super) struct Standby {
    /// Opened when this process leads: it must not own the lock then.
    lock: Option<LeaderLock>,
    child: Option<Child>,
    tended_ns: u64,
}

impl Standby {
    /// Now and then starts one if there is none, and ends one that is stopped.
    ///
    /// # Errors
    /// The lock cannot be used, or the program not be started.
    pub(super) fn tend(&mut self, root: &Path, now_ns: u64) -> io::Result<()> {
        if now_ns < self.tended_ns.saturating_add(TEND_NS) && self.tended_ns != 0 {
            return Ok(());
        }
        self.tended_ns = now_ns;
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
        }
        Ok(())
    }
}
