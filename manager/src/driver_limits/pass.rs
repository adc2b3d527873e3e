//! One pass over the tenants of a snapshot: which cgroups are limited, and which limits are taken back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use vcuda_driver_api::NvmlError;
use vcuda_quota::NO_MEMORY_LIMIT;
use vcuda_region::{GpuUuid, process};

use super::DRIVER_LIMIT_REFUSED;
use super::cgroups::{Cgroup, Hierarchy};
use super::record::{Limit, Record};
use super::setting::{Ask, Refusal, Rest, Setting};
use super::starting::StartingContainer;
use crate::audit::Attribution;
use crate::events::{Events, Report, Severity};
use crate::observe::{DriverLimit, Snapshot, Tenant};

pub(super) struct Pass {
    attribution: Attribution,
    hierarchy: Hierarchy,
    setting: Setting,
    events: Arc<Events>,
    is_own: bool,
    /// Refusals that hold: each is reported once. `None`: NVML refuses all limits to this manager.
    reported: BTreeSet<Option<Limit>>,
}

impl Pass {
    pub(super) fn new(root: &Path, state: &Path, is_own: bool, events: Arc<Events>, ask: Box<Ask>) -> Self {
        Self {
            attribution: Attribution::new(root),
            hierarchy: Hierarchy::new(),
            setting: Setting::new(ask, Record::open(state)),
            events,
            is_own,
            reported: BTreeSet::new(),
        }
    }

    /// Whether limits are set that no later manager needs to find if they are taken back now.
    pub(super) fn has_set(&self) -> bool {
        !self.setting.record.limits().is_empty()
    }

    /// Limits the tenants' cgroups, and takes back what no tenant needs any more. Returns what to show, by tenant.
    pub(super) fn run(
        &mut self,
        snapshot: &Snapshot,
        starting: &[StartingContainer],
    ) -> Result<HashMap<String, DriverLimit>, Rest> {
        let (mut needed, mut refused) = (BTreeSet::new(), BTreeSet::new());
        self.attribution.refresh(snapshot);
        let mut shown = HashMap::new();
        for tenant in &snapshot.tenants {
            let pids = starting.iter().filter(|one| one.tenant == tenant.id).map(|one| one.pid);
            let limit = self.limit(tenant, pids, snapshot, &mut needed, &mut refused)?;
            shown.insert(tenant.id.clone(), limit);
        }
        let stale: Vec<Limit> = self.setting.record.limits().difference(&needed).cloned().collect();
        for limit in stale {
            if let Some(Refusal::Nvml(error)) = self.setting.take_back(&limit)? {
                self.report(&limit, error, &mut refused);
            }
        }
        self.reported = refused;
        Ok(shown)
    }

    /// Limits the cgroups of one tenant, also of those `starting`, and adds the limits that it needs to `needed`.
    fn limit(
        &mut self,
        tenant: &Tenant,
        starting: impl Iterator<Item = u32>,
        snapshot: &Snapshot,
        needed: &mut BTreeSet<Limit>,
        refused: &mut BTreeSet<Option<Limit>>,
    ) -> Result<DriverLimit, Rest> {
        let quotas = quotas(tenant);
        let (living, mut missing) = self.living(tenant, starting);
        let (mut is_held, mut is_everywhere) = (false, true);
        let recorded = self.setting.record.limits().iter().filter(|limit| limit.tenant == tenant.id);
        let recorded: BTreeSet<Cgroup> = recorded.map(|limit| limit.cgroup.clone()).collect();
        for cgroup in living.union(&recorded).filter(|cgroup| cgroup.exists()) {
            if let Err(why) = self.check(cgroup, tenant, snapshot, recorded.contains(cgroup)) {
                missing = living.contains(cgroup).then_some(why).or(missing);
                continue;
            }
            for (gpu, quota_bytes) in &quotas {
                let limit = Limit { tenant: tenant.id.clone(), cgroup: cgroup.clone(), gpu: *gpu };
                let held = self.setting.hold(&limit, *quota_bytes)?;
                match held {
                    Ok(()) => is_held = true,
                    Err(Refusal::NotThere) => is_everywhere = false,
                    Err(Refusal::Other(why)) => missing = Some(why),
                    Err(Refusal::Nvml(NvmlError::NO_PERMISSION)) if self.is_own => {
                        return Err(self.rest_of_own(&limit));
                    }
                    Err(Refusal::Nvml(error)) => {
                        self.report(&limit, error, refused);
                        missing = Some(format!("NVML refuses the limit of its cgroup: {error}"));
                    }
                }
                needed.insert(limit);
            }
        }
        Ok(match missing {
            _ if quotas.is_empty() => DriverLimit::None,
            Some(why) => DriverLimit::Missing(why),
            None if is_held && is_everywhere => DriverLimit::Set,
            None => DriverLimit::None,
        })
    }

    /// The cgroups of a tenant's living processes, and of those `starting`, and the reason why one is not known.
    fn living(
        &self,
        tenant: &Tenant,
        starting: impl Iterator<Item = u32>,
    ) -> (BTreeSet<Cgroup>, Option<String>) {
        let (mut found, mut missing) = (BTreeSet::new(), None);
        let has_ended = |pid| !process::folder_of(pid).exists();
        let living = tenant.processes.iter().map(|process| (process.host_pid, process.pid));
        let living = living.filter(|(host_pid, _)| !host_pid.is_some_and(has_ended));
        for (host_pid, pid) in living.chain(starting.map(|pid| (Some(pid), pid))) {
            match host_pid.and_then(|pid| self.hierarchy.cgroup_of(pid)) {
                Some(cgroup) => {
                    found.insert(cgroup);
                }
                None => missing = Some(format!("the cgroup of process {pid} cannot be seen")),
            }
        }
        (found, missing)
    }

    /// Checks that a cgroup is the tenant's own. One that is limited already, of a container, cannot free itself by a process that
    /// belongs to no tenant, or by cgroups below.
    fn check(
        &self,
        cgroup: &Cgroup,
        tenant: &Tenant,
        snapshot: &Snapshot,
        is_recorded: bool,
    ) -> Result<(), String> {
        let path = cgroup.path.display();
        if !is_recorded && cgroup.has_children() {
            return Err(format!("its cgroup {path} has others below"));
        }
        let pids =
            cgroup.processes().map_err(|error| format!("its cgroup {path} cannot be read: {error}"))?;
        let is_foreign = |pid: u32| {
            let owner = self.attribution.owner_of(pid, snapshot);
            match owner.tenant() {
                Some(id) => id != tenant.id,
                None if pid == 0 => true,
                None if !process::folder_of(pid).exists() => false,
                None => tenant.is_transient || !self.hierarchy.is_elsewhere(pid),
            }
        };
        match pids.into_iter().find(|pid| is_foreign(*pid)) {
            Some(pid) => Err(format!("process {pid} is in its cgroup {path} and not its own")),
            None => Ok(()),
        }
    }

    /// A user's own manager is no operator's: it is said once, in the log.
    fn rest_of_own(&mut self, limit: &Limit) -> Rest {
        if self.reported.insert(None) {
            let path = limit.cgroup.path.display();
            tracing::info!(
                "{path}: this user may not set the driver's memory limit; the library holds the quotas alone"
            );
        }
        Rest::Long(DriverLimit::Missing("a user's own manager may not set the driver's limit".to_owned()))
    }

    fn report(&self, limit: &Limit, error: NvmlError, refused: &mut BTreeSet<Option<Limit>>) {
        let is_of_all = error == NvmlError::NO_PERMISSION;
        let key = (!is_of_all).then(|| limit.clone());
        if !refused.insert(key.clone()) || self.reported.contains(&key) {
            return;
        }
        let (path, gpu) = (limit.cgroup.path.display(), limit.gpu);
        let remedy = match error {
            NvmlError::NO_PERMISSION => "run the manager as root with CAP_SYS_ADMIN",
            NvmlError::NOT_FOUND => {
                "enable the controller dmem in cgroup.subtree_control of the cgroups above"
            }
            _ => "see nvidia-smi memory-limits",
        };
        self.events.report(Report {
            severity: Severity::Warning,
            reason: DRIVER_LIMIT_REFUSED.into(),
            message: format!(
                "NVML refuses the memory limit of cgroup {path} on {gpu}: {error}; the library alone holds the quota; {remedy}"
            ),
            tenant: (!is_of_all).then(|| limit.tenant.clone()),
            gpu: Some(gpu.to_string()),
            host_pid: None,
        });
    }
}

/// A tenant's quotas, by GPU (bytes). A GPU that it has twice has the sum.
fn quotas(tenant: &Tenant) -> BTreeMap<GpuUuid, u64> {
    let mut quotas = BTreeMap::<GpuUuid, u64>::new();
    for device in &tenant.devices {
        let quota = quotas.entry(device.gpu).or_default();
        *quota = quota.saturating_add(device.config.memory_limit_bytes);
    }
    quotas.retain(|_, bytes| *bytes != NO_MEMORY_LIMIT);
    quotas
}
