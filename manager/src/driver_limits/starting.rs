//! Containers that a runtime is about to start: their cgroups are limited before their programs run, whatever these are.

use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use vcuda_region::process::Identity;

use crate::observe::{DriverLimit, SnapshotCache};

/// Longest wait for an answer.
const WITHIN: Duration = Duration::from_secs(5);

/// Containers that wait for their limits.
#[derive(Debug)]
pub struct StartingContainers {
    waiting: Mutex<Vec<StartingContainer>>,
    snapshots: Arc<SnapshotCache>,
    /// The thread that limits.
    thread: OnceLock<Thread>,
}

#[derive(Debug)]
pub(super) struct StartingContainer {
    pub(super) tenant: String,
    /// PID of its first process on the host, and when that started: the PID is reused if the runtime gives up.
    pub(super) pid: u32,
    pub(super) start_ticks: u64,
    pub(super) answer: oneshot::Sender<DriverLimit>,
}

impl StartingContainers {
    /// None yet. `snapshots` are those for which the thread waits.
    pub fn new(snapshots: Arc<SnapshotCache>) -> Self {
        Self { waiting: Mutex::default(), snapshots, thread: OnceLock::new() }
    }

    /// Has the cgroup of this process limited to the quota of the tenant with this id.
    pub(crate) async fn limit(&self, tenant: String, pid: u32) -> DriverLimit {
        let Ok(Identity { start_ticks, .. }) = Identity::of(pid) else {
            return DriverLimit::Missing(format!("process {pid} cannot be seen"));
        };
        let (answer, told) = oneshot::channel();
        self.waiting.lock().push(StartingContainer { tenant, pid, start_ticks, answer });
        self.snapshots.end_waits();
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        match tokio::time::timeout(WITHIN, told).await {
            Ok(Ok(limit)) => limit,
            _ => DriverLimit::Missing(
                "the manager's thread that sets the driver's limits does not answer".into(),
            ),
        }
    }

    /// Those that wait now. The calling thread is woken for the next ones.
    pub(super) fn take(&self) -> Vec<StartingContainer> {
        self.thread.get_or_init(std::thread::current);
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.retain(|container| !container.answer.is_closed());
        waiting
    }
}
