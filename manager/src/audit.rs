//! Audit of the tenants (I15): each second it compares NVML's list of the GPUs' processes with the registrations and
//! `usage`.
//!
//! The audit finds processes that use a managed GPU and belong to no tenant ([`UNREGISTERED`]), processes of a tenant
//! that use its GPU without having loaded its limits ([`NOT_ATTACHED`]), use above a quota ([`OVER_LIMIT`]), quotas lowered below use ([`LIMIT_BELOW_USE`]), files
//! that were damaged or replaced and figures below the truth ([`TAMPERED`]), processes whose files were deleted under
//! them ([`DETACHED`]), processes that have memory and never registered ([`NOT_REGISTERED`]) or loaded an older library
//! ([`OLDER_SHIM`]), memory that outlives a tenant's processes ([`MEMORY_LEFT`]), busy maps that NVML contradicts
//! ([`TIME_OVERSTATED`]), and refusals of memory ([`MEMORY_DENIED`]). A finding is counted, reported as one event however long it
//! holds, and stands in the snapshot as long as it holds. It has no other effect, except that a [`NOT_ATTACHED`] process is ended if
//! the operator configured [`Action::Kill`], and that a tenant with a [`TIME_OVERSTATED`] counts as idle where the arbiter divides
//! GPU time.

mod action;
mod attribution;
mod deleted;
mod evaluation;
mod findings;
mod held_processes;
mod lowered_limits;
mod overstated;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::arbiter::Evidence;
use parking_lot::Mutex;
use tokio::sync::watch;
use vcuda_region::GpuUuid;

use crate::background::Background;
use crate::events::Events;
use crate::metrics::Audited;
use crate::observe::{Findings, Snapshot, SnapshotCache};
pub(crate) use action::{Action, Actions};
pub(crate) use attribution::Attribution;
pub(crate) use deleted::DeletedFiles;
use evaluation::{Audit, Listed};
use overstated::Claims;

/// A process uses a managed GPU and belongs to no known tenant.
pub(crate) const UNREGISTERED: &str = "VcudaUnregistered";
/// A tenant has more of a GPU than its limit.
pub(crate) const OVER_LIMIT: &str = "VcudaOverLimit";
/// A tenant's limit was lowered below what it uses.
pub(crate) const LIMIT_BELOW_USE: &str = "VcudaLimitBelowUse";
/// A tenant's files were damaged or replaced, or show less than was used.
pub(crate) const TAMPERED: &str = "VcudaTampered";
/// A process of a tenant uses a GPU and has not loaded the tenant's limits.
pub(crate) const NOT_ATTACHED: &str = "VcudaNotAttached";
/// A process of a tenant uses a GPU with files that were deleted.
pub(crate) const DETACHED: &str = "VcudaDetached";
/// A tenant's busy map shows far more GPU time than NVML does.
pub(crate) const TIME_OVERSTATED: &str = "VcudaTimeOverstated";
/// A process of a tenant has memory and has not registered.
pub(crate) const NOT_REGISTERED: &str = "VcudaNotRegistered";
/// A process of a tenant has loaded a library of an older release than the manager's.
pub(crate) const OLDER_SHIM: &str = "VcudaOlderShim";
/// A process of a tenant used a GPU without the tenant's limits, and was ended.
pub(crate) const KILLED: &str = "VcudaKilled";
/// A process of a tenant used a GPU without the tenant's limits, and could not be ended.
pub(crate) const KILL_FAILED: &str = "VcudaKillFailed";
/// A tenant without processes has memory that other processes keep.
pub(crate) const MEMORY_LEFT: &str = "VcudaMemoryLeft";
/// A tenant was refused memory.
pub(crate) const MEMORY_DENIED: &str = "VcudaMemoryDenied";

/// Looks in a row in which a difference must hold, as NVML's figures and `usage` are from two moments.
const LOOKS: u32 = 3;

/// Source of the utilisation of a GPU's processes by NVML: host PID, and percent. Those without work are left out.
pub(crate) type Utilization = dyn Fn(&GpuUuid) -> Result<Vec<(u32, u32)>, String> + Send;

/// Source of a tenant's Kubernetes namespace; empty if it has none.
pub(crate) type Namespaces = dyn Fn(&str) -> String + Send;

pub(crate) struct Sources {
    /// Looks of the [`crate::observe::Observatory`].
    pub looks: Arc<SnapshotCache>,
    /// Findings shown in the observatory's snapshots.
    pub findings: Arc<Findings>,
    pub events: Arc<Events>,
    /// NVML's list of processes.
    pub processes: Box<crate::gpu::Processes>,
    /// NVML's utilisation of processes.
    pub utilization: Box<Utilization>,
    /// What the arbiter learns from the audit, and its tenants' claims.
    pub evidence: Evidence,
    pub namespaces: Box<Namespaces>,
    /// Configured actions, which may change.
    pub actions: watch::Receiver<Actions>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// The auditing thread, which runs until this is dropped. It reads the tenants only if NVML's list or what is known of the
/// tenants has changed, or a finding holds or is about to.
#[derive(Debug)]
pub(crate) struct Auditor {
    counts: Arc<Mutex<Counts>>,
    audited: Arc<Mutex<Audited>>,
    _thread: Background,
}

impl Auditor {
    pub(crate) fn start(root: &std::path::Path, every: Duration, sources: Sources) -> io::Result<Self> {
        let mut audit = Audit::new(Attribution::new(root), sources.findings, sources.events);
        audit.evidence = sources.evidence;
        let (counts, audited) = (Arc::clone(&audit.counts), Arc::clone(&audit.audited));
        let thread = Background::start("auditor", move |stop| {
            let (mut listed, mut seen) = (Listed::new(), None::<Arc<Snapshot>>);
            while !stop.is_asked() {
                let last = sources.looks.last();
                let now = evaluation::list(&last, &*sources.processes);
                audit.claims = Claims::new(audit.evidence.take_shown(), &*sources.utilization);
                let is_news = now != listed || audit.has_findings() || !audit.claims.are_none();
                // The same question again is answered as before: nothing was found.
                let is_known = seen.as_ref().is_some_and(|seen| {
                    seen.tenants == last.tenants && !last.ended.iter().any(|(at, _)| *at > seen.number)
                });
                if is_news || !is_known {
                    let snapshot = if is_news { sources.looks.fresh() } else { last };
                    let actions = sources.actions.borrow().clone();
                    let is_kill = |id: &str| actions.for_namespace(&(sources.namespaces)(id)) == Action::Kill;
                    let is_pod = |id: &str| !(sources.namespaces)(id).is_empty();
                    audit.evaluate(&snapshot, &now, &is_kill, &is_pod);
                    (listed, seen) = (now, Some(snapshot));
                }
                std::thread::park_timeout(every);
            }
        })?;
        Ok(Self { counts, audited, _thread: thread })
    }

    /// Number of findings, by reason. A finding that continues to hold is counted once.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().clone()
    }

    pub(crate) fn audited(&self) -> Audited {
        self.audited.lock().clone()
    }
}

#[cfg(test)]
mod tests;
