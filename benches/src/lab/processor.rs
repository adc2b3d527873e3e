//! One processor for all processes of a lab: only the thread with the turn runs, and a second processor would gain nothing. To hand
//! the turn on to a thread of the same processor takes a switch; another processor has to be woken up first.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// A processor, as the set that holds it alone.
#[derive(Debug)]
pub(super) struct Processor(CpuSet);

impl Processor {
    /// The next of the processors that this process may use: labs side by side, of one process or of several, rarely
    /// share one. Fails if the kernel does not tell them.
    pub(super) fn next() -> Result<Processor> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let usable = sched_getaffinity(Pid::from_raw(0)).context("sched_getaffinity")?;
        let usable: Vec<usize> =
            (0..CpuSet::count()).filter(|number| usable.is_set(*number) == Ok(true)).collect();
        let first = usize::try_from(std::process::id())?;
        let turn = (first + NEXT.fetch_add(1, Ordering::Relaxed)) % usable.len().max(1);
        let mut one = CpuSet::new();
        one.set(*usable.get(turn).context("no processor may be used")?)?;
        Ok(Processor(one))
    }

    /// Keeps a process of one thread, and what it starts, to this processor. Fails if there is no such process.
    pub(super) fn keep(&self, pid: u32) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(pid)?);
        sched_setaffinity(pid, &self.0).context("sched_setaffinity")
    }
}
