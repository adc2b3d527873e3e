//! What the figures do not say of themselves (I15): each second, what NVML knows of the GPUs' processes is laid beside what
//! has registered and what `usage` says.
//!
//! Found are processes that use a managed GPU and that nothing binds ([`UNREGISTERED`]), processes of a container that use
//! its GPU without having loaded its limits ([`NOT_ATTACHED`]), use above a quota ([`OVER_LIMIT`]), files that were damaged
//! or replaced and figures below the truth ([`TAMPERED`]), processes whose files were deleted under them ([`DETACHED`]),
//! that have memory and never registered ([`NOT_REGISTERED`]) or loaded an older library ([`OLDER_SHIM`]), and refusals of
//! memory ([`MEMORY_DENIED`]). What is found is counted, stands in the snapshot as long as it holds, and is told as an event.
//! Nothing is done about it, but for [`NOT_ATTACHED`] where the operator wants it ([`Action::Kill`]): that process is ended.

mod action;
mod attribution;
mod deleted;
mod ends;
mod findings;

use std::collections::{BTreeMap, HashMap, HashSet};
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
pub use action::{Action, Actions};
use attribution::Whose;
use ends::Ends;
use findings::{Finding, Use, findings_in};

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
/// A process of a container used a GPU without the container's limits, and was ended.
pub const KILLED: &str = "VcudaKilled";
/// ... and could not be ended.
pub const KILL_FAILED: &str = "VcudaKillFailed";
/// A container was refused memory.
pub const MEMORY_DENIED: &str = "VcudaMemoryDenied";

/// What NVML and `usage` say are of two moments: it must hold in so many looks in a row.
const LOOKS: u32 = 3;

/// Processes on a GPU, as NVML knows them: PID on the host and memory in bytes, if it says.
pub type Processes = dyn Fn(&GpuUuid) -> Result<Vec<(u32, Option<u64>)>, String> + Send;

/// The Kubernetes namespace of a container; empty if it has none.
pub type Namespaces = dyn Fn(&str) -> String + Send;

/// What the auditor is told, and whom it asks.
pub struct Sources {
    /// The [`crate::observe::Observatory`]'s.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The same one's.
    pub findings: Arc<Findings>,
    /// Where it tells.
    pub events: Arc<Events>,
    /// NVML.
    pub processes: Box<Processes>,
    /// Whose containers are.
    pub namespaces: Box<Namespaces>,
    /// What is to be done, now and later.
    pub actions: watch::Receiver<Actions>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

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
    /// Starts it, to look once in `every`.
    ///
    /// # Errors
    /// No thread is left.
    pub fn start(root: &std::path::Path, every: Duration, sources: Sources) -> io::Result<Self> {
        let mut audit = Audit::new(Whose::new(root), sources.findings, sources.events);
        let (counts, audited) = (Arc::clone(&audit.counts), Arc::clone(&audit.audited));
        let thread = Background::start("auditor", move |stop| {
            while !stop.is_asked() {
                let snapshot = Arc::clone(&sources.snapshots.borrow());
                let actions = sources.actions.borrow().clone();
                let is_kill = |id: &str| actions.of(&(sources.namespaces)(id)) == Action::Kill;
                audit.look(&snapshot, &*sources.processes, &is_kill);
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
    held: HashMap<findings::Key, u32>,
    /// Refusals so far, by container and GPU.
    denied: HashMap<(String, GpuUuid), u64>,
    /// Whether containers have been looked at: what was refused before is nobody's news; what comes later is, from zero.
    has_looked: bool,
    ends: Ends,
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
            KILLED,
            KILL_FAILED,
        ];
        Self {
            whose,
            findings,
            events,
            counts: Arc::new(Mutex::new(counts.map(|reason| (reason, 0)).into())),
            audited: Arc::default(),
            held: HashMap::new(),
            denied: HashMap::new(),
            has_looked: false,
            ends: Ends::default(),
        }
    }

    fn look(&mut self, snapshot: &Snapshot, processes: &Processes, is_kill: &dyn Fn(&str) -> bool) {
        self.whose.refresh(snapshot);
        let mut uses = Vec::new();
        for gpu in findings::gpus_of(snapshot) {
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
        let found = findings_in(snapshot, &uses);
        let is_naked = |finding: &&Finding| finding.key.reason == NOT_ATTACHED;
        let naked: Vec<Finding> = found.iter().filter(is_naked).cloned().collect();
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
        self.end_naked(snapshot, &naked, is_kill);
        self.look_at_denials(snapshot);
    }

    /// Ends processes that have used a GPU without their container's limits in so many looks as their finding needs, where
    /// that is wanted, and where all that can be seen of them says so once more: their root has the container's limits, and
    /// they have mapped neither these nor its `usage`.
    fn end_naked(&mut self, snapshot: &Snapshot, found: &[Finding], is_kill: &dyn Fn(&str) -> bool) {
        let mut pids = HashSet::new();
        for finding in found {
            let (Some(container), Some(host_pid)) = (&finding.key.container, finding.key.host_pid) else {
                continue;
            };
            let is_whole = snapshot
                .find(container)
                .is_some_and(|seen| seen.problem.is_none());
            if !is_whole || !is_kill(container) {
                continue;
            }
            pids.insert(host_pid);
            let looks = self.held.get(&finding.key).copied().unwrap_or(0);
            let was_held = self.ends.hold(host_pid);
            if !was_held || looks < finding.looks || !self.whose.is_naked(host_pid, container) {
                continue;
            }
            let (reason, text) = match self.ends.end(host_pid) {
                Ok(false) => continue,
                Ok(true) => (
                    KILLED,
                    format!(
                        "process {host_pid} of {container} used a GPU without its limits and was ended (audit.action is kill)"
                    ),
                ),
                Err(error) => (
                    KILL_FAILED,
                    format!(
                        "process {host_pid} of {container} uses a GPU without its limits and cannot be ended: {error}; the manager needs CAP_KILL for audit.action kill"
                    ),
                ),
            };
            self.count(reason);
            self.tell(Finding::new(
                reason,
                Some(container),
                finding.key.gpu,
                Some(host_pid),
                text,
            ));
        }
        self.ends.keep(&pids);
    }

    /// Refusals since the last look. Those of before the manager's first are nobody's news.
    fn look_at_denials(&mut self, snapshot: &Snapshot) {
        let mut now = HashMap::new();
        for container in &snapshot.containers {
            for device in &container.devices {
                let key = (container.id.clone(), device.gpu);
                let unknown = if self.has_looked { 0 } else { device.denied };
                let before = self.denied.get(&key).copied().unwrap_or(unknown);
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
        self.has_looked |= snapshot.number > 0;
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
