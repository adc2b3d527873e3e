//! The one way to run an arbiter: as the manager's thread, or as a process.
//!
//! The owner of the leader lock leads: it arbitrates. One process more stands by, and takes over when the leader has ended,
//! or has stopped and so been ended. A process yields to the manager: it ends when a manager is there. Should leader and
//! standby die at once, the shims notice that the beat is missing and charge elapsed time as it is, until another is started.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vcuda_limiter::controller::QUIET_NS;
use vcuda_region::process::Identity;
use vcuda_region::{clock, directory};

use crate::{Arbiter, Evidence, Kind, LeaderLock, Waker};

/// Interval at which a process removes the directories of dead tenants, and looks whether it is still needed (ns).
const CLEAN_NS: u64 = 1_000_000_000;
/// Interval at which the processes that wait for a leader's end look at it (ns).
const LOOK_NS: u64 = 50_000_000;
/// Between two attempts of the manager to lead: the leader is about to end.
const ATTEMPT: Duration = Duration::from_millis(2);

/// The kind of process that runs the arbiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A thread of the manager. It waits until it can lead, and leads until it is told to end.
    Manager,
    /// A process of its own. It leads or stands by, and ends with the last tenant.
    Process,
}

/// One step of a [`Runner`], which then sleeps until the next one is due, something changes, or its [`Waker`] ends the sleep.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Whether this is the leader.
    pub leads: bool,
    /// When the step was (`CLOCK_MONOTONIC`, ns).
    pub now_ns: u64,
    /// A tenant has touched its `usage`, or tenants came or went.
    pub is_news: bool,
}

/// An arbiter that is ready to run.
#[derive(Debug)]
pub struct Runner {
    root: PathBuf,
    role: Role,
    me: Identity,
    leader: LeaderLock,
    standby: LeaderLock,
    manager: LeaderLock,
    waker: Waker,
    evidence: Evidence,
}

impl Runner {
    /// An arbiter of the tenants under `root`.
    ///
    /// # Errors
    /// The locks or `/proc` cannot be used. For the manager: another one is at work under this root (`AddrInUse`).
    pub fn new(root: &Path, role: Role) -> io::Result<Self> {
        let manager = LeaderLock::open(root, Kind::Manager)?;
        if role == Role::Manager && !manager.try_acquire()? {
            let pid = manager.owner()?.unwrap_or(0);
            let why =
                format!("another manager (process {pid}) is at work under {}; stop it first", root.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        Ok(Self {
            root: root.to_owned(),
            role,
            me: Identity::current()?,
            leader: LeaderLock::open(root, Kind::Leader)?,
            standby: LeaderLock::open(root, Kind::Standby)?,
            manager,
            waker: Waker::new()?,
            evidence: Evidence::default(),
        })
    }

    /// Bounds the tenants' claims by this evidence.
    pub fn with_evidence(self, evidence: Evidence) -> Self {
        Self { evidence, ..self }
    }

    /// A handle that ends the runner's sleep, for a caller whose `step` is to break now.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Runs until `step`, called after each look and before the sleep, breaks. A process also ends when a manager is there, when no tenant is
    /// left, and at once if a leader and a standby are there already.
    ///
    /// # Errors
    /// The locks or `root` cannot be used any more.
    pub fn run(mut self, step: &mut dyn FnMut(Step) -> ControlFlow<()>) -> io::Result<()> {
        while self.becomes_leader(step)? {
            let led = self.lead(step);
            self.leader.release();
            // A process that started while this one was ending saw it running: so look again.
            if led?.is_break() || self.is_managed() || self.is_over()? {
                break;
            }
        }
        Ok(())
    }

    /// Waits for the leader lock; `false` if it is not to be waited for any more.
    fn becomes_leader(&mut self, step: &mut dyn FnMut(Step) -> ControlFlow<()>) -> io::Result<bool> {
        let is_process = self.role == Role::Process;
        let mut looked_ns = clock::now_ns();
        let mut stands_by = false;
        while !self.leader.try_acquire()? {
            if is_process && !stands_by && !self.standby.try_acquire()? {
                return Ok(false);
            }
            stands_by = true;
            let now_ns = clock::now_ns();
            if is_process {
                self.standby.beat(now_ns);
            }
            if now_ns >= looked_ns + LOOK_NS {
                looked_ns = now_ns;
                self.leader.end_silent_owner()?;
            }
            let pause = if is_process { Duration::from_nanos(LOOK_NS) } else { ATTEMPT };
            let seen = Step { leads: false, now_ns, is_news: false };
            if self.is_managed() || step(seen).is_break() {
                return Ok(false);
            }
            self.waker.sleep(None, pause);
        }
        self.standby.release();
        Ok(true)
    }

    /// Arbitrates until `step` breaks, or until this process is not needed any more.
    fn lead(&self, step: &mut dyn FnMut(Step) -> ControlFlow<()>) -> io::Result<ControlFlow<()>> {
        let mut arbiter = Arbiter::new(self.evidence.clone());
        let mut cleaned_ns = 0;
        loop {
            let now_ns = clock::now_ns();
            self.leader.beat(now_ns);
            let is_news = arbiter.note_changes(now_ns);
            match arbiter.refresh(&self.root, now_ns) {
                Ok(is_due) if is_due && self.is_managed() => return Ok(ControlFlow::Continue(())),
                // The manager goes on with the tenants that were known until the folder can be read again.
                Err(error) if self.role == Role::Process => return Err(io::Error::other(error)),
                _ => {}
            }
            if self.role == Role::Process && now_ns >= cleaned_ns + CLEAN_NS {
                cleaned_ns = now_ns;
                // What cannot be removed now is tried again; a dead tenant has no demand.
                let _ = directory::remove_dead(&self.root, &self.me);
                if self.is_over()? && !arbiter.remembers_debts() {
                    return Ok(ControlFlow::Continue(()));
                }
            }
            arbiter.arbitrate(now_ns);
            let seen = Step { leads: true, now_ns, is_news };
            if step(seen).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // A process does not hear that a manager is there.
            let most_ns = match self.role {
                Role::Manager => u64::MAX,
                Role::Process => QUIET_NS,
            };
            let pause_ns = arbiter.pause_ns(clock::now_ns()).min(most_ns);
            arbiter.sleep(&self.waker, Duration::from_nanos(pause_ns));
        }
    }

    /// Whether a manager arbitrates, or is about to. (Of its own lock, the manager is not told.)
    fn is_managed(&self) -> bool {
        matches!(self.manager.owner(), Ok(Some(_)))
    }

    /// Whether a process is not needed any more: no tenant is left but those that a manager made and no process uses.
    fn is_over(&self) -> io::Result<bool> {
        let tenants = directory::list(&self.root).map_err(io::Error::other)?;
        let is_left = |path: &Path| !directory::is_granted(path) || directory::is_used(path, &self.me);
        Ok(self.role == Role::Process && !tenants.iter().any(|(_, path)| is_left(path)))
    }
}

/// Whether an arbiter runs under `root`. It may end right after the answer: the shims notice a missing beat.
pub fn is_running(root: &Path) -> bool {
    [Kind::Leader, Kind::Manager].into_iter().any(|kind| owner(root, kind).is_some())
}

/// The processes that lead and stand by under `root`, as far as they are of this PID namespace.
pub fn processes(root: &Path) -> Vec<i32> {
    [Kind::Leader, Kind::Standby]
        .into_iter()
        .filter_map(|kind| owner(root, kind).filter(|pid| *pid > 0))
        .collect()
}

fn owner(root: &Path, kind: Kind) -> Option<i32> {
    LeaderLock::open(root, kind).ok()?.owner().ok()?
}
