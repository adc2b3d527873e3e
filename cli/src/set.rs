//! `vcuda set`: changes a tenant's quota while it runs.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use vcuda_manager_api::v1::Grant;
use vcuda_quota::{MemorySize, Quota, QuotaChange};
use vcuda_region::limits::{Limits, LimitsWriter};
use vcuda_region::usage_reader::UsageReader;
use vcuda_region::{DeviceIndex, GpuUuid, clock, directory};

use crate::args::{QuotaArgs, SetArgs};
use crate::config::{ENV_MANAGER, Environment};
use crate::failure::{Failure, failed};
use crate::inventory::{self, Inventory};
use crate::manager_client::ManagerClient;
use crate::render::temporary::Temporary;
use crate::{background, grant, smi};

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
///
/// # Errors
/// Fails if a name is unknown, or if a quota cannot be changed.
pub(crate) fn change(
    names: &[String],
    (quota, time): (&QuotaArgs, Option<Duration>),
    environment: &Environment,
) -> Result<Vec<Resized>, Failure> {
    let (node, down) = match ManagerClient::find_or_down(environment)? {
        Ok(node) => (Some(node), None),
        Err(down) => (None, down),
    };
    let find = |name: &String| {
        let found = Target::find(name, node.as_ref(), environment);
        // What is unknown may be a grant of the manager that does not run.
        match (found, &down) {
            (Err(Failure::Usage(_)), Some(down)) => {
                Err(Failure::Unavailable(format!("set {name}: {}", down.words())))
            }
            (found, _) => found,
        }
    };
    let targets: Vec<Target> = names.iter().map(find).collect::<Result<_, _>>()?;
    if time.is_some() {
        targets.iter().try_for_each(Target::can_go_back)?;
    }
    let resize = |target: &Target| target.resize((quota, time), node.as_ref(), environment);
    targets.iter().map(resize).collect()
}

/// Prints a warning.
pub(crate) fn warn(words: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stderr(), "vcuda: {words}")?)
}

/// A tenant whose quota is changed.
#[derive(Debug)]
enum Target {
    /// A grant. Its quota is changed through the manager, whose ledger would replace other changes at the next restart.
    Grant(Box<Grant>),
    /// A tenant of `vcuda run` with this name and directory.
    Run(String, PathBuf),
}

impl Target {
    /// The tenant of this name: a grant with this id, else a run of this name, else a grant that was made under it.
    fn find(name: &str, node: Option<&ManagerClient>, environment: &Environment) -> Result<Target, Failure> {
        let grant = node.map_or(Ok(None), |node| node.grant(name))?;
        if let Some(grant) = grant.clone().filter(|grant| grant.id == name) {
            return Ok(Target::Grant(Box::new(grant)));
        }
        match (grant, Target::run(name, environment)) {
            (Some(grant), Ok(_)) => Err(Failure::Usage(format!(
                "set {name}: there are two, {name} (of `vcuda run`) and {id} (a grant); write `vcuda set {id}` for the grant, \
                 or {ENV_MANAGER}=off before the command for the other one",
                id = grant.id
            ))),
            (Some(grant), Err(_)) => Ok(Target::Grant(Box::new(grant))),
            (None, run) => run,
        }
    }

    /// The tenant of `vcuda run` with this name.
    fn run(name: &str, environment: &Environment) -> Result<Target, Failure> {
        let root = environment.runtime_root()?;
        smi::remove_dead(&root);
        let path = find(name, directory::list(&root).map_err(failed)?)?;
        if directory::is_granted(&path) {
            return Err(Failure::Unavailable(format!(
                "set {name}: the manager granted this, and does not answer; start `vcuda-manager` again"
            )));
        }
        Ok(Target::Run(name.to_owned(), path))
    }

    /// Checks that the tenant's quota can go back by itself.
    fn can_go_back(&self) -> Result<(), Failure> {
        match self {
            Target::Run(name, _) => Err(Failure::Usage(format!(
                "set {name} --for: a tenant of `vcuda run` has no manager that would set its quota back; use a grant (`vcuda \
                 grant create`, `vcuda run --grant`), or leave --for out"
            ))),
            Target::Grant(grant) if grant.lasting_amounts.is_none() => Err(Failure::Failed(format!(
                "set {} --for: the manager is older than this vcuda and would never set it back; update it",
                grant.id
            ))),
            Target::Grant(_) => Ok(()),
        }
    }

    fn resize(
        &self,
        (quota, time): (&QuotaArgs, Option<Duration>),
        node: Option<&ManagerClient>,
        environment: &Environment,
    ) -> Result<Resized, Failure> {
        match (self, node) {
            (Target::Grant(grant), Some(node)) => grant::resize(node, grant, quota, time),
            (Target::Grant(grant), None) => {
                Err(Failure::Unavailable(format!("set {}: the manager does not answer any more", grant.id)))
            }
            (Target::Run(name, path), _) => {
                resize_run(path, quota, environment)?;
                let (quota, used_bytes) = state(path)?;
                Ok(Resized { name: name.clone(), quota, used_bytes, temporary: None })
            }
        }
    }
}

/// A tenant whose quota was changed.
#[derive(Debug)]
pub(crate) struct Resized {
    /// Name or id.
    pub(crate) name: String,
    /// Its quota now.
    pub(crate) quota: Quota,
    /// The most memory that it uses on a GPU (bytes).
    pub(crate) used_bytes: u64,
    /// The time for which it has it, and what comes then.
    pub(crate) temporary: Option<Temporary>,
}

impl Resized {
    /// What the tenant has now, such as `web resized to 6 GiB, 30 % fixed`.
    pub(crate) fn words(&self) -> String {
        let now = format!("{} resized to {}", self.name, grant::described(&self.quota));
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

    /// Prints both.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        writeln!(io::stdout(), "{}", self.words())?;
        self.warning().into_iter().try_for_each(|warning| warn(&warning))
    }
}

/// Changes the quota of a tenant of `vcuda run`.
fn resize_run(path: &Path, quota: &QuotaArgs, environment: &Environment) -> Result<(), Failure> {
    if let Some(memory) = quota.memory {
        let writer = LimitsWriter::open(path).map_err(failed)?;
        // GPUs of another machine cannot be checked; the driver will refuse the excess.
        let seen =
            Inventory::find(environment, false).and_then(|inventory| inventory.gpus()).unwrap_or_default();
        let own: Vec<_> = seen
            .into_iter()
            .filter(|gpu| writer.limits().devices().any(|(_, uuid)| uuid == gpu.uuid))
            .collect();
        inventory::fits(memory, &own)?;
    }
    if write(path, &quota.change())? {
        background::ensure_arbiter(environment)?;
    }
    Ok(())
}

/// Quota of the tenant in `path` on its first GPU, and the most memory that it uses on one (bytes).
fn state(path: &Path) -> Result<(Quota, u64), Failure> {
    let limits = Limits::read(path).map_err(failed)?;
    let first = limits.devices().next();
    let config = first.and_then(|(device, _)| limits.config(device).ok());
    let quota = config.map_or(Quota::UNLIMITED, |config| Quota::of(&config));
    let used = |device| UsageReader::open(path).ok()?.memory(device).ok();
    let used = limits.devices().filter_map(|(device, _)| used(device));
    Ok((quota, used.map(|memory| memory.used_bytes).max().unwrap_or(0)))
}

/// Changes the quota for each GPU of the tenant in `path`. Returns whether its GPU time is now metered.
///
/// # Errors
/// Fails if the quota would contradict itself (nothing is written), or if the limits cannot be written.
pub fn write(path: &Path, change: &QuotaChange) -> Result<bool, Failure> {
    let mut writer = LimitsWriter::open(path).map_err(failed)?;
    let devices: Vec<(DeviceIndex, GpuUuid)> = writer.limits().devices().collect();
    let mut wanted = Vec::new();
    for (device, _) in devices {
        let now = Quota::of(&writer.limits().config(device).map_err(failed)?);
        wanted.push((device, now.merge(change)?));
    }
    let mut is_metered = false;
    for (device, wanted) in wanted {
        writer.set_config(device, &wanted.config(), clock::now_ns()).map_err(failed)?;
        is_metered |= wanted.is_metered();
    }
    Ok(is_metered)
}

/// Directory of the living tenant `name`.
fn find(name: &str, tenants: Vec<(String, PathBuf)>) -> Result<PathBuf, Failure> {
    let known: Vec<String> = tenants.iter().map(|(known, _)| known.clone()).collect();
    tenants.into_iter().find(|(known, _)| known == name).map(|(_, path)| path).ok_or_else(|| {
        Failure::Usage(match known.as_slice() {
            [] => format!(
                "set {name}: no such tenant; none is running (`vcuda run --name {name} ...` starts one)"
            ),
            known => format!("set {name}: no such tenant; running are: {}", known.join(", ")),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_list_the_known_ones() {
        let tenants = || vec![("a".to_owned(), PathBuf::from("/a")), ("b".to_owned(), PathBuf::from("/b"))];
        assert_eq!(find("b", tenants()).unwrap(), PathBuf::from("/b"));
        assert!(find("c", tenants()).unwrap_err().to_string().ends_with("running are: a, b"));
        assert!(find("c", Vec::new()).unwrap_err().to_string().contains("none is running"));
    }
}
