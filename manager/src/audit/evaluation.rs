//! Evaluation of one look, and the state that the auditor's thread keeps between looks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::arbiter::Evidence;
use parking_lot::Mutex;
use vcuda_quota::{MemorySize, NO_MEMORY_LIMIT};
use vcuda_region::GpuUuid;

use super::attribution::Attribution;
use super::findings::{self, Finding, Key, Use, findings_in};
use super::held_processes::HeldProcesses;
use super::lowered_limits::LoweredLimits;
use super::overstated::{self, Claims};
use super::{
    Counts, DETACHED, KILL_FAILED, KILLED, LIMIT_BELOW_USE, MEMORY_DENIED, MEMORY_LEFT, NOT_ATTACHED,
    NOT_REGISTERED, OLDER_SHIM, OVER_LIMIT, TAMPERED, TIME_OVERSTATED, UNREGISTERED,
};
use crate::events::{Events, Report, Severity};
use crate::metrics::Audited;
use crate::observe::{Device, Findings, Snapshot};

/// Processes that NVML lists, by GPU: host PID, and bytes if NVML tells them.
pub(super) type Listed = BTreeMap<GpuUuid, Vec<(u32, Option<u64>)>>;

#[derive(Debug)]
pub(super) struct Audit {
    pub(super) attribution: Attribution,
    pub(super) findings: Arc<Findings>,
    pub(super) events: Arc<Events>,
    pub(super) counts: Arc<Mutex<Counts>>,
    pub(super) audited: Arc<Mutex<Audited>>,
    /// What the arbiter learns.
    pub(super) evidence: Evidence,
    /// GPU time by the tenants' busy maps since the last look.
    pub(super) claims: Claims,
    /// Number of looks in a row in which each finding was made.
    held: HashMap<Key, u32>,
    /// Refusals of memory so far, by tenant and GPU.
    denied: HashMap<(String, u64, GpuUuid), u64>,
    /// Number of the snapshot at the last look; 0 before the first.
    number: u64,
    held_processes: HeldProcesses,
    lowered_limits: LoweredLimits,
}

impl Audit {
    pub(super) fn new(attribution: Attribution, findings: Arc<Findings>, events: Arc<Events>) -> Self {
        let counts = [
            UNREGISTERED,
            OVER_LIMIT,
            LIMIT_BELOW_USE,
            TAMPERED,
            TIME_OVERSTATED,
            NOT_ATTACHED,
            DETACHED,
            NOT_REGISTERED,
            OLDER_SHIM,
            MEMORY_DENIED,
            MEMORY_LEFT,
            KILLED,
            KILL_FAILED,
        ];
        Self {
            attribution,
            findings,
            events,
            counts: Arc::new(Mutex::new(counts.map(|reason| (reason, 0)).into())),
            audited: Arc::default(),
            evidence: Evidence::default(),
            claims: Claims::default(),
            held: HashMap::new(),
            denied: HashMap::new(),
            number: 0,
            held_processes: HeldProcesses::default(),
            lowered_limits: LoweredLimits::default(),
        }
    }

    /// Evaluates one look: `listed` from NVML and the tenants of `snapshot`.
    pub(super) fn evaluate(
        &mut self,
        snapshot: &Snapshot,
        listed: &Listed,
        is_kill: &dyn Fn(&str) -> bool,
        is_pod: &dyn Fn(&str) -> bool,
    ) {
        self.attribution.refresh(snapshot);
        self.lowered_limits.refresh(snapshot);
        let uses = self.uses(snapshot, listed);
        let mut found = findings_in(snapshot, &uses, &self.lowered_limits);
        found.extend(self.claims.findings(&uses));
        let is_unattached = |finding: &&Finding| finding.key.reason == NOT_ATTACHED;
        let naked: Vec<Finding> = found.iter().filter(is_unattached).cloned().collect();
        let mut standing: HashMap<String, Vec<String>> = HashMap::new();
        let (mut audited, mut overstated) = (Audited::default(), BTreeSet::new());
        for (finding, is_new) in self.confirmed(found) {
            if finding.key.reason == TIME_OVERSTATED
                && let (Some(tenant), Some(gpu)) = (&finding.key.tenant, finding.key.gpu)
            {
                overstated.insert((tenant.clone(), gpu));
            }
            if !finding.is_note {
                if let Some(tenant) = &finding.key.tenant {
                    let texts = standing.entry(tenant.clone()).or_default();
                    texts.push(finding.text.clone());
                }
                add_bytes(&mut audited, &finding, snapshot);
            }
            if is_new {
                self.report(finding);
            } else {
                self.events.count(&report_of(finding));
            }
        }
        self.evidence.replace(overstated::proofs(&uses, overstated));
        *self.audited.lock() = audited;
        *self.findings.lock() = standing;
        self.end_unattached(snapshot, &naked, is_kill);
        self.report_denials(snapshot, is_pod);
    }

    /// Whether a finding holds, or was made at a recent look.
    pub(super) fn has_findings(&self) -> bool {
        !self.held.is_empty()
    }

    /// Processes that NVML lists, each with its tenant if that is known.
    fn uses(&self, snapshot: &Snapshot, listed: &Listed) -> Vec<Use> {
        let mut uses = Vec::new();
        for (gpu, processes) in listed {
            for (host_pid, used_bytes) in processes {
                let owner = self.attribution.owner_of(*host_pid, snapshot);
                uses.push(Use { gpu: *gpu, host_pid: *host_pid, used_bytes: *used_bytes, owner });
            }
        }
        uses
    }

    /// Selects the findings that have now held in as many looks in a row as they need, each with whether it is new. A finding is
    /// counted once for as long as it holds; a note is then not mentioned again.
    fn confirmed(&mut self, found: Vec<Finding>) -> Vec<(Finding, bool)> {
        let before = std::mem::take(&mut self.held);
        let mut confirmed = Vec::new();
        for finding in found {
            let looks = before.get(&finding.key).copied().unwrap_or(0).saturating_add(1);
            self.held.insert(finding.key.clone(), looks);
            let is_new = looks == finding.looks;
            if is_new {
                self.count(finding.key.reason);
            }
            let is_said = is_new || (looks > finding.looks && !finding.is_note);
            if is_said {
                confirmed.push((finding, is_new));
            }
        }
        confirmed
    }

    /// Ends processes that used a GPU without their tenant's limits in as many looks as their finding needs, if so
    /// configured. Each is checked once more before: its root has the tenant's limits, and it has mapped neither these nor
    /// `usage`.
    fn end_unattached(&mut self, snapshot: &Snapshot, found: &[Finding], is_kill: &dyn Fn(&str) -> bool) {
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
            let was_held = self.held_processes.hold(host_pid);
            if !was_held || looks < finding.looks || !self.attribution.is_unattached(host_pid, tenant) {
                continue;
            }
            let (reason, text) = match self.held_processes.end(host_pid) {
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
            self.report(Finding::new(reason, Some(tenant), finding.key.gpu, Some(host_pid), text));
        }
        self.held_processes.retain(&pids);
    }

    /// Reports refusals of memory since the last look, also of tenants that have ended since. Those before the manager's first look are not
    /// reported.
    fn report_denials(&mut self, snapshot: &Snapshot, is_pod: &dyn Fn(&str) -> bool) {
        let mut now = HashMap::new();
        let ended =
            snapshot.ended.iter().filter(|(number, _)| *number > self.number).map(|(_, tenant)| tenant);
        for tenant in ended.chain(&snapshot.tenants) {
            for device in &tenant.devices {
                let key = (tenant.id.clone(), tenant.inode, device.gpu);
                let unknown = if self.number > 0 { 0 } else { device.denied };
                let before = self.denied.get(&key).copied().unwrap_or(unknown);
                let more = device.denied.saturating_sub(before);
                if more > 0 {
                    self.count(MEMORY_DENIED);
                    let text = of_denials(more, device, is_pod(&tenant.id));
                    self.report(Finding::new(MEMORY_DENIED, Some(&tenant.id), Some(device.gpu), None, text));
                }
                now.insert(key, device.denied);
            }
        }
        self.denied = now;
        self.number = snapshot.number;
    }

    fn count(&self, reason: &'static str) {
        *self.counts.lock().entry(reason).or_default() += 1;
    }

    fn report(&self, finding: Finding) {
        self.events.report(report_of(finding));
    }
}

fn report_of(finding: Finding) -> Report {
    Report {
        severity: if finding.is_note { Severity::Info } else { Severity::Warning },
        reason: finding.key.reason.into(),
        message: finding.text,
        tenant: finding.key.tenant,
        gpu: finding.key.gpu.map(|gpu| gpu.to_string()),
        host_pid: finding.key.host_pid,
    }
}

/// The processes that NVML lists on the GPUs of a snapshot's tenants. GPUs without an answer are left out, as the inventory
/// reports a silent NVML.
pub(super) fn list(snapshot: &Snapshot, processes: &crate::gpu::Processes) -> Listed {
    let gpus = findings::gpus_of(snapshot).into_iter();
    gpus.map(|gpu| (gpu, processes(&gpu).unwrap_or_default())).collect()
}

/// Adds a finding's bytes to the figures for the metrics.
fn add_bytes(audited: &mut Audited, finding: &Finding, snapshot: &Snapshot) {
    match (finding.key.reason, &finding.key.tenant, finding.key.gpu) {
        (UNREGISTERED, _, Some(gpu)) => {
            *audited.unregistered_bytes.entry(gpu).or_default() += finding.bytes;
        }
        // The tenant is gone, so no other figure has these bytes.
        (DETACHED, Some(tenant), Some(gpu)) if snapshot.find(tenant).is_none() => {
            *audited.unregistered_bytes.entry(gpu).or_default() += finding.bytes;
        }
        (OVER_LIMIT, Some(tenant), Some(gpu)) => {
            audited.over_bytes.insert((tenant.clone(), gpu), finding.bytes);
        }
        _ => {}
    }
}

/// A number of refusals of memory, and the last of them.
fn of_denials(more: u64, device: &Device, is_pod: bool) -> String {
    let limit = match device.config.memory_limit_bytes {
        NO_MEMORY_LIMIT => "the whole GPU".to_owned(),
        bytes => MemorySize(bytes).to_string(),
    };
    // The shim of the release before does not tell it.
    let used_bytes = if device.denied_used_bytes == 0 { device.used_bytes } else { device.denied_used_bytes };
    format!(
        "{more} refusal(s) of memory, the last of {}, when {} of {limit} were used; {}",
        MemorySize(device.denied_bytes),
        MemorySize(used_bytes),
        more_memory(is_pod),
    )
}

/// Remedy for refused memory, addressed to the person who can apply it.
fn more_memory(is_pod: bool) -> &'static str {
    match is_pod {
        true => {
            "raise its pod's annotation vcuda.io/memory, at most to what the pod requests, or request more in a new pod; or let \
             it ask for less"
        }
        false => "give it more with `vcuda set`, or let it ask for less",
    }
}
