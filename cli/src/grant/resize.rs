//! `vcuda set` and `vcuda grant resize`: change a tenant's quota while it runs.

use std::io::{self, Write as _};
use std::time::Duration;

use vcuda_manager_api::v1::{Grant, ResizeGrantRequest};
use vcuda_quota::{MemorySize, Quota};
use vcuda_region::directory;

use crate::args::{QuotaArgs, SetArgs};
use crate::config::Environment;
use crate::failure::Failure;
use crate::inventory::{self, Inventory};
use crate::manager_client::{ManagerClient, find};
use crate::output::warn;
use crate::render::quota::{described, lasting, quota};
use crate::render::temporary::Temporary;

/// Writes the new quota of each named tenant for each of its GPUs, and says what each has now.
pub(crate) fn set(args: &SetArgs, environment: &Environment) -> Result<(), Failure> {
    if args.quota.is_empty() {
        let names = args.names.join(" ");
        return Err(Failure::Usage(format!(
            "set {names}: nothing to change; give --memory, --cores or another option of its quota"
        )));
    }
    if let Some(path) = directory::resolve(environment.tenant.as_deref()) {
        let path = path.display();
        return Err(Failure::Usage(format!(
            "a tenant ({path}) cannot change quotas; run `vcuda set` outside of it"
        )));
    }
    for resized in change(&args.names, (&args.quota, args.time), environment)? {
        resized.print()?;
    }
    args.quota.warning().into_iter().try_for_each(|warning| warn(&warning))
}

/// Changes the quota of each named tenant, for good or for a time. All names are looked up before the first quota is changed.
pub(crate) fn change(
    names: &[String],
    (quota, time): (&QuotaArgs, Option<Duration>),
    environment: &Environment,
) -> Result<Vec<Resized>, Failure> {
    let node = match ManagerClient::find_or_down(environment)? {
        Ok(node) => node,
        Err(Some(down)) => {
            return Err(Failure::Unavailable(format!("set {}: {}", names.join(" "), down.words())));
        }
        Err(None) => return Err(unknown(names.first().map_or("", String::as_str), &[])),
    };
    let all = node.list()?;
    let find = |name: &String| find(&all, name).cloned().ok_or_else(|| unknown(name, &all));
    let grants: Vec<Grant> = names.iter().map(find).collect::<Result<_, _>>()?;
    if let Some(memory) = quota.memory {
        let mut runs = grants.iter().filter(|grant| grant.transient);
        runs.try_for_each(|run| fits(memory, run, environment))?;
    }
    grants.iter().map(|grant| resize(&node, grant, quota, time)).collect()
}

/// Checks that a run's GPUs have as much memory, as when it began: a user's own manager refuses no quota.
fn fits(memory: MemorySize, run: &Grant, environment: &Environment) -> Result<(), Failure> {
    // GPUs of another machine cannot be checked; the driver will refuse the excess.
    let seen = Inventory::find(environment, false).and_then(|inventory| inventory.gpus()).unwrap_or_default();
    let is_its = |gpu: &inventory::Gpu| run.gpu_uuids.contains(&gpu.uuid.to_string());
    let own: Vec<_> = seen.into_iter().filter(is_its).collect();
    inventory::fits(memory, &own)
}

/// Failure for a tenant that does not exist.
fn unknown(name: &str, all: &[Grant]) -> Failure {
    let known: Vec<&str> = all.iter().map(|grant| grant.id.as_str()).collect();
    Failure::Usage(match known.as_slice() {
        [] => {
            format!("set {name}: no such tenant; none is running (`vcuda run --name {name} ...` starts one)")
        }
        known => format!("set {name}: no such tenant; running are: {}", known.join(", ")),
    })
}

/// Replaces the given options of the grant's lasting quota, for good or for a time.
pub(super) fn resize(
    node: &ManagerClient,
    grant: &Grant,
    args: &QuotaArgs,
    time: Option<Duration>,
) -> Result<Resized, Failure> {
    let after = lasting(grant).merge(&args.change())?;
    let now = node.resize(ResizeGrantRequest {
        request_id: super::request_id(),
        id: grant.id.clone(),
        amounts: Some((&after).into()),
        // A concurrent change by another caller is not overwritten.
        expected_generation: grant.generation,
        for_ms: time.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    })?;
    let containers = node.containers()?.containers;
    let own = containers.iter().filter(|container| container.id == grant.id);
    let used = own.flat_map(|container| &container.devices).map(|device| device.memory_used_bytes);
    Ok(Resized {
        name: grant.id.clone(),
        quota: quota(&now),
        used_bytes: used.max().unwrap_or(0),
        temporary: Temporary::of(&now),
    })
}

#[derive(Debug)]
pub(crate) struct Resized {
    pub(crate) name: String,
    pub(crate) quota: Quota,
    /// The most memory that it uses on a GPU (bytes).
    pub(crate) used_bytes: u64,
    /// The time for which it has it, and what comes then.
    pub(crate) temporary: Option<Temporary>,
}

impl Resized {
    /// What the tenant has now, such as `web resized to 6 GiB, 30 % fixed`.
    pub(crate) fn words(&self) -> String {
        let now = format!("{} resized to {}", self.name, described(&self.quota));
        match &self.temporary {
            Some(temporary) => format!("{now}, {}", temporary.words()),
            None => now,
        }
    }

    /// What happens to a tenant that uses more memory than it has now.
    pub(crate) fn warning(&self) -> Option<String> {
        let limit = self.quota.memory_bytes.filter(|limit| self.used_bytes > *limit)?;
        Some(format!(
            "{} uses {} of a GPU, more than {}: it keeps that, and new allocations are denied until it is below",
            self.name,
            MemorySize(self.used_bytes),
            MemorySize(limit)
        ))
    }

    pub(crate) fn print(&self) -> Result<(), Failure> {
        writeln!(io::stdout(), "{}", self.words())?;
        self.warning().into_iter().try_for_each(|warning| warn(&warning))
    }
}
