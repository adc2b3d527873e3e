//! `vcuda set`: changes a tenant's quota while it runs.

use std::path::{Path, PathBuf};

use vcuda_quota::{Quota, QuotaChange};
use vcuda_region::limits::LimitsWriter;
use vcuda_region::{DeviceIndex, GpuUuid, clock, directory};

use crate::args::SetArgs;
use crate::config::Environment;
use crate::failure::{Failure, failed};
use crate::inventory::{self, Inventory};
use crate::manager_client::ManagerClient;
use crate::{background, grant, smi};

/// Writes the new quota for each GPU of the tenant.
pub(crate) fn set(args: &SetArgs, environment: &Environment) -> Result<(), Failure> {
    if args.quota.is_empty() {
        let name = &args.name;
        return Err(Failure::Usage(format!(
            "set {name}: nothing to change; give --memory, --cores or another option of its quota"
        )));
    }
    if let Some(path) = directory::resolve(environment.tenant.as_deref()) {
        let path = path.display();
        return Err(Failure::Usage(format!(
            "a tenant ({path}) cannot change quotas; run `vcuda set` outside of it"
        )));
    }
    // A grant's quota is changed through the manager: its ledger would replace other changes at the next restart.
    if let Some(node) = ManagerClient::find(environment)?
        && let Some(found) = node.grant(&args.name)?
    {
        return grant::resize(&node, &found, &args.quota);
    }
    let root = environment.runtime_root()?;
    smi::remove_dead(&root);
    let path = find(&args.name, directory::list(&root).map_err(failed)?)?;
    if directory::is_granted(&path) {
        let name = &args.name;
        return Err(Failure::Unavailable(format!(
            "set {name}: the manager granted this, and does not answer; start `vcuda-manager` again"
        )));
    }
    if let Some(memory) = args.quota.memory {
        let writer = LimitsWriter::open(&path).map_err(failed)?;
        // GPUs of another machine cannot be checked; the driver will refuse the excess.
        let seen = Inventory::find(environment, false)
            .and_then(|inventory| inventory.gpus())
            .unwrap_or_default();
        let own: Vec<_> = seen
            .into_iter()
            .filter(|gpu| writer.limits().devices().any(|(_, uuid)| uuid == gpu.uuid))
            .collect();
        inventory::fits(memory, &own)?;
    }
    if write(&path, &args.quota.change())? {
        background::ensure_arbiter(environment)?;
    }
    Ok(())
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
        writer
            .set_config(device, &wanted.config(), clock::now_ns())
            .map_err(failed)?;
        is_metered |= wanted.is_metered();
    }
    Ok(is_metered)
}

/// Directory of the living tenant `name`.
fn find(name: &str, tenants: Vec<(String, PathBuf)>) -> Result<PathBuf, Failure> {
    let known: Vec<String> = tenants.iter().map(|(known, _)| known.clone()).collect();
    tenants
        .into_iter()
        .find(|(known, _)| known == name)
        .map(|(_, path)| path)
        .ok_or_else(|| {
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
        let tenants = || {
            vec![
                ("a".to_owned(), PathBuf::from("/a")),
                ("b".to_owned(), PathBuf::from("/b")),
            ]
        };
        assert_eq!(find("b", tenants()).unwrap(), PathBuf::from("/b"));
        assert!(
            find("c", tenants())
                .unwrap_err()
                .to_string()
                .ends_with("running are: a, b")
        );
        assert!(
            find("c", Vec::new())
                .unwrap_err()
                .to_string()
                .contains("none is running")
        );
    }
}
