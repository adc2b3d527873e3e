//! One pass over the tenants of a snapshot: which cgroups are limited, and which limits are taken back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use vcuda_driver_api::NvmlError;
use vcuda_quota::NO_MEMORY_LIMIT;
use vcuda_region::GpuUuid;

use super::DRIVER_LIMIT_REFUSED;
use super::cgroups::Cgroup;
use super::owners::Owners;
use super::record::{Limit, Record};
use super::setting::{Ask, Refusal, Rest, Setting};
use super::starting::StartingContainer;
use crate::events::{Events, Report, Severity};
use crate::observe::{DriverLimit, Snapshot, Tenant};

pub(super) struct Pass {
    owners: Owners,
    setting: Setting,
    events: Arc<Events>,
    is_own: bool,
    /// What the last pass did to each tenant's cgroups.
    outcomes: BTreeMap<(String, Cgroup), DriverLimit>,
    /// Tenants whose memory has no limit, as of the last pass.
    unlimited: BTreeSet<String>,
    /// Refusals that hold: each is reported once. `None`: NVML refuses all limits to this manager.
    reported: BTreeSet<Option<Limit>>,
}

impl Pass {
    pub(super) fn new(root: &Path, state: &Path, is_own: bool, events: Arc<Events>, ask: Box<Ask>) -> Self {
        Self {
            owners: Owners::new(root),
            setting: Setting::new(ask, Record::open(state)),
            events,
            is_own,
            outcomes: BTreeMap::new(),
            unlimited: BTreeSet::new(),
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
        self.outcomes.clear();
        self.unlimited.clear();
        let starting =
            starting.iter().filter_map(|one| Some((one.tenant.as_str(), self.owners.cgroup_of(one)?)));
        let starting: Vec<(&str, Cgroup)> = starting.collect();
        self.owners.refresh(snapshot);
        let mut shown = HashMap::new();
        for tenant in &snapshot.tenants {
            let cgroups =
                starting.iter().filter(|(id, _)| *id == tenant.id).map(|(_, cgroup)| cgroup.clone());
            let limit = self.limit(tenant, cgroups, snapshot, &mut needed, &mut refused)?;
            shown.insert(tenant.id.clone(), limit);
        }
        // Where no cgroups are seen, nothing is known of those in the record.
        let stale =
            self.setting.record.limits().difference(&needed).filter(|_| self.owners.are_cgroups_seen());
        let stale: Vec<Limit> = stale.cloned().collect();
        for limit in stale {
            if let Some(Refusal::Nvml(error)) = self.setting.take_back(&limit)? {
                self.report(&limit, error, &mut refused);
            }
        }
        self.reported = refused;
        Ok(shown)
    }

    /// Limits the cgroups of one tenant, and of its containers that start, and adds the limits that it needs to `needed`.
    fn limit(
        &mut self,
        tenant: &Tenant,
        starting: impl Iterator<Item = Cgroup>,
        snapshot: &Snapshot,
        needed: &mut BTreeSet<Limit>,
        refused: &mut BTreeSet<Option<Limit>>,
    ) -> Result<DriverLimit, Rest> {
        let quotas = quotas(tenant);
        let recorded = self.setting.record.limits().iter().filter(|limit| limit.tenant == tenant.id);
        if let Some(why) = &tenant.problem {
            needed.extend(recorded.cloned());
            return Ok(DriverLimit::Missing(format!("its quota cannot be read: {why}")));
        }
        let recorded: BTreeSet<Cgroup> = recorded.map(|limit| limit.cgroup.clone()).collect();
        if quotas.is_empty() {
            self.unlimited.insert(tenant.id.clone());
            return Ok(DriverLimit::None);
        }
        let (living, mut missing) = self.owners.living(tenant);
        let mut cgroups: BTreeSet<Cgroup> = starting.collect();
        cgroups.extend(living.union(&recorded).cloned());
        let (mut is_held, mut is_everywhere) = (false, true);
        for cgroup in cgroups.into_iter().filter(Cgroup::exists) {
            let outcome = match self.owners.check(&cgroup, tenant, snapshot, recorded.contains(&cgroup)) {
                Err(why) => {
                    missing = living.contains(&cgroup).then(|| why.clone()).or(missing);
                    if recorded.contains(&cgroup) && self.owners.is_of_container(&cgroup) {
                        self.hold(tenant, &cgroup, &quotas, needed, refused)?;
                    }
                    DriverLimit::Missing(why)
                }
                Ok(()) => {
                    let outcome = self.hold(tenant, &cgroup, &quotas, needed, refused)?;
                    match &outcome {
                        DriverLimit::Set => is_held = true,
                        DriverLimit::None => is_everywhere = false,
                        DriverLimit::Missing(why) => missing = Some(why.clone()),
                    }
                    outcome
                }
            };
            self.outcomes.insert((tenant.id.clone(), cgroup), outcome);
        }
        Ok(match missing {
            Some(why) => DriverLimit::Missing(why),
            None if is_held && is_everywhere => DriverLimit::Set,
            None => DriverLimit::None,
        })
    }

    /// Has the driver hold one cgroup to the tenant's quotas.
    fn hold(
        &mut self,
        tenant: &Tenant,
        cgroup: &Cgroup,
        quotas: &BTreeMap<GpuUuid, u64>,
        needed: &mut BTreeSet<Limit>,
        refused: &mut BTreeSet<Option<Limit>>,
    ) -> Result<DriverLimit, Rest> {
        let mut outcome = DriverLimit::Set;
        for (gpu, quota_bytes) in quotas {
            let limit = Limit { tenant: tenant.id.clone(), cgroup: cgroup.clone(), gpu: *gpu };
            match self.setting.hold(&limit, *quota_bytes)? {
                Ok(()) => {}
                Err(Refusal::NotThere) if outcome == DriverLimit::Set => outcome = DriverLimit::None,
                Err(Refusal::NotThere) => {}
                Err(Refusal::Other(why)) => outcome = DriverLimit::Missing(why),
                Err(Refusal::Nvml(NvmlError::NO_PERMISSION)) if self.is_own => {
                    return Err(self.rest_of_own(&limit));
                }
                Err(Refusal::Nvml(error)) => {
                    self.report(&limit, error, refused);
                    outcome = DriverLimit::Missing(format!("NVML refuses the limit of its cgroup: {error}"));
                }
            }
            needed.insert(limit);
        }
        Ok(outcome)
    }

    /// What became of a container that starts, after the pass that it was given to, whose result this is.
    pub(super) fn outcome_of(
        &self,
        container: &StartingContainer,
        limits: &Result<HashMap<String, DriverLimit>, Rest>,
    ) -> DriverLimit {
        let missing = |why: &str| DriverLimit::Missing(why.to_owned());
        let limits = match limits {
            Ok(limits) => limits,
            Err(Rest::Long(limit)) => return limit.clone(),
            Err(Rest::Short) => return missing("NVML does not answer"),
        };
        let cgroup = self.owners.cgroup_of(container);
        let key = |cgroup| (container.tenant.clone(), cgroup);
        match (cgroup.and_then(|cgroup| self.outcomes.get(&key(cgroup))), limits.get(&container.tenant)) {
            (Some(outcome), _) => outcome.clone(),
            (None, Some(DriverLimit::Missing(why))) => missing(why),
            (None, Some(_)) if self.unlimited.contains(&container.tenant) => DriverLimit::None,
            (None, Some(_)) => missing("the cgroup of its first process cannot be seen"),
            (None, None) => missing("its grant has no directory"),
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
