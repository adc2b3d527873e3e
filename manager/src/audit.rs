//! What the figures do not say of themselves (I15): each second, what NVML knows of the GPUs' processes is laid beside what
//! has registered and what `usage` says.
//!
//! Found are processes that use a managed GPU and that nothing binds ([`UNREGISTERED`]), processes of a container that use
//! its GPU without having loaded its limits ([`NOT_ATTACHED`]), use above a quota ([`OVER_LIMIT`]), files that were damaged
//! or replaced and figures below the truth ([`TAMPERED`]), processes whose files were deleted under them ([`DETACHED`]),
//! that have memory and never registered ([`NOT_REGISTERED`]) or loaded an older library ([`OLDER_SHIM`]), and refusals of
//! memory ([`MEMORY_DENIED`]). What is found is counted, stands in the snapshot as long as it holds, and is told as an event. Nothing is done about it: `report` is the
//! only policy there is.

mod deleted;
mod judge;
mod whose;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use vcuda_region::GpuUuid;

use crate::background::Background;
use crate::events::{Events, Report, Severity};
use crate::metrics::Audited;
use crate::observe::{Findings, Snapshot};
use judge::{Finding, Use, judge};
use whose::Whose;

/// A process uses a managed GPU, and nothing says whose it is.
pub const UNREGISTERED: &str = "VcudaUnregistered";
/// A container has more of a GPU than its limit.
pub const OVER_LIMIT: &str = "VcudaOverLimit";
/// A container's files were damaged or replaced, or say less than the truth.
pub const TAMPERED: &str = "VcudaTampered";
/// A process of a container uses a GPU and has not loaded the container's limits.
pub const NOT_ATTACHED: &str = "VcudaNotAttached";
/// A process of a container uses a GPU with files that were deleted.
pub const DETACHED: &str = "VcudaDetached";
/// A process of a container has memory and has not registered.
pub const NOT_REGISTERED: &str = "VcudaNotRegistered";
/// A process of a container has loaded a library of an older release than the manager's.
pub const OLDER_SHIM: &str = "VcudaOlderShim";
/// A container was refused memory.
pub const MEMORY_DENIED: &str = "VcudaMemoryDenied";

/// What NVML and `usage` say are of two moments: it must hold in so many looks in a row.
const LOOKS: u32 = 3;

/// Processes on a GPU, as NVML knows them: PID on the host and memory in bytes, if it says.
pub type Processes = dyn Fn(&GpuUuid) -> Result<Vec<(u32, Option<u64>)>, String> + Send;

/// How often each was found, by reason.
pub type Counts = BTreeMap<&'static str, u64>;

/// Looks each second until it is dropped.
#[derive(Debug)]
pub struct Auditor {
    counts: Arc<Mutex<Counts>>,
    audited: Arc<Mutex<Audited>>,
    _thread: Background,
}

impl Auditor {
    /// Starts it, to look once in `every`: `snapshots` and `findings` are the [`crate::observe::Observatory`]'s.
    ///
    /// # Errors
    /// No thread is left.
    pub fn start(
        root: &std::path::Path,
        every: Duration,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        findings: Arc<Findings>,
        events: Arc<Events>,
        processes: Box<Processes>,
    ) -> io::Result<Self> {
        let mut audit = Audit::new(Whose::new(root), findings, events);
        let (counts, audited) = (Arc::clone(&audit.counts), Arc::clone(&audit.audited));
        let thread = Background::start("auditor", move |stop| {
            while !stop.is_asked() {
                let snapshot = Arc::clone(&snapshots.borrow());
                audit.look(&snapshot, &*processes);
                std::thread::park_timeout(every);
            }
        })?;
        Ok(Self {
            counts,
            audited,
            _thread: thread,
        })
    }

    /// How often each was found, by reason; once for as long as it holds.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts.lock().clone()
    }

    /// The bytes of what holds now.
    #[must_use]
    pub fn audited(&self) -> Audited {
        self.audited.lock().clone()
    }
}

/// What the thread remembers.
#[derive(Debug)]
struct Audit {
    whose: Whose,
    findings: Arc<Findings>,
    events: Arc<Events>,
    counts: Arc<Mutex<Counts>>,
    audited: Arc<Mutex<Audited>>,
    /// In how many looks in a row each was found.
    held: HashMap<judge::Key, u32>,
    /// Refusals so far, by container and GPU.
    denied: HashMap<(String, GpuUuid), u64>,
}

impl Audit {
    fn new(whose: Whose, findings: Arc<Findings>, events: Arc<Events>) -> Self {
        let counts = [
            UNREGISTERED,
            OVER_LIMIT,
            TAMPERED,
            NOT_ATTACHED,
            DETACHED,
            NOT_REGISTERED,
            OLDER_SHIM,
            MEMORY_DENIED,
        ];
        Self {
            whose,
            findings,
            events,
            counts: Arc::new(Mutex::new(counts.map(|reason| (reason, 0)).into())),
            audited: Arc::default(),
            held: HashMap::new(),
            denied: HashMap::new(),
        }
    }

    fn look(&mut self, snapshot: &Snapshot, processes: &Processes) {
        self.whose.refresh(snapshot);
        let mut uses = Vec::new();
        for gpu in judge::gpus_of(snapshot) {
            // What NVML does not say now, it says at a later look: the inventory tells that it is silent.
            for (host_pid, used_bytes) in processes(&gpu).unwrap_or_default() {
                let owner = self.whose.of(host_pid, snapshot);
                uses.push(Use {
                    gpu,
                    host_pid,
                    used_bytes,
                    owner,
                });
            }
        }
        let found = judge(snapshot, &uses);
        let mut held = HashMap::new();
        let mut standing: HashMap<String, Vec<String>> = HashMap::new();
        let mut audited = Audited::default();
        for finding in found {
            let looks = self
                .held
                .get(&finding.key)
                .copied()
                .unwrap_or(0)
                .saturating_add(1);
            held.insert(finding.key.clone(), looks);
            if looks < finding.looks {
                continue;
            }
            if looks == finding.looks {
                self.count(finding.key.reason);
            }
            if finding.is_note {
                if looks == finding.looks {
                    self.tell(finding);
                }
                continue;
            }
            if let Some(container) = &finding.key.container {
                standing
                    .entry(container.clone())
                    .or_default()
                    .push(finding.text.clone());
            }
            match (finding.key.reason, &finding.key.container, finding.key.gpu) {
                (UNREGISTERED, _, Some(gpu)) => {
                    *audited.unregistered_bytes.entry(gpu).or_default() += finding.bytes;
                }
                // Its container is gone, and nobody else's figures have it.
                (DETACHED, Some(container), Some(gpu)) if snapshot.find(container).is_none() => {
                    *audited.unregistered_bytes.entry(gpu).or_default() += finding.bytes;
                }
                (OVER_LIMIT, Some(container), Some(gpu)) => {
                    audited.over_bytes.insert((container.clone(), gpu), finding.bytes);
                }
                _ => {}
            }
            self.tell(finding);
        }
        self.held = held;
        *self.audited.lock() = audited;
        *self.findings.lock() = standing;
        self.look_at_denials(snapshot);
    }

    /// Refusals since the last look. Those of before the manager's first are nobody's news.
    fn look_at_denials(&mut self, snapshot: &Snapshot) {
        let mut now = HashMap::new();
        for container in &snapshot.containers {
            for device in &container.devices {
                let key = (container.id.clone(), device.gpu);
                let before = self.denied.get(&key).copied().unwrap_or(device.denied);
                let more = device.denied.saturating_sub(before);
                if more > 0 {
                    self.count(MEMORY_DENIED);
                    let text = format!(
                        "memory was refused {more} times: {} of {} bytes are used; give it more with `vcuda set`, or let it ask for less",
                        device.used_bytes, device.config.memory_limit_bytes
                    );
                    self.tell(Finding::new(
                        MEMORY_DENIED,
                        Some(&container.id),
                        Some(device.gpu),
                        None,
                        text,
                    ));
                }
                now.insert(key, device.denied);
            }
        }
        self.denied = now;
    }

    fn count(&self, reason: &'static str) {
        *self.counts.lock().entry(reason).or_default() += 1;
    }

    fn tell(&self, finding: Finding) {
        self.events.report(Report {
            severity: if finding.is_note {
                Severity::Info
            } else {
                Severity::Warning
            },
            reason: finding.key.reason,
            message: finding.text,
            container: finding.key.container,
            gpu: finding.key.gpu.map(|gpu| gpu.to_string()),
            host_pid: finding.key.host_pid,
        });
    }
}

#[cfg(test)]
mod tests;
