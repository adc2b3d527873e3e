//! Which tenant a cgroup belongs to, by the processes in it.

use std::collections::BTreeSet;
use std::path::Path;

use vcuda_region::process::{self, Identity};

use super::cgroups::{Cgroup, Hierarchy};
use super::starting::StartingContainer;
use crate::audit::Attribution;
use crate::observe::{Snapshot, Tenant};

pub(super) struct Owners {
    attribution: Attribution,
    hierarchy: Hierarchy,
}

impl Owners {
    pub(super) fn new(root: &Path) -> Self {
        Self { attribution: Attribution::new(root), hierarchy: Hierarchy::new() }
    }

    pub(super) fn refresh(&mut self, snapshot: &Snapshot) {
        self.attribution.refresh(snapshot);
    }

    /// Whether this process sees any cgroup.
    pub(super) fn are_cgroups_seen(&self) -> bool {
        self.hierarchy.is_seen()
    }

    /// The cgroup of a container that starts, while its first process lives.
    pub(super) fn cgroup_of(&self, container: &StartingContainer) -> Option<Cgroup> {
        let cgroup = self.hierarchy.cgroup_of(container.pid)?;
        let process = Identity::of(container.pid).ok()?;
        (process.start_ticks == container.start_ticks).then_some(cgroup)
    }

    /// The cgroups of a tenant's living processes, and the reason why one is not known.
    pub(super) fn living(&self, tenant: &Tenant) -> (BTreeSet<Cgroup>, Option<String>) {
        let (mut found, mut missing) = (BTreeSet::new(), None);
        for process in &tenant.processes {
            match process.host_pid.and_then(|pid| self.hierarchy.cgroup_of(pid)) {
                Some(cgroup) => {
                    found.insert(cgroup);
                }
                None if process.host_pid.is_some_and(|pid| !process::folder_of(pid).exists()) => {}
                None => missing = Some(format!("the cgroup of process {} cannot be seen", process.pid)),
            }
        }
        (found, missing)
    }

    /// Whether a process of a cgroup is in another PID namespace than this one, or may be. What else comes into such a cgroup does not
    /// free it of its limit.
    pub(super) fn is_of_container(&self, cgroup: &Cgroup) -> bool {
        let is_elsewhere = |pid: &u32| *pid == 0 || self.hierarchy.is_elsewhere(*pid);
        cgroup.processes().map_or(true, |pids| pids.iter().any(is_elsewhere))
    }

    /// Checks that a cgroup is the tenant's own. One that is limited already, of a container, cannot free itself by a process that
    /// belongs to no tenant, or by cgroups below.
    pub(super) fn check(
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
            Some(pid) => {
                let remedy = match tenant.is_transient {
                    true => "; run it by systemd-run --user --scope vcuda run",
                    false => "",
                };
                Err(format!("process {pid} is in its cgroup {path} and not its own{remedy}"))
            }
            None => Ok(()),
        }
    }
}
