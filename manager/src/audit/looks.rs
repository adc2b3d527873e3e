//! State that the auditor's thread keeps from look to look, and the evaluation of one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_quota::{MemorySize, NO_MEMORY_LIMIT};
use vcuda_region::GpuUuid;

use super::attribution::Whose;
use super::ends::Ends;
use super::findings::{self, Finding, Key, Use, findings_in};
use super::{
    Counts, DETACHED, KILL_FAILED, KILLED, MEMORY_DENIED, NOT_ATTACHED, NOT_REGISTERED, OLDER_SHIM,
    OVER_LIMIT, Processes, TAMPERED, UNREGISTERED,
};
use crate::events::{Events, Report, Severity};
use crate::metrics::Audited;
use crate::observe::{Findings, Snapshot};

/// Processes that NVML lists, by GPU: PID on the host, and bytes if NVML tells them.
pub(super) type Listed = BTreeMap<GpuUuid, Vec<(u32, Option<u64>)>>;

/// State of the auditor's thread.
#[derive(Debug)]
pub(super) struct Audit {
    pub(super) whose: Whose,
    pub(super) findings: Arc<Findings>,
    pub(super) events: Arc<Events>,
    pub(super) counts: Arc<Mutex<Counts>>,
    pub(super) audited: Arc<Mutex<Audited>>,
    /// In how many looks in a row each was found.
    held: HashMap<Key, u32>,
    /// Refusals so far, by tenant and GPU.
    denied: HashMap<(String, GpuUuid), u64>,
    /// Whether tenants have been looked at. Refusals before the first look are not reported.
    has_looked: bool,
    ends: Ends,
}

impl Audit {
    pub(super) fn new(whose: Whose, findings: Arc<Findings>, events: Arc<Events>) -> Self {
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

    /// Looks once: at NVML's list of the GPUs' processes, and at the snapshot's tenants.
    pub(super) fn look(
        &mut self,
        snapshot: &Snapshot,
        listed: &Listed,
        is_kill: &dyn Fn(&str) -> bool,
        is_pod: &dyn Fn(&str) -> bool,
    ) {
        self.whose.refresh(snapshot);
        let found = findings_in(snapshot, &self.uses(snapshot, listed));
        let is_naked = |finding: &&Finding| finding.key.reason == NOT_ATTACHED;
        let naked: Vec<Finding> = found.iter().filter(is_naked).cloned().collect();
        let mut standing: HashMap<String, Vec<String>> = HashMap::new();
        let mut audited = Audited::default();
        for finding in self.confirmed(found) {
            if !finding.is_note {
                if let Some(tenant) = &finding.key.tenant {
                    let texts = standing.entry(tenant.clone()).or_default();
                    texts.push(finding.text.clone());
                }
                add(&mut audited, &finding, snapshot);
            }
            self.tell(finding);
        }
        *self.audited.lock() = audited;
        *self.findings.lock() = standing;
        self.end_naked(snapshot, &naked, is_kill);
        self.look_at_denials(snapshot, is_pod);
    }

    /// Whether a finding holds, or was found lately.
    pub(super) fn has_findings(&self) -> bool {
        !self.held.is_empty()
    }

    /// The processes that NVML lists, each with the tenant that it belongs to, if that is known.
    fn uses(&self, snapshot: &Snapshot, listed: &Listed) -> Vec<Use> {
        let mut uses = Vec::new();
        for (gpu, processes) in listed {
            for (host_pid, used_bytes) in processes {
                let owner = self.whose.of(*host_pid, snapshot);
                uses.push(Use {
                    gpu: *gpu,
                    host_pid: *host_pid,
                    used_bytes: *used_bytes,
                    owner,
                });
            }
        }
        uses
    }

    /// Takes the findings that have now held in as many looks in a row as they need. Each is counted once for as long
    /// as it
    /// holds; of a note nothing more is said then.
    fn confirmed(&mut self, found: Vec<Finding>) -> Vec<Finding> {
        let before = std::mem::take(&mut self.held);
        let mut confirmed = Vec::new();
        for finding in found {
            let looks = before.get(&finding.key).copied().unwrap_or(0).saturating_add(1);
            self.held.insert(finding.key.clone(), looks);
            if looks == finding.looks {
                self.count(finding.key.reason);
            }
            let is_said = looks == finding.looks || (looks > finding.looks && !finding.is_note);
            if is_said {
                confirmed.push(finding);
            }
        }
        confirmed
    }

    /// Ends processes that have used a GPU without their tenant's limits in so many looks as their finding needs, if that
    /// is wanted, and if all that can be seen of them says so once more: their root has the tenant's limits, and they have
    /// mapped neither these nor its `usage`.
    fn end_naked(&mut self, snapshot: &Snapshot, found: &[Finding], is_kill: &dyn Fn(&str) -> bool) {
        let mut pids = HashSet::new();
        for finding in found {
            let (Some(tenant), Some(host_pid)) = (&finding.key.tenant, finding.key.host_pid) else {
                continue;
            };
            let is_whole = snapshot.find(tenant).is_some_and(|seen| seen.problem.is_none());
            if !is_whole || !is_kill(tenant) {
                continue;
            }
            pids.insert(host_pid);
            let looks = self.held.get(&finding.key).copied().unwrap_or(0);
            let was_held = self.ends.hold(host_pid);
            if !was_held || looks < finding.looks || !self.whose.is_naked(host_pid, tenant) {
                continue;
            }
            let (reason, text) = match self.ends.end(host_pid) {
                Ok(false) => continue,
                Ok(true) => (
                    KILLED,
                    format!(
                        "process {host_pid} of {tenant} used a GPU without its limits and was ended (audit.action is kill)"
                    ),
                ),
                Err(error) => (
                    KILL_FAILED,
                    format!(
                        "process {host_pid} of {tenant} uses a GPU without its limits and cannot be ended: {error}; the manager needs CAP_KILL for audit.action kill"
                    ),
                ),
            };
            self.count(reason);
            self.tell(Finding::new(
                reason,
                Some(tenant),
                finding.key.gpu,
                Some(host_pid),
                text,
            ));
        }
        self.ends.keep(&pids);
    }

    /// Refusals since the last look. Those before the manager's first look are not reported.
    fn look_at_denials(&mut self, snapshot: &Snapshot, is_pod: &dyn Fn(&str) -> bool) {
        let mut now = HashMap::new();
        for tenant in &snapshot.tenants {
            for device in &tenant.devices {
                let key = (tenant.id.clone(), device.gpu);
                let unknown = if self.has_looked { 0 } else { device.denied };
                let before = self.denied.get(&key).copied().unwrap_or(unknown);
                let more = device.denied.saturating_sub(before);
                if more > 0 {
                    self.count(MEMORY_DENIED);
                    let limit = match device.config.memory_limit_bytes {
                        NO_MEMORY_LIMIT => "the whole GPU".to_owned(),
                        bytes => MemorySize(bytes).to_string(),
                    };
                    let text = format!(
                        "memory was refused {more} times: {} of {limit} are used; {}",
                        MemorySize(device.used_bytes),
                        more_memory(is_pod(&tenant.id)),
                    );
                    self.tell(Finding::new(
                        MEMORY_DENIED,
                        Some(&tenant.id),
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
            tenant: finding.key.tenant,
            gpu: finding.key.gpu.map(|gpu| gpu.to_string()),
            host_pid: finding.key.host_pid,
        });
    }
}

/// The processes that NVML lists on the GPUs of a snapshot's tenants. It may tell some at a later look; the inventory
/// reports that NVML is silent.
pub(super) fn list(snapshot: &Snapshot, processes: &Processes) -> Listed {
    let gpus = findings::gpus_of(snapshot).into_iter();
    gpus.map(|gpu| (gpu, processes(&gpu).unwrap_or_default()))
        .collect()
}

/// Adds a finding's bytes to what the metrics show.
fn add(audited: &mut Audited, finding: &Finding, snapshot: &Snapshot) {
    match (finding.key.reason, &finding.key.tenant, finding.key.gpu) {
        (UNREGISTERED, _, Some(gpu)) => {
            *audited.unregistered_bytes.entry(gpu).or_default() += finding.bytes;
        }
        // Its tenant is gone, and no other figures have it.
        (DETACHED, Some(tenant), Some(gpu)) if snapshot.find(tenant).is_none() => {
            *audited.unregistered_bytes.entry(gpu).or_default() += finding.bytes;
        }
        (OVER_LIMIT, Some(tenant), Some(gpu)) => {
            audited.over_bytes.insert((tenant.clone(), gpu), finding.bytes);
        }
        _ => {}
    }
}

/// Remedy for refused memory, in the words of the person who can apply it.
fn more_memory(is_pod: bool) -> &'static str {
    match is_pod {
        true => {
            "raise its pod's annotation vcuda.io/memory, at most to what the pod requests, or request more in a new pod; or let \
             it ask for less"
        }
        false => "give it more with `vcuda set`, or let it ask for less",
    }
}
