//! Whether the memory of a suspended tenant fits on its GPUs: a restore without room loses the process.

use std::sync::Arc;

use vcuda_quota::MemorySize;
use vcuda_region::GpuUuid;
use vcuda_region::suspension::SuspendState;

use super::Shared;
use super::records::Process;
use crate::grant::Grant;
use crate::observe::{Device, Snapshot, Tenant};
use crate::state::GrantError;

/// Checks that the GPUs have room for the tenant's memory, whatever processes outside of vcuda use. What its own
/// processes have there is room. Where quotas may exceed a GPU, the other tenants may take what is left of theirs at any moment: that is none.
///
/// # Errors
/// [`GrantError::NoRoom`], or [`GrantError::Unavailable`] if the room on a GPU is not known: there may be none, and none is to be made.
pub(super) fn has_room(shared: &Shared, id: &str) -> Result<(), GrantError> {
    let snapshot = shared.grants.snapshot_of_now();
    let devices = match snapshot.find(id) {
        Some(tenant) => tenant.devices.as_slice(),
        // One that is gone needs no room.
        None if shared.directory(id).symlink_metadata().is_err() => return Ok(()),
        None => {
            return Err(GrantError::Unavailable(format!(
                "{id}: its files cannot be read now, and tell what it needs"
            )));
        }
    };
    let own = shared.records.lock().find(id).map(|record| record.processes.clone());
    let own = own.unwrap_or_default();
    let used = devices.iter().filter(|device| device.used_bytes > 0);
    let free = used.map(|device| match free_now(shared, &device.gpu, &own) {
        Ok(free_bytes) => Ok(free_bytes.map(|bytes| (device, bytes))),
        Err(why) => {
            Err(GrantError::Unavailable(format!("{id}: the room on {} is not known: {why}", device.gpu)))
        }
    });
    let free: Vec<Option<(&Device, u64)>> = free.collect::<Result<_, _>>()?;
    for (device, free_bytes) in free.into_iter().flatten() {
        if free_bytes < device.used_bytes {
            return Err(GrantError::NoRoom(format!(
                "{id}: its {} do not fit on {} now, as others use the GPU; end or suspend them (`vcuda ps` lists them)",
                MemorySize(device.used_bytes),
                device.gpu
            )));
        }
        let claims_bytes =
            if shared.is_overcommitted() { claims_of_others(shared, &snapshot, id, &device.gpu) } else { 0 };
        if free_bytes - device.used_bytes < claims_bytes {
            return Err(GrantError::NoRoom(format!(
                "{id}: its {} do not fit on {} beside the quotas of the tenants there; it comes back when one of them ends or is \
                 suspended",
                MemorySize(device.used_bytes),
                device.gpu
            )));
        }
    }
    Ok(())
}

/// Memory that other tenants may take on a GPU beyond what they use now (bytes). What the ledger keeps counts even if the
/// tenant's limits do not have it yet.
fn claims_of_others(shared: &Shared, snapshot: &Snapshot, id: &str, gpu: &GpuUuid) -> u64 {
    let grant_table = shared.grants.grant_table();
    let others = snapshot.tenants.iter().filter(|tenant| tenant.id != id);
    let claim = |tenant: &Tenant| {
        let device = tenant.devices.iter().find(|device| device.gpu == *gpu)?;
        let kept_bytes = grant_table.by_id(&tenant.id).map_or(0, |grant| grant.kept_bytes());
        let limit_bytes = device.config.memory_limit_bytes.max(kept_bytes);
        Some(match shared.state(&tenant.id) {
            SuspendState::Suspended => 0,
            SuspendState::Running | SuspendState::Failed => limit_bytes.saturating_sub(device.used_bytes),
            // Its memory may not be on the GPU, and may come there.
            SuspendState::Suspending | SuspendState::Resuming => limit_bytes,
        })
    };
    let has_no_files = |grant: &&Arc<Grant>| {
        grant.id.as_str() != id && grant.gpus.contains(gpu) && snapshot.find(grant.id.as_str()).is_none()
    };
    let later = grant_table.grants().filter(has_no_files);
    others.filter_map(claim).chain(later.map(|grant| grant.kept_bytes())).fold(0, u64::saturating_add)
}

/// Memory of a GPU that no process uses now, except for these (bytes); `None` with a driver that does not tell what a process uses.
///
/// # Errors
/// NVML shows no such GPU, or does not answer: there may be no room.
fn free_now(shared: &Shared, gpu: &GpuUuid, except: &[Process]) -> Result<Option<u64>, String> {
    let inventory = shared.grants.inventory();
    let known = inventory.find(gpu).ok_or("NVML does not show it")?;
    let used = shared.node.processes(gpu).map_err(|error| error.to_string())?;
    let used = used.into_iter().filter(|(pid, _)| except.iter().all(|process| process.host_pid != *pid));
    let used: Option<u64> = used.map(|(_, bytes)| bytes).sum();
    Ok(used.map(|used_bytes| known.grantable_bytes(used_bytes)))
}
