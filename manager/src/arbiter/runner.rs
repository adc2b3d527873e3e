//! The one way to run an arbiter: as the manager's thread, or as a process of its own in experiments in virtual time.
//!
//! While none runs, the shims notice that the beat is missing and charge elapsed time as it is.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vcuda_limiter::controller::QUIET_NS;
use vcuda_region::clock;

use crate::arbiter::{Arbiter, Evidence, Waker};

/// One step of a [`Runner`], which then sleeps until the next one is due, something changes, or its [`Waker`] ends the sleep.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// When the step was (`CLOCK_MONOTONIC`, ns).
    pub now_ns: u64,
    /// A tenant has touched its `usage`, or tenants came or went.
    pub is_news: bool,
    /// The debt of a tenant that is gone is remembered, should its name come back.
    pub remembers_debts: bool,
}

/// An arbiter that is ready to run. Only one at a time may run under a root, which its owner sees to.
#[derive(Debug)]
pub struct Runner {
    root: PathBuf,
    waker: Waker,
    evidence: Evidence,
    longest_ns: u64,
}

impl Runner {
    /// An arbiter of the tenants under `root`.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            waker: Waker::new()?,
            evidence: Evidence::default(),
            longest_ns: u64::MAX,
        })
    }

    /// Bounds the tenants' claims by this evidence.
    pub fn with_evidence(self, evidence: Evidence) -> Self {
        Self { evidence, ..self }
    }

    /// Sleeps no longer than while tenants are idle (100 ms): reported changes do not end a sleep in virtual time.
    pub fn with_short_pauses(self) -> Self {
        Self { longest_ns: QUIET_NS, ..self }
    }

    /// A handle that ends the runner's sleep, for a caller whose `step` is to break now.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Arbitrates until `step`, called after each look and before the sleep, breaks.
    pub fn run(&self, step: &mut dyn FnMut(Step) -> ControlFlow<()>) {
        let mut arbiter = Arbiter::new(self.evidence.clone());
        loop {
            let now_ns = clock::now_ns();
            let is_news = arbiter.note_changes(now_ns);
            // The tenants that were known go on until the folder can be read again.
            let _ = arbiter.refresh(&self.root, now_ns);
            arbiter.arbitrate(now_ns);
            let remembers_debts = arbiter.remembers_debts();
            if step(Step { now_ns, is_news, remembers_debts }).is_break() {
                return;
            }
            let pause_ns = arbiter.pause_ns(clock::now_ns()).min(self.longest_ns);
            arbiter.sleep(&self.waker, Duration::from_nanos(pause_ns));
        }
    }
}
